"""What each queue held in the past, remembered with a half-life: by flavor, as a part of the cluster, between 0 and 1.

Exists so that a queue that used much comes later, and that this outlives the controller: what is remembered stands in Queue
status, and is taken up again from there. Pure; the rim says when (`now`) and what the queues hold, and writes.
From one `note` to the next a queue counts as holding what it held at the first; `tick`, called often, keeps count meanwhile.
A clock that goes back changes nothing; one that jumps ahead counts as `GAP_MAX_S` at most, and the time in which no
controller looked as one half-life at most, with what is held when one looks again: so nothing need be written on the way
out. Writes: one per queue and `WRITE_S` at most, and only where a part changed by `MATERIAL`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from fairlead.engine.queues.past_usage import decayed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fairlead.engine.types.plan import FlavorTotal, QueueUse
    from fairlead.engine.types.settings import QueueSpec

GAP_MAX_S = 600.0
WRITE_S = 60.0
MATERIAL = 0.001
KEPT = 1e-6  # less than this of the cluster is forgotten


@dataclass(frozen=True, slots=True)
class RememberedUsage:
    """What a queue's status says, or should say: parts by flavor, as of `at` (unix seconds; 0: nothing was ever said)."""

    parts: Mapping[str, float]
    at: float


@dataclass(slots=True)
class _Line:
    past: dict[str, float]
    at: float
    written: RememberedUsage
    held: dict[str, float] = field(default_factory=dict)
    restored: bool = True  # nobody has looked since it was read back


class UsageHistory:
    """One per term of leadership. Queues are known by UID: one that is made anew begins anew."""

    def __init__(self, half_life_s: float) -> None:
        self.half_life_s = half_life_s
        self._lines: dict[str, _Line] = {}
        self._restored: Mapping[str, RememberedUsage] | None = None
        self._names: dict[str, str] = {}  # UID: name
        self._ticked = float("-inf")
        self._shown: tuple[tuple[QueueSpec, ...], float, tuple[QueueSpec, ...]] | None = None

    def restore(self, remembered: Mapping[str, RememberedUsage]) -> None:
        """By UID what the status of every queue says; heard once of each. Queues that are gone are forgotten."""
        if remembered is self._restored:
            return
        self._restored = remembered
        for uid in [uid for uid in self._lines if uid not in remembered]:
            del self._lines[uid]
        for uid, said in remembered.items():
            if uid not in self._lines:
                self._lines[uid] = _Line(past=dict(said.parts), at=said.at, written=said)
                self._shown = None

    def note(
        self, specs: Iterable[QueueSpec], uses: Iterable[QueueUse], totals: Iterable[FlavorTotal], now: float
    ) -> None:
        """What the queues hold from now on."""
        whole = {total.flavor: float(total.total) for total in totals if total.total}
        uids = {spec.name: spec.uid for spec in specs}
        self._names = {uid: name for name, uid in uids.items()}
        for use in uses:
            line = self._lines.get(uids.get(use.name, ""))
            if line is None:
                continue
            held = {each.flavor: float(each.used) / whole[each.flavor] for each in use.flavors if each.flavor in whole}
            if line.restored:
                line.held, line.restored = held, False
                self._advance(line, now, self.half_life_s)
            else:
                self._advance(line, now, GAP_MAX_S)
                line.held = held

    def _advance(self, line: _Line, now: float, most_s: float) -> None:
        elapsed_s = min(now - line.at, most_s) if line.at else 0.0
        line.at = now
        if elapsed_s <= 0:
            return
        for flavor in sorted(line.past.keys() | line.held.keys()):
            past, held = line.past.get(flavor, 0.0), line.held.get(flavor, 0.0)
            value = decayed(past, held, elapsed_s=elapsed_s, half_life_s=self.half_life_s)
            if value > KEPT:
                line.past[flavor] = value
            else:
                line.past.pop(flavor, None)

    def tell(self, specs: tuple[QueueSpec, ...], now: float) -> tuple[QueueSpec, ...]:
        """The queues with their past. The same tuple for `WRITE_S`, so that decisions need not look at all of it again."""
        if self._shown is not None and self._shown[0] is specs and 0 <= now - self._shown[1] < WRITE_S:
            return self._shown[2]
        told = []
        for spec in specs:
            line = self._lines.get(spec.uid)
            past = {} if line is None else {flavor: round(part, 3) for flavor, part in sorted(line.past.items())}
            told.append(spec if spec.past_usage == past else replace(spec, past_usage=past))
        self._shown = (specs, now, tuple(told))
        return self._shown[2]

    def tick(self, now: float) -> list[str]:
        """Bring all up to date, at most once in `WRITE_S`; returns the names of those whose status is to be written."""
        if 0 <= now - self._ticked < WRITE_S:
            return []
        self._ticked = now
        for line in self._lines.values():
            if not line.restored:
                self._advance(line, now, GAP_MAX_S)
        return sorted(self._names[uid] for uid, line in self._lines.items() if self._due(line, now))

    def _due(self, line: _Line, now: float) -> bool:
        if line.restored or 0 <= now - line.written.at < WRITE_S:
            return False
        past, before = line.past, line.written.parts
        return any(abs(past.get(f, 0.0) - before.get(f, 0.0)) >= MATERIAL for f in past.keys() | before.keys())

    def standing(self, uid: str, now: float) -> RememberedUsage | None:
        """What the queue's status should say: what stands there, until there is something new worth a write."""
        line = self._lines.get(uid)
        if line is None:
            return None
        if not self._due(line, now):
            return line.written
        return RememberedUsage(parts={flavor: round(part, 6) for flavor, part in sorted(line.past.items())}, at=line.at)

    def wrote(self, uid: str, remembered: RememberedUsage) -> None:
        """It stands in the queue's status."""
        line = self._lines.get(uid)
        if line is not None:
            line.written = remembered
