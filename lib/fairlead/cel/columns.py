"""A table of devices, and the verdict of a selector on every row.

Exists because 100,000 devices are of few kinds: a selector is evaluated once per distinct tuple of what it reads (a
group), and a row's verdict is its group's. Grouping runs over the devices' keys (device.py) without evaluating anything;
groupings and masks are made when first asked for and then follow the rows that change. The table knows no pools, no nodes.

Keeps: a Mask never changes after it was given out; asked again without changes it is the same object. A new selector
costs O(rows), a change O(changed rows) and one copy of the mask. A free row matches nothing.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, Final

from fairlead.cel.device import FREE, DeviceView, Layout
from fairlead.cel.errors import EvaluationError
from fairlead.cel.reads import Read
from fairlead.cel.selector import Outcome, Selector, Verdict

NO: Final = 0
YES: Final = 1
FAILED: Final = 2
_OUTCOMES: Final = (Outcome.NO_MATCH, Outcome.MATCH, Outcome.ERROR)

# The least recently asked masks and groupings beyond these are dropped; what is older than the journal is made anew.
MASKS_MAX: Final = 1024
GROUPINGS_MAX: Final = 256
JOURNAL_MAX: Final = 65_536


@dataclass(frozen=True, slots=True, eq=False)
class Mask:
    """One byte per row: NO, YES or FAILED."""

    codes: bytes
    groups: Sequence[int] = field(repr=False)  # of each row: rows of a group got their verdict from one evaluation
    reasons: Sequence[str | None] = field(repr=False)  # of each group
    faults: dict[int, str] = field(repr=False)  # of rows whose device cannot be read at all

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, row: int) -> Verdict:
        """The verdict of a row, with the reason if it failed."""
        code = self.codes[row]
        if code != FAILED:
            return Verdict(_OUTCOMES[code])
        return Verdict(Outcome.ERROR, self.faults.get(row) or self.reasons[self.groups[row]])

    def rows(self, code: int = YES) -> Iterator[int]:
        """The rows of that code, ascending."""
        wanted, row = bytes((code,)), -1
        while (row := self.codes.find(wanted, row + 1)) >= 0:
            yield row

    def count(self, code: int = YES) -> int:
        return self.codes.count(bytes((code,)))


class _Numbering(dict[Any, int]):
    """Numbers keys in the order of their first appearance."""

    def __missing__(self, key: Any) -> int:
        self[key] = number = len(self)
        return number


Pick = Callable[[tuple[Any, ...]], Any]


class _Picks(dict[Layout, Pick]):
    """Per layout, how to take from a device's keys what a selector reads."""

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
    """For selectors that look at whole maps: the names count as well as the values."""
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


@dataclass(slots=True)
class _Grouping:
    """Which rows agree on some reads. `groups` is replaced, never changed; `examples` has one device per group."""

    picks: _Picks
    numbering: _Numbering
    groups: list[int]
    examples: list[DeviceView]
    version: int


@dataclass(slots=True)
class _Judged:
    """A selector's verdicts: by group, and the mask that follows from them."""

    codes: bytearray
    reasons: list[str | None]
    mask: Mask
    grouping: _Grouping
    version: int


