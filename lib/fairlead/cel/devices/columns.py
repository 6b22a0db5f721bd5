"""A table of devices, and the verdict of a selector on every row as a mask.

A selector is evaluated once per group of rows that agree on what it reads (grouping.py), and a row's verdict is its group's:
100,000 devices of 32 models take at most 32 evaluations of a selector on the model. Groupings and masks are computed on first
use and then follow the rows that change.

Invariants: a Mask never changes; without changes of rows `mask` returns the same object. A new selector costs O(rows), a
change O(changed rows) and one copy of the mask. A free row matches nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final

from fairlead.cel.device import FREE, DeviceView, Layout
from fairlead.cel.devices.grouping import Grouping
from fairlead.cel.devices.reads import Read
from fairlead.cel.devices.selector import Outcome, Selector, Verdict
from fairlead.cel.errors import EvaluationError

NO: Final = 0
YES: Final = 1
FAILED: Final = 2
_OUTCOMES: Final = (Outcome.NO_MATCH, Outcome.MATCH, Outcome.ERROR)

# The least recently used masks and groupings beyond these are dropped; those older than the journal are computed again.
MASKS_MAX: Final = 1024
GROUPINGS_MAX: Final = 256
JOURNAL_MAX: Final = 65_536


@dataclass(frozen=True, slots=True, eq=False)
class Mask:
    """One byte per row: NO, YES or FAILED."""

    codes: bytes
    groups: Sequence[int] = field(repr=False)  # of each row: rows of a group have their verdict from one evaluation
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


@dataclass(slots=True)
class _Evaluated:
    """A selector's verdicts by group, and the mask that follows from them."""

    codes: bytearray
    reasons: list[str | None]
    mask: Mask
    grouping: Grouping
    version: int


class DeviceTable:
    """Rows of devices. `add`, `replace` and `remove` only record the change; `mask` evaluates."""

    def __init__(self) -> None:
        self._rows: list[DeviceView] = []
        self._free: list[int] = []
        self._faults: dict[int, str] = {}
        self._layouts: dict[Layout, int] = {}
        self._journal: list[int] = []
        self._forgotten = 0  # changes that the journal no longer holds
        self._groupings: dict[frozenset[Read], Grouping] = {}
        self._evaluated: dict[str, _Evaluated] = {}

    # Rows

    def __len__(self) -> int:
        """Rows, free ones included."""
        return len(self._rows)

    def __getitem__(self, row: int) -> DeviceView:
        """The device of a row. Raises KeyError for a free row."""
        view = self._rows[row]
        if view is FREE:
            raise KeyError(row)
        return view

    def add(self, view: DeviceView) -> int:
        """Adds the device. Returns its row, the lowest free one."""
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
        """The rows changed since the version, ascending.

        None if the journal does not reach back so far, or if they are more than a quarter of the table, where starting over is cheaper.
        """
        if version < self._forgotten:
            return None
        changed = set(self._journal[version - self._forgotten :])
        return sorted(changed) if len(changed) * 4 <= len(self._rows) + 64 else None

    def _grouping(self, reads: frozenset[Read]) -> Grouping:
        grouping = self._groupings.pop(reads, None)
        changed = [] if grouping is None else self._changed(grouping.version)
        if grouping is None or changed is None or len(grouping.examples) > len(self._rows) + 1024:
            grouping = Grouping(reads, self._rows, self._layouts, self._version)
        elif grouping.version != self._version:
            grouping.update(self._rows, changed, self._version)
        self._groupings[reads] = grouping
        if len(self._groupings) > GROUPINGS_MAX:
            del self._groupings[next(iter(self._groupings))]
        return grouping

    # Masks

    def mask(self, selector: Selector) -> Mask:
        """The selector's verdict on every row."""
        known = self._evaluated.pop(selector.text, None)
        if known is None or known.version != self._version:
            grouping = self._grouping(selector.reads)
            changed = None if known is None or known.grouping is not grouping else self._changed(known.version)
            if known is None or changed is None:
                known = self._evaluate(selector, grouping)
            else:
                self._update(known, selector, changed)
        self._evaluated[selector.text] = known
        if len(self._evaluated) > MASKS_MAX:
            del self._evaluated[next(iter(self._evaluated))]
        return known.mask

    def _evaluate(self, selector: Selector, grouping: Grouping) -> _Evaluated:
        codes, reasons = bytearray(), list[str | None]()
        _evaluate_groups(selector, grouping.examples, codes, reasons)
        groups = grouping.groups
        # A table of bytes is translated ten times faster than it is looked up.
        if len(codes) <= 256:
            verdicts = bytearray(bytes(groups).translate(bytes(codes).ljust(256, b"\0")))
        else:
            verdicts = bytearray(map(codes.__getitem__, groups))
        _override(verdicts, self._free, self._faults)
        mask = Mask(bytes(verdicts), groups, tuple(reasons), dict(self._faults))
        return _Evaluated(codes, reasons, mask, grouping, self._version)

    def _update(self, known: _Evaluated, selector: Selector, changed: list[int]) -> None:
        grouping = known.grouping
        _evaluate_groups(selector, grouping.examples[len(known.codes) :], known.codes, known.reasons)
        verdicts = bytearray(known.mask.codes)
        verdicts.extend(bytes(len(self._rows) - len(verdicts)))
        for row in changed:
            verdicts[row] = known.codes[grouping.groups[row]]
        free = [row for row in changed if self._rows[row] is FREE]
        _override(verdicts, free, {row: self._faults[row] for row in changed if row in self._faults})
        reasons = known.mask.reasons if len(known.mask.reasons) == len(known.reasons) else tuple(known.reasons)
        known.mask = Mask(bytes(verdicts), grouping.groups, reasons, dict(self._faults))
        known.version = self._version


def _override(verdicts: bytearray, free: Sequence[int], faults: dict[int, str]) -> None:
    for row in free:
        verdicts[row] = NO
    for row in faults:
        verdicts[row] = FAILED


def _evaluate_groups(
    selector: Selector, views: Sequence[DeviceView], codes: bytearray, reasons: list[str | None]
) -> None:
    """Appends a code and a reason for each view. A device's own fault is not here but on its row (`_override`)."""
    for view in views:
        try:
            codes.append(YES if selector.evaluate(view) else NO)
            reasons.append(None)
        except EvaluationError as error:
            codes.append(FAILED)
            reasons.append(error.message)
