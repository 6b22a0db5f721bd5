"""Cuts one GPU as declared, verifies what the hardware then reports, and puts it back where that fails. Blocks.

Its caller sees to it that no claim has the GPU. Keeps: what the GPU was before is on disk before it changes; after a
kill, `cut` again ends as if it had not been killed, and `undo` brings the GPU back. MIG devices that stay in place are not touched.
`on_step` is called with the name of each step when it is done: tests kill the process there.

The file of intents says which GPUs are being cut, and what they were before. It is written before the first change of a GPU and removed
after the last, so a GPU that it names may be in between. MIG devices do not outlive a boot: neither does what the file says. A file that
cannot be read is moved aside; its GPUs are then cut again as the label says.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from fairlead.driver.backend.interface import Backend, BackendError, InUse, PlacementTaken
from fairlead.driver.common import files

log = logging.getLogger(__name__)


# Monitoring tools hold an instance for moments when they are restarted or look at it.
IN_USE_TRIES = 5
IN_USE_WAIT_S = 2.0

T = TypeVar("T")


class CutError(Exception):
    """A GPU could not be cut. `undone`: it is as it was before; else it is in between, and `undo` tries again."""

    def __init__(self, message: str, *, undone: bool) -> None:
        super().__init__(message)
        self.undone = undone


def _ignore(step: str) -> None:
    pass


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Cutter:
    backend: Backend
    intents: Intents
    on_step: Callable[[str], None] = _ignore
    sleep: Callable[[float], None] = time.sleep

    def cut(self, uuid: str, minor: int, wanted: Cut) -> bool:
        """Whether anything had to be changed. Raises CutError or OSError."""
        known = self.intents.load().get(uuid)
        if known is not None and (known.undoing or known.wanted != wanted):
            if not self.undo(uuid):
                raise CutError(known.undoing or "it could not be brought back from another layout", undone=False)
            known = None
        try:
            before = known.before if known is not None else self._present(uuid)
            if known is None and before == wanted:
                return False
        except BackendError as error:
            raise CutError(str(error), undone=True) from error
        self.intents.put(uuid, Intent(minor=minor, before=before, wanted=wanted))
        self.on_step("cut intended")
        try:
            self._change(uuid, wanted, "cut")
            self._verify(uuid, minor, wanted)
        except BackendError as error:
            why = _why(error, minor)
            self.intents.put(uuid, Intent(minor=minor, before=before, wanted=wanted, undoing=why))
            self.on_step("undo intended")
            raise CutError(why, undone=self.undo(uuid)) from error
        self.intents.remove(uuid)
        self.on_step("cut recorded")
        return True

    def undo(self, uuid: str) -> bool:
        """Whether the GPU is as it was before; else `intents` says why not. Raises OSError."""
        intent = self.intents.load().get(uuid)
        if intent is None:
            return True
        if not intent.undoing:
            intent = msgspec.structs.replace(intent, undoing="the layout is not asked for any more")
            self.intents.put(uuid, intent)
            self.on_step("undo intended")
        try:
            self._change(uuid, intent.before, "undo")
            self._verify(uuid, intent.minor, intent.before)
        except BackendError as error:
            log.error("gpu-%d: not brought back: %s", intent.minor, error)
            return False
        self.intents.remove(uuid)
        self.on_step("undo recorded")
        return True

    # -- the hardware --------------------------------------------------------------------------------------------------

    def _present(self, uuid: str) -> Cut:
        placements = tuple((mig.profile.id, mig.start) for mig in self.backend.mig_devices(uuid))
        return Cut(enabled=bool(self.backend.mig_mode(uuid)), placements=placements)

    def _change(self, uuid: str, wanted: Cut, verb: str) -> None:
        """Raises BackendError."""
        present = set(self._present(uuid).placements)
        intent = self.intents.load()[uuid]
        # An interrupted creation may have left a GPU instance without compute instance, which is no MIG device yet.
        touched = present | {*intent.before.placements, *intent.wanted.placements}
        for profile_id, start in sorted(touched - (present & set(wanted.placements))):
            if self._unless_in_use(functools.partial(self.backend.destroy_mig, uuid, profile_id, start)):
                self.on_step(f"{verb}: destroyed {profile_id}@{start}")
        if bool(self.backend.mig_mode(uuid)) != wanted.enabled:
            self._unless_in_use(functools.partial(self.backend.set_mig_mode, uuid, wanted.enabled))
            self.on_step(f"{verb}: mode switched")
        for profile_id, start in wanted.placements:
            if (profile_id, start) not in present:
                self.backend.create_mig(uuid, profile_id, start)
                self.on_step(f"{verb}: created {profile_id}@{start}")

    def _unless_in_use(self, change: Callable[[], T]) -> T:
        for _ in range(IN_USE_TRIES - 1):
            try:
                return change()
            except InUse:
                self.sleep(IN_USE_WAIT_S)
        return change()

    def _verify(self, uuid: str, minor: int, wanted: Cut) -> None:
        found = self._present(uuid)
        if found != wanted:
            raise BackendError(
                f"gpu-{minor}: was to be {_described(wanted)}, and the hardware reports {_described(found)}; look at "
                "`nvidia-smi mig -lgi` on the node"
            )


def _why(error: BackendError, minor: int) -> str:
    """With what to do, where the hardware does not say it."""
    if isinstance(error, InUse):
        return (
            f"{error}: in use by a process that is none of a claim's; end it (`fuser -v /dev/nvidia{minor} "
            "/dev/nvidia-caps/*` on the node shows it), and set the label again"
        )
    if isinstance(error, PlacementTaken):
        return f"{error}: an instance that is no MIG device is in the way; look at `nvidia-smi mig -i {minor} -lgi` on the node"
    return str(error)


def _described(cut: Cut) -> str:
    if not cut.enabled:
        return "out of MIG mode"
    return "in MIG mode with " + (
        ", ".join(f"{profile}@{start}" for profile, start in cut.placements) or "no MIG devices"
    )


# -- what is on disk ---------------------------------------------------------------------------------------------------

BYTES_MAX = 1024 * 1024


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """How a GPU is cut: MIG mode, and its MIG devices as (profile ID, start), sorted by start."""

    enabled: bool
    placements: tuple[tuple[int, int], ...] = ()


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU on its way from `before` to `wanted`, or back where that failed (`undoing`: why)."""

    minor: int
    before: Cut
    wanted: Cut
    undoing: str = ""


