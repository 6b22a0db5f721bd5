"""matchAttribute, distinctAttribute and the alignment of its gang over the devices of one claim, with exact undo.

The state of both grows and shrinks with the search. Of requests it has the names alone.
Keeps: `add` then `remove` of the same device leaves no trace (upstream leaked here, k/k#140436, and forgot values of
distinctAttribute within one request).
An attribute's value is compared with its type: the version "1.0.0" is not the string "1.0.0". List attributes match
when some value is common to all devices, and are distinct when no value is common to any two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.api import names

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fairlead.engine.inventory.device import Device, Value, Values


class Constraint:
    """One constraint of one claim, while its claim is being allocated."""

    __slots__ = ("_common", "_seen", "_values", "attribute", "distinct", "requests")

    def __init__(self, attribute: str, *, distinct: bool, requests: frozenset[str]) -> None:
        self.attribute = attribute
        self.distinct = distinct
        self.requests = requests  # "req" or "req/sub"; empty: all
        self._common: list[frozenset[Value]] = []  # match: what all devices so far share, one entry per device
        self._seen: set[Value] = set()  # distinct: the values taken
        self._values: dict[Device, frozenset[Value]] = {}  # a search adds the same devices over and over

    def covers(self, request: str, sub: str) -> bool:
        """Whether it constrains devices of this request; `sub` is "req/sub", or the request's name again."""
        return not self.requests or request in self.requests or sub in self.requests

    def add(self, device: Device) -> bool:
        """Add the device; False, and nothing changes, when it breaks the constraint."""
        values = self._values.get(device)
        if values is None:
            values = self._values[device] = device.values(self.attribute)
        if not values:
            return False
        if self.distinct:
            if not self._seen.isdisjoint(values):
                return False
            self._seen |= values
            return True
        common = values & self._common[-1] if self._common else values
        if not common:
            return False
        self._common.append(common)
        return True

    def remove(self, device: Device) -> None:
        """Undo the latest `add` of this device."""
        if self.distinct:
            self._seen -= self._values[device]
        else:
            self._common.pop()

    @property
    def name(self) -> str:
        """As a claim's author knows it."""
        return f"{'distinctAttribute' if self.distinct else 'matchAttribute'} {self.attribute}"

    @property
    def complete(self) -> bool:
        return True

    def required(self) -> frozenset[Value] | None:
        """The values of which the next device must have one; None when any device does."""
        return self._common[-1] if self._common and not self.distinct else None


class Counts:
    """Of one request: exactly so many devices with each of these values of an attribute."""

    __slots__ = ("_left", "attribute", "counts", "request")

    def __init__(self, request: str, attribute: str, counts: Iterable[tuple[Values, int]]) -> None:
        self.request = request
        self.attribute = attribute
        self.counts = dict(counts)
        self._left = dict(self.counts)

    @property
    def name(self) -> str:
        return f"{names.ALIGN} {self.attribute}"

    @property
    def complete(self) -> bool:
        """Whether the devices so far are all of them."""
        return not any(self._left.values())

    def covers(self, request: str, sub: str) -> bool:
        """As Constraint's."""
        return request == self.request

    def add(self, device: Device) -> bool:
        """Add the device; False, and nothing changes, when there are enough with its values."""
        values = device.values(self.attribute)
        left = self._left.get(values, 0)
        if not left:
            return False
        self._left[values] = left - 1
        return True

    def remove(self, device: Device) -> None:
        """Undo the latest `add` of this device."""
        self._left[device.values(self.attribute)] += 1


def add_all(constraints: Sequence[Constraint | Counts], device: Device) -> bool:
    """Add the device to every constraint, or to none."""
    for number, constraint in enumerate(constraints):
        if not constraint.add(device):
            for earlier in reversed(constraints[:number]):
                earlier.remove(device)
            return False
    return True