class DeviceTable:
    """Rows of devices. `add`, `replace` and `remove` are cheap; `mask` does the work."""

    def __init__(self) -> None:
        self._rows: list[DeviceView] = []
        self._free: list[int] = []
        self._faults: dict[int, str] = {}
        self._layouts: dict[Layout, int] = {}
        self._journal: list[int] = []
        self._forgotten = 0  # changes that the journal no longer holds
        self._groupings: dict[frozenset[Read], _Grouping] = {}
        self._judged: dict[str, _Judged] = {}

    # Rows

    def __len__(self) -> int:
        """Rows, free ones included."""
        return len(self._rows)

    def __getitem__(self, row: int) -> DeviceView:
        """The device of a row. Raises KeyError when it is free."""
        view = self._rows[row]
        if view is FREE:
            raise KeyError(row)
        return view

    def add(self, view: DeviceView) -> int:
        """The row that the device now has: the lowest free one."""
        if self._free:
            row = heappop(self._free)
        else:
            row = len(self._rows)
            self._rows.append(FREE)
        self._put(row, view)
        return row

    def replace(self, row: int, view: DeviceView) -> None:
        _ = self[row]
        self._put(row, view)

    def remove(self, row: int) -> None:
        _ = self[row]
        self._put(row, FREE)
        heappush(self._free, row)

    def _put(self, row: int, view: DeviceView) -> None:
        before = self._rows[row].layout
        self._rows[row] = view
        if view.fault is not None:
            self._faults[row] = view.fault
        elif self._faults:
            self._faults.pop(row, None)
        self._layouts[view.layout] = self._layouts.get(view.layout, 0) + 1
        if before in self._layouts:
            self._layouts[before] -= 1
            if not self._layouts[before]:
                del self._layouts[before]
        self._journal.append(row)
        if len(self._journal) > JOURNAL_MAX:
            self._forgotten += len(self._journal)
            self._journal.clear()

    @property
    def _version(self) -> int:
        return self._forgotten + len(self._journal)

    def _changed(self, version: int) -> list[int] | None:
        """The rows changed since, ascending; None if that is too long ago to tell, or too many to be worth it."""
        if version < self._forgotten:
            return None
        changed = set(self._journal[version - self._forgotten :])
        return sorted(changed) if len(changed) * 4 <= len(self._rows) + 64 else None

    # Groupings

    def _grouping(self, reads: frozenset[Read]) -> _Grouping:
        grouping = self._groupings.pop(reads, None)
        if grouping is None or len(grouping.examples) > len(self._rows) + 1024:
            grouping = self._group(_Picks(reads))
        elif grouping.version != self._version:
            changed = self._changed(grouping.version)
            if changed is None:
                grouping = self._group(_Picks(reads))
            else:
                self._regroup(grouping, changed)
        self._groupings[reads] = grouping
        if len(self._groupings) > GROUPINGS_MAX:
            del self._groupings[next(iter(self._groupings))]
        return grouping

    def _group(self, picks: _Picks) -> _Grouping:
        rows, numbering = self._rows, _Numbering()
        keys = [row.keys for row in rows]
        if len(self._layouts) == 1:
            picked = map(picks[next(iter(self._layouts))], keys)
        else:
            picked = map(operator.call, map(picks.__getitem__, [row.layout for row in rows]), keys)
        groups = list(map(numbering.__getitem__, picked))
        examples, row = [], 0
        for group in range(len(numbering)):  # groups appear in this order, so one pass finds them all
            row = groups.index(group, row)
            examples.append(rows[row])
        return _Grouping(picks, numbering, groups, examples, self._version)

    def _regroup(self, grouping: _Grouping, changed: list[int]) -> None:
        groups = grouping.groups.copy()
        for row in changed:
            view = self._rows[row]
            group = grouping.numbering[grouping.picks[view.layout](view.keys)]
            if group == len(grouping.examples):
                grouping.examples.append(view)
            if row < len(groups):
                groups[row] = group
            else:
                groups.append(group)
        grouping.groups = groups
        grouping.version = self._version

    # Masks

    def mask(self, selector: Selector) -> Mask:
        """The selector's verdict on every row."""
        judged = self._judged.pop(selector.text, None)
        if judged is None or judged.version != self._version:
            grouping = self._grouping(selector.reads)
            changed = self._changed(judged.version) if judged is not None and judged.grouping is grouping else None
            if judged is None or changed is None:
                judged = self._judge(selector, grouping)
            else:
                self._judge_again(judged, selector, changed)
        self._judged[selector.text] = judged
        if len(self._judged) > MASKS_MAX:
            del self._judged[next(iter(self._judged))]
        return judged.mask

    def _judge(self, selector: Selector, grouping: _Grouping) -> _Judged:
        codes, reasons = bytearray(), list[str | None]()
        _evaluate(selector, grouping.examples, codes, reasons)
        groups = grouping.groups
        # A table of bytes is translated ten times faster than it is looked up.
        if len(codes) <= 256:
            verdicts = bytearray(bytes(groups).translate(bytes(codes).ljust(256, b"\0")))
        else:
            verdicts = bytearray(map(codes.__getitem__, groups))
        _override(verdicts, self._free, self._faults)
        mask = Mask(bytes(verdicts), groups, tuple(reasons), dict(self._faults))
        return _Judged(codes, reasons, mask, grouping, self._version)

    def _judge_again(self, judged: _Judged, selector: Selector, changed: list[int]) -> None:
        grouping = judged.grouping
        _evaluate(selector, grouping.examples[len(judged.codes) :], judged.codes, judged.reasons)
        verdicts = bytearray(judged.mask.codes)
        verdicts.extend(bytes(len(self._rows) - len(verdicts)))
        for row in changed:
            verdicts[row] = judged.codes[grouping.groups[row]]
        free = [row for row in changed if self._rows[row] is FREE]
        _override(verdicts, free, {row: self._faults[row] for row in changed if row in self._faults})
        same = len(judged.mask.reasons) == len(judged.reasons)
        reasons = judged.mask.reasons if same else tuple(judged.reasons)
        judged.mask = Mask(bytes(verdicts), grouping.groups, reasons, dict(self._faults))
        judged.version = self._version


def _override(verdicts: bytearray, free: Sequence[int], faults: dict[int, str]) -> None:
    for row in free:
        verdicts[row] = NO
    for row in faults:
        verdicts[row] = FAILED


def _evaluate(selector: Selector, views: Sequence[DeviceView], codes: bytearray, reasons: list[str | None]) -> None:
    """A device's own fault is put on its row, not on its group."""
    for view in views:
        try:
            codes.append(YES if selector.evaluate(view) else NO)
            reasons.append(None)
        except EvaluationError as error:
            codes.append(FAILED)
            reasons.append(error.message)
