"""The latest health of the devices, and a way to wait for the next: what kubelet's health streams read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from fairlead.driver.publish.health import DeviceHealth


class HealthFeed:
    def __init__(self) -> None:
        self.devices: tuple[DeviceHealth, ...] = ()
        self._next: asyncio.Event = asyncio.Event()
        self._closed = False

    def publish(self, devices: tuple[DeviceHealth, ...]) -> None:
        """Wakes every subscriber even if nothing changed: kubelet takes 30 s of silence for unknown health."""
        self.devices = devices
        self._next.set()
        self._next = asyncio.Event()

    def close(self) -> None:
        """End every subscription."""
        self._closed = True
        self._next.set()

    async def subscribe(self) -> AsyncIterator[tuple[DeviceHealth, ...]]:
        """The complete list now, and again whenever it is published."""
        while not self._closed:
            published = self._next
            yield self.devices
            await published.wait()
