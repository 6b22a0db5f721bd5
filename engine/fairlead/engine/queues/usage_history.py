"""What each queue held in the past, remembered with a half-life: by flavor, as a part of the cluster, between 0 and 1.

It corrects the queues' weights. It outlives the controller: it is written to Queue status and read back from there. Pure: time
and what the queues hold are arguments, and the controller writes. The average is that of Kueue's admission fair sharing.
From one `note` to the next a queue counts as holding what it held at the first; `tick`, called often, keeps count meanwhile.
A clock that goes back changes nothing; one that jumps ahead counts as `GAP_MAX_S` at most. The time in which no
controller ran counts as one half-life at most, with what is held when the next one starts: nothing need be written at exit.
Writes: one per queue and `WRITE_S` at most, and only where a part changed by `MATERIAL`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from fairlead.engine.types.plan import FlavorTotal, QueueUse
from fairlead.engine.types.settings import QueueSpec

GAP_MAX_S = 600.0
WRITE_S = 60.0
MATERIAL = 0.001
KEPT = 1e-6  # less than this of the cluster is forgotten


def decayed(past: float, current: float, *, elapsed_s: float, half_life_s: float) -> float:
    """The average after `elapsed_s` of holding `current`. A clock that went back changes nothing; 0 forgets at once."""
    if half_life_s <= 0:
        return current
    if elapsed_s <= 0:
        return past
    kept: float = 0.5 ** (elapsed_s / half_life_s)
    return past * kept + current * (1 - kept)


def weighed(past: Mapping[str, float], given: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """One number for what a queue used, over all flavors: `past`, and what it was `given` since, which counts at once.

    A flavor without weight counts fully; one of weight 0 or less makes any use infinite, never a NaN.
    """
    whole = 0.0
    for flavor in sorted(past.keys() | given.keys()):
        used = past.get(flavor, 0.0) + given.get(flavor, 0.0)
        weight = weights.get(flavor, 1.0)
        if used > 0:
            whole += used / weight if weight > 0 else float("inf")
    return whole


@dataclass(frozen=True, slots=True)
class RememberedUsage:
    """What a queue's status says, or should say: parts by flavor, as of `at` (unix seconds; 0: it never said anything)."""

    parts: Mapping[str, float]
    at: float


@dataclass(slots=True)
class _QueueUsage:
    past: dict[str, float]
    at: float
    written: RememberedUsage
    held: dict[str, float] = field(default_factory=dict)
    restored: bool = True  # no use was noted since it was read back


class UsageHistory:
    """One per term of leadership. Queues are known by UID: one that is recreated begins without a past."""

    def __init__(self, half_life_s: float) -> None:
        self.half_life_s = half_life_s
        self._queues: dict[str, _QueueUsage] = {}
        self._restored: Mapping[str, RememberedUsage] | None = None
        self._names: dict[str, str] = {}  # UID: name
        self._ticked = float("-inf")
        self._shown: tuple[tuple[QueueSpec, ...], float, tuple[QueueSpec, ...]] | None = None

    def restore(self, remembered: Mapping[str, RememberedUsage]) -> None:
        """By UID what the status of every queue says; read once for each. Queues that are gone are forgotten."""
        if remembered is self._restored:
            return
        self._restored = remembered
        for uid in [uid for uid in self._queues if uid not in remembered]:
            del self._queues[uid]
        for uid, written in remembered.items():
            if uid not in self._queues:
                self._queues[uid] = _QueueUsage(past=dict(written.parts), at=written.at, written=written)
                self._shown = None

    def note(
        self, specs: Iterable[QueueSpec], uses: Iterable[QueueUse], totals: Iterable[FlavorTotal], now: float
    ) -> None:
        whole = {total.flavor: float(total.total) for total in totals if total.total}
        uids = {spec.name: spec.uid for spec in specs}
        self._names = {uid: name for name, uid in uids.items()}
        for use in uses:
            queue = self._queues.get(uids.get(use.name, ""))
            if queue is None:
                continue
            held = {each.flavor: float(each.used) / whole[each.flavor] for each in use.flavors if each.flavor in whole}
            if queue.restored:
                queue.held, queue.restored = held, False
                self._advance(queue, now, self.half_life_s)
            else:
                self._advance(queue, now, GAP_MAX_S)
                queue.held = held

    def _advance(self, queue: _QueueUsage, now: float, most_s: float) -> None:
        elapsed_s = min(now - queue.at, most_s) if queue.at else 0.0
        queue.at = now
        if elapsed_s <= 0:
            return
        for flavor in sorted(queue.past.keys() | queue.held.keys()):
            past, held = queue.past.get(flavor, 0.0), queue.held.get(flavor, 0.0)
            value = decayed(past, held, elapsed_s=elapsed_s, half_life_s=self.half_life_s)
            if value > KEPT:
                queue.past[flavor] = value
            else:
                queue.past.pop(flavor, None)

    def with_past_usage(self, specs: tuple[QueueSpec, ...], now: float) -> tuple[QueueSpec, ...]:
        """The queues with their past. The same tuple for `WRITE_S`, so that decisions need not look at all of it again."""
        if self._shown is not None and self._shown[0] is specs and 0 <= now - self._shown[1] < WRITE_S:
            return self._shown[2]
        specs_with_past = []
        for spec in specs:
            queue = self._queues.get(spec.uid)
            past = {} if queue is None else {flavor: round(part, 3) for flavor, part in sorted(queue.past.items())}
            specs_with_past.append(spec if spec.past_usage == past else replace(spec, past_usage=past))
        self._shown = (specs, now, tuple(specs_with_past))
        return self._shown[2]

    def tick(self, now: float) -> list[str]:
        """Bring all up to date, at most once in `WRITE_S`; returns the names of those whose status is to be written."""
        if 0 <= now - self._ticked < WRITE_S:
            return []
        self._ticked = now
        for queue in self._queues.values():
            if not queue.restored:
                self._advance(queue, now, GAP_MAX_S)
        return sorted(self._names[uid] for uid, queue in self._queues.items() if self._due(queue, now))

    def _due(self, queue: _QueueUsage, now: float) -> bool:
        if queue.restored or 0 <= now - queue.written.at < WRITE_S:
            return False
        past, before = queue.past, queue.written.parts
        return any(abs(past.get(f, 0.0) - before.get(f, 0.0)) >= MATERIAL for f in past.keys() | before.keys())

    def to_write(self, uid: str, now: float) -> RememberedUsage | None:
        """What the queue's status should say: what it says already, until enough has changed for a write."""
        queue = self._queues.get(uid)
        if queue is None:
            return None
        if not self._due(queue, now):
            return queue.written
        return RememberedUsage(
            parts={flavor: round(part, 6) for flavor, part in sorted(queue.past.items())}, at=queue.at
        )

    def written(self, uid: str, remembered: RememberedUsage) -> None:
        queue = self._queues.get(uid)
        if queue is not None:
            queue.written = remembered
