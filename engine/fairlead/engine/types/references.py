"""Full names of devices and pods. Their order is total: it ends decisions that are otherwise ties."""

from __future__ import annotations

import msgspec


class Named:
    """What is identified by namespace and name."""

    __slots__ = ()
    namespace: str
    name: str

    @property
    def id(self) -> str:
        return f"{self.namespace}/{self.name}"


class DeviceRef(msgspec.Struct, frozen=True, order=True, gc=False):
    """A device's full name. Its order is the inventory's order of pools; names of devices come last."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class PodRef(msgspec.Struct, frozen=True, order=True, gc=False):
    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"
