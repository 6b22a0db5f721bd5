"""How busy the devices of a claim are, as the driver writes it into `status.devices[].data`: the one definition of that.

Written by the driver for its own devices, read by the controller. Whoever may write a claim's status may write anything
there, so reading is lenient: what is no DeviceUsage of this version is as if it were not there, and never an error.
Source: resource.k8s.io/v1 AllocatedDeviceStatus (KEP-4817); `data` has at most 10 KiB.
"""

# No `from __future__ import annotations`: msgspec reads the annotations.

import dataclasses
from typing import Annotated, Any, Final, Literal, NamedTuple, get_args

import msgspec

from fairlead.api import names
from fairlead.kube import timestamps
from fairlead.kube.resource import ResourceClaim

API_VERSION: Final = names.CONFIG_API_VERSION
KIND: Final = "DeviceUsage"

# Idle: the utilisation was below the driver's threshold for a whole window. Unknown: the hardware does not tell (MIG), or
# nothing was read for that long.
State = Literal["Busy", "Idle", "Unknown"]
STATES: Final[tuple[State, ...]] = get_args(State)

# The driver writes each claim at least every 66 minutes: an entry that is older says only what was.
FRESH_S: Final = 7200.0

_Level = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,3}(\.[0-9]{1,6})?$")]
_Bytes = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class DeviceId(NamedTuple):
    """An allocated device of a claim; `share_id` is None for one that the claim has alone."""

    driver: str
    pool: str
    device: str
    share_id: str | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUsage:
    """One device. Times are epoch seconds; what the hardware does not report is None.

    `since_s` is when the state began: the first idle sample, not the end of the window that proved it.
    `utilization_percent` is the mean over the last window, `memory_used_bytes` the last sample and `memory_used_peak_bytes` the most
    since the claim was prepared. `shared`: the device serves other claims, too, and the utilisation is that of all of them. Of a share
    `memory_bytes` is its size and the memory in use that of the claim's own programs.
    `memory_limit_bytes`, `multiprocessors_limit`: to what MPS holds each program of the claim; None: nothing does.
    `below`: (percent, since when) of each of the driver's levels that the utilisation has been below for a whole window, lowest
    first; since when is the first sample below it.
    """

    state: State
    since_s: float
    sampled_at_s: float
    utilization_percent: int | None = None
    memory_used_bytes: int | None = None
    memory_used_peak_bytes: int | None = None
    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None
    multiprocessors_limit: int | None = None
    shared: bool = False
    below: tuple[tuple[float, float], ...] = ()

    def below_since(self, percent: float) -> float | None:
        """Since when it is known to be below: of a level that the driver does not measure, by the next lower one. None: it is not."""
        return min((since_s for level, since_s in self.below if level <= percent), default=None)

    def to_json(self) -> dict[str, Any]:
        """The content of `data`, without what is not known."""
        wire = _Wire(
            state=self.state,
            since=timestamps.seconds(self.since_s),
            sampled_at=timestamps.seconds(self.sampled_at_s),
            utilization_percent=self.utilization_percent,
            memory_used_bytes=self.memory_used_bytes,
            memory_used_peak_bytes=self.memory_used_peak_bytes,
            memory_bytes=self.memory_bytes,
            memory_limit_bytes=self.memory_limit_bytes,
            multiprocessors_limit=self.multiprocessors_limit,
            shared=self.shared,
            below_since={f"{level:g}": timestamps.seconds(since_s) for level, since_s in self.below} or None,
        )
        return {"apiVersion": API_VERSION, "kind": KIND} | {
            key: value for key, value in msgspec.to_builtins(wire).items() if value is not None
        }


class _Wire(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The JSON. Fields that a later version adds are ignored."""

    state: State
    since: str
    sampled_at: str
    utilization_percent: Annotated[int, msgspec.Meta(ge=0, le=100)] | None = None
    memory_used_bytes: _Bytes | None = None
    memory_used_peak_bytes: _Bytes | None = None
    memory_bytes: _Bytes | None = None
    memory_limit_bytes: _Bytes | None = None
    multiprocessors_limit: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] | None = None
    shared: bool = False
    below_since: Annotated[dict[_Level, str], msgspec.Meta(max_length=16)] | None = None


def read(data: object) -> DeviceUsage | None:
    """The usage in an entry's `data`; None where that is no valid DeviceUsage of this version."""
    if not isinstance(data, dict) or data.get("apiVersion") != API_VERSION or data.get("kind") != KIND:
        return None
    try:
        wire = msgspec.convert(data, _Wire)
        since_s, sampled_at_s = timestamps.parse(wire.since), timestamps.parse(wire.sampled_at)
        below = sorted((float(level), timestamps.parse(since)) for level, since in (wire.below_since or {}).items())
    except (ValueError, TypeError):  # a ValidationError of msgspec is a ValueError, too
        return None
    return DeviceUsage(
        state=wire.state,
        since_s=since_s,
        sampled_at_s=sampled_at_s,
        utilization_percent=wire.utilization_percent,
        memory_used_bytes=wire.memory_used_bytes,
        memory_used_peak_bytes=wire.memory_used_peak_bytes,
        memory_bytes=wire.memory_bytes,
        memory_limit_bytes=wire.memory_limit_bytes,
        multiprocessors_limit=wire.multiprocessors_limit,
        shared=wire.shared,
        below=tuple(below),
    )


def usage_of(claim: ResourceClaim, *, driver: str = names.DRIVER) -> dict[DeviceId, DeviceUsage]:
    """What the driver wrote of the claim's allocated devices. A device of which it wrote nothing valid is left out."""
    if not claim.status.devices or claim.status.allocation is None:
        return {}
    allocated = {
        DeviceId(result.driver, result.pool, result.device, result.share_id)
        for result in claim.status.allocation.devices.results
        if result.driver == driver
    }
    found: dict[DeviceId, DeviceUsage] = {}
    for entry in claim.status.devices:
        device = DeviceId(entry.driver, entry.pool, entry.device, entry.share_id)
        usage = read(entry.data) if device in allocated else None
        if usage is not None:
            found[device] = usage
    return found
