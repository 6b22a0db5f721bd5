"""Keeps the node's GPUs cut as its label `nvidia.com/mig.config` says: drain, cut, verify, publish; or back, and say why.

One step at each poll of the hardware. What is done to a GPU is in the drains, in the intents and on the hardware, so that a
restart goes on where the process before was; no claim, no kubelet and no apiserver is asked for anything but the label.
Keeps: a GPU is cut only when its taint was published `settle_s` before and no claim holds it; it is published as it then is
before it takes claims again; a layout that failed is tried again when label or file change, or the driver starts. A layout
that this node cannot have changes nothing; one GPU that cannot be cut is put back, and the others are cut.
A claim that was allocated just before the taint was seen would find its device gone. It is prepared when its pod starts, seconds later: so
a GPU that nothing holds is left alone for `settle_s`.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Collection
from pathlib import Path

from fairlead.driver.common import files
from fairlead.driver.common.locks import ProcessLock, ProcessLockError
from fairlead.driver.layouts import config
from fairlead.driver.layouts.config import LayoutError, Wanted
from fairlead.driver.layouts.cutter import CutError, Cutter, Intent
from fairlead.driver.layouts.state import LayoutState, NodeLabel
from fairlead.driver.node_gpus import NodeGpus
from fairlead.driver.prepare.records import holders
from fairlead.driver.publish.monitor import Drain
from fairlead.kube.timing import REAL, Time

log = logging.getLogger(__name__)

LOCK_S = 30.0
UNDO_AGAIN_S = 60.0
CLOSED = "the GPU is being cut as the node's label nvidia.com/mig.config says"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """`todo` are GPUs to be cut, `intents` those that are in between; `problem`: why the layout is not known."""

    key: tuple[str, bytes]
    todo: tuple[Wanted, ...]
    intents: dict[str, Intent]
    problem: str = ""

    @property
    def unwanted(self) -> dict[str, Intent]:
        """GPUs in between that no layout asks for."""
        wanted = {each.uuid for each in self.todo}
        return {uuid: intent for uuid, intent in self.intents.items() if uuid not in wanted}


@dataclasses.dataclass(eq=False)
class LayoutKeeper:
    """`synced_at_s` says when the stored slices last were known to be right. `count` is called with the outcome of each cut: ok, undone, stuck."""

    path: Path
    label: NodeLabel
    gpus: NodeGpus
    cutter: Cutter
    _: dataclasses.KW_ONLY
    process_lock: ProcessLock
    synced_at_s: Callable[[], float | None]
    count: Callable[[str], None]
    interval_s: float = 5.0
    settle_s: dataclasses.InitVar[float] = 10.0
    timing: Time = REAL

    def __post_init__(self, settle_s: float) -> None:
        self._settling = Settling(settle_s)
        self._cut: set[str] = set()  # and not read again yet
        self._failed_key: tuple[str, bytes] | None = None
        self._failed: dict[str, str] = {}  # why, by GPU
        self._undo_at_s: dict[str, float] = {}

    async def run(self) -> None:
        """Never returns."""
        problem = ""
        while True:
            try:
                await self.step()
                problem = ""
            except Exception as error:
                if str(error) != problem:
                    log.exception("MIG layouts cannot go on; tried again every %g s", self.interval_s)
                problem = str(error)
            await self.timing.sleep(self.interval_s)

    async def first(self) -> None:
        """Before the first slices are published: taint what is to be cut from the start."""
        if self.label.wanted is not None:
            self._drain(await self._look(self.label.wanted))

    async def step(self) -> None:
        """Do what can be done now. Failures are reported, not raised."""
        name = self.label.wanted
        if name is None:
            return
        look = await self._look(name)
        self._drain(look)
        for uuid, intent in sorted(look.unwanted.items()):
            await self._undo(uuid, intent)
        waits = [waiting for wanted in look.todo if (waiting := await self._advance(wanted, look.key))]
        if not name:
            await self.label.report(LayoutState())
        elif look.problem:
            await self.label.report(LayoutState(config=name, state="failed", message=look.problem))
        elif waits:
            await self.label.report(LayoutState(config=name, state="pending", message="; ".join(waits)))
        elif self._failed:
            why = "; ".join(self._failed.values())
            await self.label.report(LayoutState(config=name, state="failed", message=why))
        else:
            await self.label.report(LayoutState(config=name, state="success"))

    # -- looking and draining ------------------------------------------------------------------------------------------

    async def _look(self, name: str) -> _Look:
        key, problem = (name, b""), ""
        todo: tuple[Wanted, ...] = ()
        intents: dict[str, Intent] = {}
        try:
            intents = await self.gpus.threads.run(self.cutter.intents.load)
            if name:
                key = name, await self.gpus.threads.run(_read, self.path)
                if key != self._failed_key:
                    self._failed_key, self._failed = None, {}
                todo = self._todo(*key, intents)
            else:
                self._failed_key, self._failed = None, {}
        except LayoutError as error:
            problem = f"{error}; nothing was changed"
        except OSError as error:
            problem = files.describe(error)
        return _Look(key=key, todo=todo, intents=intents, problem=problem)

    def _todo(self, name: str, content: bytes, intents: dict[str, Intent]) -> tuple[Wanted, ...]:
        """Raises LayoutError."""
        layouts = config.parse(content, path=str(self.path))
        inventory, on_demand = self.gpus.monitor.inventory, self.gpus.monitor.partitionable()
        found = []
        for wanted in config.resolve(config.choose(layouts, name, path=str(self.path)), inventory):
            gpu = inventory.gpu(wanted.uuid)
            if gpu is None or wanted.uuid in self._failed:
                continue
            if wanted.uuid in intents or not config.is_so(wanted, gpu, on_demand=wanted.uuid in on_demand):
                found.append(wanted)
        return tuple(found)

    def _drain(self, look: _Look) -> None:
        drained = {wanted.uuid for wanted in look.todo} | look.intents.keys()
        self._cut &= drained
        self._settling.update(drained, synced_at_s=self.synced_at_s(), now_s=self.timing.wall())
        closed = look.intents.keys() | self._cut
        self.gpus.drains.replace(
            "mig-config", {uuid: Drain(value=look.key[0], closed=CLOSED if uuid in closed else "") for uuid in drained}
        )

    def _set(self, uuid: str, *, closed: bool) -> None:
        drains = self.gpus.drains.of("mig-config")
        changed = dataclasses.replace(drains.get(uuid, Drain()), closed=CLOSED if closed else "")
        self.gpus.drains.replace("mig-config", drains | {uuid: changed})

    def _end(self, uuid: str) -> None:
        """The GPU is drained no longer; what it is now is read before it is published without its taint."""
        drains = self.gpus.drains.of("mig-config")
        drains.pop(uuid, None)
        self.gpus.drains.replace("mig-config", drains)
        self.gpus.monitor.read_again()

    # -- cutting -------------------------------------------------------------------------------------------------------

    async def _advance(self, wanted: Wanted, key: tuple[str, bytes]) -> str:
        """Cut the GPU if that can be done now. What it waits for, or empty."""
        uuid, name = wanted.uuid, f"gpu-{wanted.minor}"
        if uuid in self._cut:
            return f"{name} is cut, and published with the next poll"
        waiting = self._waits_for(uuid)
        if waiting:
            return f"{name} waits {waiting}"
        self._set(uuid, closed=True)
        try:
            async with self.process_lock.hold(timeout_s=LOCK_S):
                held_by = await self.gpus.threads.run(self._cut_exclusively, wanted)
        except CutError as error:
            self._fail(wanted, key, error)
            return ""
        except (ProcessLockError, OSError) as error:
            self._set(uuid, closed=False)
            return f"{name}: {files.describe(error) if isinstance(error, OSError) else error}"
        if held_by:
            self._set(uuid, closed=False)
            return f"{name} waits for {held_by} to end"
        self.count("ok")
        log.info("%s is cut as MIG layout %s says", name, key[0])
        self._cut.add(uuid)
        self.gpus.monitor.read_again()
        return f"{name} is cut, and published with the next poll"

    def _waits_for(self, uuid: str) -> str:
        if self._is_repaired(uuid):
            return "for its repair"
        held_by = [f"{record.namespace}/{record.name}" for record in holders(self.gpus.preparer.records(), uuid)]
        if held_by:
            return f"for {', '.join(held_by[:3])}{' and others' if len(held_by) > 3 else ''} to end"
        return self._settling.waits_for(uuid, now_s=self.timing.wall())

    def _is_repaired(self, uuid: str) -> bool:
        """Whether a repair has closed the GPU, and restores what it was; or failed, and keeps it."""
        repaired = self.gpus.drains.of("repair").get(uuid)
        return repaired is not None and bool(repaired.closed)

    def _cut_exclusively(self, wanted: Wanted) -> str:
        """The claim that holds the GPU, or empty. Raises CutError or OSError."""
        with self.gpus.preparer.exclusively(wanted.uuid) as held:
            if held:
                return f"{held[0].namespace}/{held[0].name}"
            self.cutter.cut(wanted.uuid, wanted.minor, wanted.cut)
            return ""

    def _fail(self, wanted: Wanted, key: tuple[str, bytes], error: CutError) -> None:
        self.count("undone" if error.undone else "stuck")
        then = (
            "it is as it was before"
            if error.undone
            else "it could not be brought back, and takes no claims until it is"
        )
        self._failed_key = key
        self._failed[wanted.uuid] = f"gpu-{wanted.minor} was not cut: {error}; {then}"
        if error.undone:
            self._end(wanted.uuid)

    # -- undoing -------------------------------------------------------------------------------------------------------

    async def _undo(self, uuid: str, intent: Intent) -> None:
        """Bring back a GPU whose layout failed, or is not asked for any more. It was closed all the time."""
        if self._is_repaired(uuid) or self.timing.wall() < self._undo_at_s.get(uuid, 0.0):
            return
        try:
            async with self.process_lock.hold(timeout_s=LOCK_S):
                undone = await self.gpus.threads.run(self._undo_exclusively, uuid)
        except (ProcessLockError, OSError) as error:
            log.warning("gpu-%d: MIG layout not undone: %s", intent.minor, error)
            undone = False
        if not undone:
            self._undo_at_s[uuid] = self.timing.wall() + UNDO_AGAIN_S
            return
        log.info("gpu-%d is as it was before its MIG layout was changed", intent.minor)
        self._undo_at_s.pop(uuid, None)
        if uuid in self._failed:
            self._failed[uuid] = f"gpu-{intent.minor} was not cut: {intent.undoing}; it is as it was before"
        self._end(uuid)

    def _undo_exclusively(self, uuid: str) -> bool:
        with self.gpus.preparer.exclusively(uuid) as held:
            return not held and self.cutter.undo(uuid)


def _read(path: Path) -> bytes:
    """The file, also through the links by which a ConfigMap is mounted. Raises OSError."""
    with path.open("rb") as file:
        return file.read(config.BYTES_MAX + 1)


class Settling:
    def __init__(self, settle_s: float) -> None:
        self._settle_s = settle_s
        self._since_s: dict[str, float] = {}
        self._visible_s: dict[str, float] = {}

    def update(self, drained: Collection[str], *, synced_at_s: float | None, now_s: float) -> None:
        """`drained`: UUIDs of all GPUs that drain now; `synced_at_s`: when the stored slices last were as they should be."""
        self._since_s = {uuid: self._since_s.get(uuid, now_s) for uuid in drained}
        self._visible_s = {uuid: at_s for uuid, at_s in self._visible_s.items() if uuid in self._since_s}
        for uuid, since_s in self._since_s.items():
            if uuid not in self._visible_s and synced_at_s is not None and synced_at_s > since_s:
                self._visible_s[uuid] = now_s

    def waits_for(self, uuid: str, *, now_s: float) -> str:
        """What the GPU waits for, or empty."""
        visible_s = self._visible_s.get(uuid)
        if visible_s is None:
            return "until its taint is published"
        if now_s - visible_s < self._settle_s:
            return "for claims that were allocated before its taint was published"
        return ""
