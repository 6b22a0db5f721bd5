"""How the devices are, for two readers: kubelet's health stream, and taints on the published devices.

Exists so that a fault is told once and read the same by both. Pure, but for the board that wakes its watchers.
A taint never reaches a device only by accident of timing: GPU faults reach all of its MIG devices.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Iterable, Mapping

from fairlead.api import names
from fairlead.driver.backend import Health, HealthState
from fairlead.kube.resource import Device, DeviceTaint

MESSAGE_MAX = 1024


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeviceState:
    """One published device. `since_s` is when this was last looked at, in seconds since the epoch."""

    pool: str
    device: str
    state: HealthState
    since_s: float
    message: str = ""


def taints(healths: Iterable[Health]) -> dict[str, tuple[DeviceTaint, ...]]:
    """Taints by UUID, for those devices that have a fault. A severe fault keeps new pods away.

    The time is left to the apiserver, which stamps a taint that is new.
    """
    found: dict[str, tuple[DeviceTaint, ...]] = {}
    for health in healths:
        if health.state != "unhealthy" or not health.severe:
            continue
        taint = DeviceTaint(key=f"{names.DRIVER}/{health.reason}", value=health.value, effect="NoSchedule")
        found[health.uuid] = (*found.get(health.uuid, ()), taint)
    return found


def states(devices: Iterable[Device], healths: Iterable[Health], *, pool: str, now_s: float) -> tuple[DeviceState, ...]:
    """The state of each published device: its own, or that of the GPU it is part of. Unknown where nobody looks."""
    known: Mapping[str, Health] = {health.uuid: health for health in healths}
    found = []
    for device in devices:
        uuids = [
            attribute.string
            for name in ("uuid", "parentUUID")
            if (attribute := device.attributes.get(name)) is not None and attribute.string
        ]
        seen = [known[uuid] for uuid in uuids if uuid in known]
        worst = max(seen, key=lambda health: ("unknown", "healthy", "unhealthy").index(health.state), default=None)
        found.append(
            DeviceState(
                pool=pool,
                device=device.name,
                state=worst.state if worst else "unknown",
                since_s=now_s,
                message=(worst.message if worst else "")[:MESSAGE_MAX],
            )
        )
    return tuple(found)


class HealthBoard:
    """The latest states, and a way to wait for the next ones."""

    def __init__(self) -> None:
        self.states: tuple[DeviceState, ...] = ()
        self._next: asyncio.Event = asyncio.Event()
        self._closed = False

    def post(self, states_now: tuple[DeviceState, ...]) -> None:
        """Tell everyone, though nothing changed: kubelet takes silence for unknown after 30 s."""
        self.states = states_now
        self._next.set()
        self._next = asyncio.Event()

    def close(self) -> None:
        """End every watch."""
        self._closed = True
        self._next.set()

    async def watch(self) -> AsyncIterator[tuple[DeviceState, ...]]:
        """The complete list now, and again at every post."""
        while not self._closed:
            coming = self._next
            yield self.states
            await coming.wait()