class _Saved(msgspec.Struct, frozen=True, kw_only=True):
    boot_id: str
    gpus: dict[str, Intent]


class Intents:
    """Intents by GPU UUID. Not locked: one thread at a time cuts."""

    def __init__(self, path: Path, *, boot_id: str) -> None:
        self._path = path
        self._boot_id = boot_id

    def load(self) -> dict[str, Intent]:
        """Those of this boot. Raises OSError when the file is there and cannot be read."""
        try:
            saved = msgspec.json.decode(files.read(self._path, bytes_max=BYTES_MAX), type=_Saved)
        except FileNotFoundError:
            return {}
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            aside = self._path.with_name(f"{self._path.name}.unreadable")
            log.error(
                "%s: cannot be read (%s); kept as %s. GPUs are cut as the node's label says", self._path, error, aside
            )
            self._path.rename(aside)
            return {}
        return saved.gpus if saved.boot_id == self._boot_id else {}

    def put(self, uuid: str, intent: Intent) -> None:
        """Raises OSError; then the file is as before."""
        self._save(self.load() | {uuid: intent})

    def remove(self, uuid: str) -> None:
        """Raises OSError."""
        found = self.load()
        if found.pop(uuid, None) is not None:
            self._save(found)

    def _save(self, gpus: Mapping[str, Intent]) -> None:
        if gpus:
            files.write(self._path, msgspec.json.encode(_Saved(boot_id=self._boot_id, gpus=dict(gpus))))
        else:
            files.remove(self._path)
