"""A log of what changed, in order, without the oldest entries.

What a decision derived for a node holds until that node is in the log. A reader keeps a cursor; a reader that is too far
behind gets None and reads everything again.
"""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")
KEPT_MAX = 200_000


class ChangeLog(Generic[T]):
    __slots__ = ("_entries", "_start")

    def __init__(self) -> None:
        self._entries: list[T] = []
        self._start = 0

    @property
    def cursor(self) -> int:
        return self._start + len(self._entries)

    def note(self, entry: T) -> None:
        self._entries.append(entry)
        if len(self._entries) > KEPT_MAX:
            half = KEPT_MAX // 2
            del self._entries[:half]
            self._start += half

    def note_all(self) -> None:
        """Everything may have changed: every reader is too far behind."""
        self._start += len(self._entries) + 1
        self._entries.clear()

    def since(self, cursor: int) -> list[T] | None:
        """What changed after the cursor; None: everything may have."""
        return None if cursor < self._start else self._entries[cursor - self._start :]
