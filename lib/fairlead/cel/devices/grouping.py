"""Groups of devices that agree on everything that a selector reads; one evaluation per group is enough.

A device's group is the number of its tuple of keys (device.py) at the places that the selector reads. Nothing is evaluated
here. Example: a selector that reads `memory` puts 100,000 devices of 32 models into at most 32 groups.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Sequence
from typing import Any

from fairlead.cel.device import DeviceView, Layout
from fairlead.cel.devices.reads import Read

Pick = Callable[[tuple[Any, ...]], Any]


class _Numbering(dict[Any, int]):
    """Numbers keys in the order of their first appearance."""

    def __missing__(self, key: Any) -> int:
        self[key] = number = len(self)
        return number


class _Picks(dict[Layout, Pick]):
    """The functions from a device's keys to those that the selector reads, one for each layout."""

    def __init__(self, reads: frozenset[Read]) -> None:
        self.reads = sorted(reads)

    def __missing__(self, layout: Layout) -> Pick:
        positions = layout.positions
        if all(read.name or read.field not in {"attributes", "capacity"} for read in self.reads):
            places = [positions.get((read.field, read.domain, read.name), -1) for read in self.reads]
            pick: Pick = operator.itemgetter(*places) if places else _nothing
        else:
            pick = _pick_maps(positions, self.reads)
        self[layout] = pick
        return pick


def _nothing(_: tuple[Any, ...]) -> None:
    return None


def _pick_maps(positions: dict[tuple[str, str, str], int], reads: list[Read]) -> Pick:
    """The function for selectors that read whole maps: the names are part of the key as well as the values."""
    wanted = sorted(
        (place, position)
        for place, position in positions.items()
        if any(
            place[0] == read.field and read.domain in {"", place[1]} and read.name in {"", place[2]} for read in reads
        )
    )
    names = tuple(place for place, _ in wanted)
    places = [position for _, position in wanted]
    return lambda keys: (names, *[keys[place] for place in places])


class Grouping:
    """The group of each row for one set of reads, and one device of each group.

    `groups` is replaced by `update`, never changed in place; group numbers stay valid.
    """

    __slots__ = ("_numbering", "_picks", "examples", "groups", "version")

    def __init__(
        self, reads: frozenset[Read], rows: Sequence[DeviceView], layouts: Collection[Layout], version: int
    ) -> None:
        """`layouts` are those that occur in the rows; `version` is the table's, for the table's use."""
        self._picks, self._numbering = _Picks(reads), _Numbering()
        self.version = version
        keys = [row.keys for row in rows]
        if len(layouts) == 1:
            picked = map(self._picks[next(iter(layouts))], keys)
        else:
            picked = map(operator.call, map(self._picks.__getitem__, [row.layout for row in rows]), keys)
        self.groups = list(map(self._numbering.__getitem__, picked))
        self.examples: list[DeviceView] = []
        row = 0
        for group in range(len(self._numbering)):  # groups appear in this order, so one pass finds them all
            row = self.groups.index(group, row)
            self.examples.append(rows[row])

    def update(self, rows: Sequence[DeviceView], changed: Sequence[int], version: int) -> None:
        """Follows the rows that changed, ascending; new rows are among them."""
        groups = self.groups.copy()
        for row in changed:
            view = rows[row]
            group = self._numbering[self._picks[view.layout](view.keys)]
            if group == len(self.examples):
                self.examples.append(view)
            if row < len(groups):
                groups[row] = group
            else:
                groups.append(group)
        self.groups = groups
        self.version = version
