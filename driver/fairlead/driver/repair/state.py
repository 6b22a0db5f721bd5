"""A repair as the driver keeps it on disk, and the taints and annotations that follow from it. Data, its file, and pure rules.

Keeps: a GPU that a reset may have touched stays tainted and closed until it was verified; a repair that failed leaves the
GPU so, and the next one for it knows the MIG layout of before. The file outlives the driver and the node's reboot, which verifies no GPU.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from fairlead.api import repair as api
from fairlead.api.repair import Phase
from fairlead.driver.backend.types import ComputeMode
from fairlead.driver.common import files
from fairlead.driver.publish.monitor import Drain
from fairlead.kube import timestamps

# How long the outcome is shown.
FINISHED_S = 3600.0
HOLDERS_SHOWN = 8
MESSAGE_MAX = 600


class Member(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A GPU that is reset, and what it was before: `layout` are its MIG devices as (profile ID, start).

    `mig_enabled` is as published, where a GPU that is cut on demand is not in MIG mode; `mig_mode` as the hardware has it.
    `kept` says that this was read before the first reset; later it may be what a failure left.
    """

    uuid: str
    minor: int
    kept: bool = False
    mig_enabled: bool | None = None
    mig_mode: bool | None = None
    layout: tuple[tuple[int, int], ...] = ()
    compute_mode: ComputeMode | None = None
    memory_bytes: int | None = None
    links: int | None = None
    ecc_uncorrected: int | None = None


class Repair(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`device` is the GPU that was asked for, `members` all that are reset with it. Times in epoch seconds."""

    id: str
    device: str
    phase: Phase
    since_s: float
    members: tuple[Member, ...] = ()
    message: str = ""
    holders: tuple[str, ...] = ()

    @property
    def uuids(self) -> tuple[str, ...]:
        return tuple(member.uuid for member in self.members)

    @property
    def under_way(self) -> bool:
        return self.phase in api.UNDER_WAY

    @property
    def together(self) -> tuple[str, ...]:
        return tuple(f"gpu-{member.minor}" for member in self.members)

    def to(self, phase: Phase, now_s: float, message: str = "", holders: tuple[str, ...] = ()) -> "Repair":
        """The same repair in this phase; its time is kept while the phase is the same."""
        since_s = self.since_s if phase == self.phase else now_s
        return msgspec.structs.replace(
            self, phase=phase, since_s=since_s, message=message[:MESSAGE_MAX], holders=holders[:HOLDERS_SHOWN]
        )

    def shown(self) -> api.State:
        return api.State(
            id=self.id,
            phase=self.phase,
            since=timestamps.seconds(self.since_s),
            message=self.message,
            together=self.together,
            holders=self.holders,
        )


# By the device that was asked for.
Repairs = Mapping[str, Repair]


def drains(repairs: Repairs) -> dict[str, Drain]:
    """By GPU UUID, for the taint `gpu.fairlead.dev/repair` with the phase as its value."""
    found: dict[str, Drain] = {}
    for repair in sorted(
        repairs.values(), key=lambda each: each.phase != "drained"
    ):  # what closes a GPU comes last, and counts
        if repair.phase in api.TAINTED:
            for member in repair.members:
                found[member.uuid] = Drain(value=repair.phase, closed=_closed(repair))
    return found


def _closed(repair: Repair) -> str:
    if repair.phase not in api.CLOSED:
        return ""
    if repair.phase == "failed":
        return f"the repair of {repair.device} failed ({repair.message}); delete the pod so that it is placed on another GPU"
    return f"{repair.device} is being repaired ({repair.phase})"


def overlapping(repairs: Repairs, uuids: Iterable[str]) -> list[Repair]:
    """The repairs that keep one of these GPUs tainted."""
    wanted = set(uuids)
    return [each for each in repairs.values() if each.phase in api.TAINTED and wanted & set(each.uuids)]


def pruned(repairs: Repairs, now_s: float) -> dict[str, Repair]:
    """Without those that ended well, or never began, longer ago than `FINISHED_S`."""
    return {
        device: each
        for device, each in repairs.items()
        if each.phase in api.TAINTED or now_s - each.since_s < FINISHED_S
    }


class _Saved(msgspec.Struct, frozen=True, kw_only=True):
    repairs: dict[str, Repair]


def encode(repairs: Repairs) -> bytes:
    return msgspec.json.encode(_Saved(repairs=dict(repairs)))


def decode(content: bytes) -> dict[str, Repair]:
    """Raises msgspec.DecodeError or RecursionError."""
    return msgspec.json.decode(content, type=_Saved).repairs


BYTES_MAX = 1 << 20


class StoreError(Exception):
    """The file cannot be read: what it says of half repaired GPUs is not known."""


class RepairStore:
    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> dict[str, Repair]:
        """Raises StoreError, rather than to forget a repair."""
        try:
            return decode(files.read(self._path, bytes_max=BYTES_MAX))
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise StoreError(
                f"{self._path}: cannot be read ({error}); look at the node's GPUs, then remove the file"
            ) from error

    def save(self, repairs: Repairs) -> None:
        """Durable when it returns. Raises OSError."""
        files.write(self._path, encode(repairs))
