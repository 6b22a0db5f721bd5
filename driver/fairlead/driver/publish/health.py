"""How the published devices are, for kubelet's health stream.

Exists so that the stream and the taints tell the same: both read the ledger. Pure, but for the board that wakes its
watchers.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Literal

from fairlead.driver.backend.types import GpuStatus
from fairlead.driver.publish.faults import Ledger, message, severe
from fairlead.kube.resource import Device

HealthState = Literal["healthy", "unhealthy", "unknown"]

MESSAGE_MAX = 1024


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeviceState:
    """One published device. `since_s` is when this was last looked at, in seconds since the epoch."""

    pool: str
    device: str
    state: HealthState
    since_s: float
    message: str = ""


def states(
    devices: Iterable[Device],
    watched: Iterable[GpuStatus],
    ledger: Ledger,
    *,
    ailing: Mapping[str, str],
    pool: str,
    now_s: float,
) -> tuple[DeviceState, ...]:
    """The state of each published device: that of the GPU it is, or is part of, and its own (`ailing`, by name).

    Unknown where nobody looks.
    """
    looks = {gpu.uuid: gpu for gpu in watched}
    found = []
    for device in devices:
        attribute = device.attributes.get("parentUUID") or device.attributes.get("uuid")
        uuid = attribute.string if attribute is not None and attribute.string else ""
        look = looks.get(uuid)
        if severe(ledger, uuid) or device.name in ailing:
            state: HealthState = "unhealthy"
        else:
            state = "healthy" if look is not None and look.responds else "unknown"
        text = message(ledger, uuid) or ailing.get(device.name, "") or (look.message if look else "")
        found.append(DeviceState(pool=pool, device=device.name, state=state, since_s=now_s, message=text[:MESSAGE_MAX]))
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
