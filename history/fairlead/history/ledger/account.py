"""The account: intervals made of what the leader sees. Pure: all times are given.

A claim's time is exact, from its `allocationTimestamp` to when its deallocation was seen. What happened while no leader looked is
known where it can be: a claim that is still allocated was held all the while; one that is not was held until a recorded decision saw it gone; where no other replica can have led, what was free stayed
free. All else is `unknown`, until the next thing that is known.
Example: as of 10:00 GPU a is held by c1 and b is free; the next leader looks at 10:05 and sees a free, b held by c2, allocated at 10:02.
a: unknown 10:00–10:05. b, where no other leader can have been: free 10:00–10:02, held by c2 from then on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial

from fairlead.history.ledger.entries import (
    WHOLE_PPM,
    Batch,
    Bucket,
    ClaimEnded,
    ClaimSeen,
    Decision,
    Gap,
    Interval,
    Kept,
    Measure,
    Observation,
    PartSeen,
    Sampled,
    Unit,
    UnitSeen,
    UsageSeen,
    Wait,
)
from fairlead.history.ledger.pod_account import PodAccount
from fairlead.history.ledger.timeline import UNHELD, Book, Part, Timeline
from fairlead.kube.timestamps import DAY_US

# In which order changes of one instant are made: what ends makes room for what begins.
_MIDNIGHT, _ENDED, _HELD, _SAMPLED, _SEEN = range(5)
_Phase = tuple[int, Bucket]  # when a held device came into it
_Change = tuple[int, int, int, Callable[[], None]]  # when, order, sequence


def _none_known(claims: frozenset[str]) -> Mapping[str, int]:
    return {}


class Account:
    """`resume` first, with everything that is there; then `observe` what changes, and `take` what is to be written."""

    def __init__(self, kept: Kept) -> None:
        self.as_of_us = kept.as_of_us
        self._book = Book(kept.next_number)
        self._book.restore(kept.open)
        self._units: dict[Unit, Timeline] = {}
        self._claims: dict[str, int] = {}  # UID: when it was allocated
        self._of_claim: dict[str, set[Unit]] = {}
        self._lost: list[tuple[str, int]] = []
        self._gaps: list[Gap] = []
        self._waits: list[Wait] = []
        self._decisions: list[Decision] = []
        self._pods = PodAccount(kept.pods)
        for number, interval in kept.open.items():
            self._restore(number, interval)

    def _restore(self, number: int, interval: Interval) -> None:
        unit = self._units.get(interval.unit)
        if unit is None:
            whole = _whole(interval.measure)
            unit = self._units[interval.unit] = Timeline(
                interval.unit, interval.node, whole, "unknown", interval.start_us
            )
        unit.since_us = max(unit.since_us, interval.start_us)
        allocation = interval.allocation
        if allocation is None:
            unit.vacancy, unit.whole = interval.bucket, _whole(interval.measure)
            unit.rows[UNHELD] = number
            return
        part = Part(allocation, interval.device, interval.measure, interval.bucket, interval.start_us)
        if interval.sampled.sampled_us:
            part.sampled_us = self.as_of_us
        self._add(unit, part)
        unit.rows[part.key] = number

    # -- a term begins ---------------------------------------------------------------------------------------------

    def resume(
        self,
        seen: Observation,
        *,
        sole: bool,
        reason: str = "no leader wrote the ledger",
        ends: Callable[[frozenset[str]], Mapping[str, int]] = _none_known,
    ) -> None:
        """`seen` has every unit and every allocated claim. `sole`: no other replica can have led since the ledger was written last.

        `ends`: of claims (UIDs) that are gone, when they ended, as far as that is known otherwise; asked where there are any.
        """
        before_us = self.as_of_us
        if before_us is None:
            before_us = self.as_of_us = seen.now_us
        held = {(each.allocation.claim_uid, each.allocation.allocated_us) for each in seen.claims}
        present = {each.unit for each in seen.units}
        vanished = frozenset(uid for uid, at_us in self._claims.items() if (uid, at_us) not in held)
        ended = {uid: at_us for uid, at_us in (ends(vanished) if vanished else {}).items() if at_us > before_us}
        unknown = False
        for name, unit in list(self._units.items()):
            unit.since_us = max(unit.since_us, before_us)
            if name not in present:
                self._drop(unit, before_us)
                continue
            gone = [part for part in unit.parts.values() if part.key[:2] not in held]
            for part in gone:
                if part.allocation.claim_uid not in ended:
                    self._remove(unit, part)
            if gone or not sole:
                unit.vacancy = "unknown"
                unit.settle(self._book, before_us, "Unknown")
                unknown = True
        self._pods.resume(before_us, seen.pods, seen.pods_ended, max(seen.now_us, before_us))
        if unknown and seen.now_us > before_us:
            self._gaps.append(Gap(start_us=before_us, end_us=seen.now_us, reason=reason))
        told = (
            ClaimEnded(claim_uid=uid, at_us=min(at_us, seen.now_us), ended_by="Unknown")
            for uid, at_us in sorted(ended.items())
        )
        self.observe(dataclasses.replace(seen, ended=(*seen.ended, *told), pods=(), pods_ended=()))

    # -- what happens ----------------------------------------------------------------------------------------------

    def observe(self, seen: Observation) -> None:
        """A time before the last one counts as the last one: the clock was set back."""
        last_us = seen.now_us if self.as_of_us is None else self.as_of_us
        now_us = self.as_of_us = max(seen.now_us, last_us)
        changes: list[_Change] = []

        def add(at_us: int, order: int, change: Callable[[], None]) -> None:
            changes.append((min(at_us, now_us), order, len(changes), change))

        for midnight_us in range((last_us // DAY_US + 1) * DAY_US, now_us + 1, DAY_US):
            add(midnight_us, _MIDNIGHT, partial(self._cut, midnight_us))
        for end in seen.ended:
            add(end.at_us, _ENDED, partial(self._ended, end, min(end.at_us, now_us)))
        self._begin(seen, last_us)
        for claim in seen.claims:
            self._plan_claim(claim, now_us, add)
        for each in seen.units:
            add(now_us, _SEEN, partial(self._seen, each, now_us))
        for name in seen.gone:
            add(now_us, _SEEN, partial(self._gone, name, now_us))
        changes.sort(key=lambda entry: entry[:3])
        for _, _, _, change in changes:
            change()
        self._pods.observe(seen.pods, seen.pods_ended, now_us)
        self._waits.extend(seen.waits)
        self._decisions.extend(seen.decisions)

    def _begin(self, seen: Observation, last_us: int) -> None:
        """Units that were not known: from now on, or from when a claim was given one of their devices."""
        first_us: dict[Unit, int] = {}
        for claim in seen.claims:
            for part in claim.parts:
                at_us = min(claim.allocation.allocated_us, first_us.get(part.unit, self._now_us))
                first_us[part.unit] = max(at_us, last_us)
        for each in seen.units:
            if each.unit not in self._units:
                since_us = first_us.get(each.unit, self._now_us)
                self._units[each.unit] = Timeline(each.unit, each.node, each.whole, each.vacancy, since_us)
        for claim in seen.claims:
            for part in claim.parts:
                if part.unit not in self._units:  # of a pool that is not published, or not any more
                    whole = _whole(part.measure)
                    self._units[part.unit] = Timeline(part.unit, "", whole, "unknown", first_us[part.unit])

    def take(self) -> Batch:
        """What is to be written since the last call. Raises ValueError before `resume`."""
        if self.as_of_us is None:
            raise ValueError("the account has no time yet: resume it first")
        batch = Batch(
            as_of_us=self.as_of_us,
            intervals=self._book.take(),
            lost=tuple(self._lost),
            gaps=tuple(self._gaps),
            waits=tuple(self._waits),
            decisions=tuple(self._decisions),
            pods=self._pods.take(),
        )
        self._lost, self._gaps, self._waits, self._decisions = [], [], [], []
        return batch

    def devices(self) -> dict[tuple[Bucket, str], int]:
        """What the devices of now are, by bucket and flavor, in millionths of a whole device; "": of no flavor."""
        return {key: share for key, share in self._book.shares.items() if share}

    # -- claims ----------------------------------------------------------------------------------------------------

    def _plan_claim(self, claim: ClaimSeen, now_us: int, add: Callable[[int, int, Callable[[], None]], None]) -> None:
        own = claim.allocation
        before_us = self._claims.get(own.claim_uid)
        if before_us is not None and before_us != own.allocated_us:
            end = ClaimEnded(claim_uid=own.claim_uid, at_us=own.allocated_us, ended_by="Unknown")
            add(own.allocated_us, _ENDED, partial(self._ended, end, min(own.allocated_us, now_us)))
        for part in claim.parts:
            add(own.allocated_us, _HELD, partial(self._held, claim, part, min(own.allocated_us, now_us)))
            phases = _phases(claim, part.usage)
            for phase in phases:
                add(phase[0], _HELD, partial(self._put, claim, part, phase, latest=phase is phases[-1]))
            if part.usage is not None:
                add(part.usage.sampled_us, _SAMPLED, partial(self._sampled, claim, part))

    def _held(self, claim: ClaimSeen, seen: PartSeen, at_us: int) -> None:
        unit = self._units[seen.unit]
        part = Part(claim.allocation, seen.device, seen.measure, "starting", at_us)
        known = unit.parts.get(part.key)
        if known is None:
            self._add(unit, part)
            unit.settle(self._book, at_us)
        elif (known.allocation, known.measure) != (claim.allocation, seen.measure):
            known.allocation, known.measure = claim.allocation, seen.measure
            unit.settle(self._book, self._now_us)

    def _put(self, claim: ClaimSeen, seen: PartSeen, phase: _Phase, *, latest: bool) -> None:
        """What came before the part's own bucket is known already; the latest phase counts however late it is told."""
        at_us, bucket = min(phase[0], self._now_us), phase[1]
        unit = self._units[seen.unit]
        part = unit.parts.get((claim.allocation.claim_uid, claim.allocation.allocated_us, seen.device))
        if part is None or part.bucket == bucket or not (latest or at_us > part.since_us):
            return
        part.bucket, part.since_us = bucket, at_us
        unit.settle(self._book, at_us)

    def _sampled(self, claim: ClaimSeen, seen: PartSeen) -> None:
        """The time since the last sample, as far as it is of the interval that is open, was as busy as the sample says."""
        unit, usage = self._units[seen.unit], seen.usage
        key = (claim.allocation.claim_uid, claim.allocation.allocated_us, seen.device)
        part = unit.parts.get(key)
        if part is None or usage is None:
            return
        interval = self._book.open[unit.rows[key]]
        begin_us = max(interval.start_us, part.sampled_us or interval.start_us)
        covered_us = max(0, min(usage.sampled_us, self._now_us) - begin_us) if usage.busy_percent is not None else 0
        before = interval.sampled
        sampled = Sampled(
            sampled_us=before.sampled_us + covered_us,
            busy_us=before.busy_us + covered_us * (usage.busy_percent or 0) // 100,
            memory_peak_bytes=_most(before.memory_peak_bytes, usage.memory_peak_bytes),
            memory_bytes=usage.memory_bytes if usage.memory_bytes is not None else before.memory_bytes,
        )
        if covered_us:
            part.sampled_us = begin_us + covered_us
        if sampled != before:
            self._book.change(unit.rows[key], dataclasses.replace(interval, sampled=sampled))

    def _ended(self, end: ClaimEnded, at_us: int) -> None:
        allocated_us = self._claims.get(end.claim_uid)
        if allocated_us is None:
            return
        for name in sorted(self._of_claim[end.claim_uid]):
            unit = self._units[name]
            for part in [each for key, each in unit.parts.items() if key[0] == end.claim_uid]:
                self._remove(unit, part)
            unit.settle(self._book, at_us, end.ended_by)
        if end.lost:
            self._lost.append((end.claim_uid, allocated_us))

    def _add(self, unit: Timeline, part: Part) -> None:
        uid = part.allocation.claim_uid
        unit.parts[part.key] = part
        self._claims[uid] = part.allocation.allocated_us
        self._of_claim.setdefault(uid, set()).add(unit.unit)

    def _remove(self, unit: Timeline, part: Part) -> None:
        uid = part.allocation.claim_uid
        del unit.parts[part.key]
        if any(key[0] == uid for key in unit.parts):
            return
        self._of_claim[uid].discard(unit.unit)
        if not self._of_claim[uid]:
            del self._of_claim[uid], self._claims[uid]

    # -- units -----------------------------------------------------------------------------------------------------

    @property
    def _now_us(self) -> int:
        assert self.as_of_us is not None  # set before any change is made
        return self.as_of_us

    def _cut(self, at_us: int) -> None:
        for unit in self._units.values():
            if unit.parts:
                unit.cut(self._book, at_us)

    def _seen(self, seen: UnitSeen, at_us: int) -> None:
        unit = self._units[seen.unit]
        unit.node, unit.whole, unit.vacancy = seen.node, seen.whole, seen.vacancy
        unit.settle(self._book, at_us)

    def _gone(self, name: Unit, at_us: int) -> None:
        unit = self._units.get(name)
        if unit is not None:
            self._drop(unit, at_us)

    def _drop(self, unit: Timeline, at_us: int) -> None:
        for part in list(unit.parts.values()):
            self._remove(unit, part)
        unit.close(self._book, at_us, "NodeGone")
        del self._units[unit.unit]


def _phases(claim: ClaimSeen, usage: UsageSeen | None) -> list[_Phase]:
    """What became of a held device after it was allocated, in order of time."""
    found: list[_Phase] = []
    if claim.started_us is not None:
        found.append((claim.started_us, "used"))
        if usage is not None:
            found.append((max(usage.since_us, claim.started_us), "idle" if usage.idle else "used"))
    if claim.finished_us is not None:
        # What its driver said of it before says nothing of the time since.
        found = [entry for entry in found if entry[0] < claim.finished_us]
        found.append((claim.finished_us, "idle"))
    return found


def _most(one: int | None, other: int | None) -> int | None:
    return max((each for each in (one, other) if each is not None), default=None)


def _whole(measure: Measure) -> Measure:
    """The whole unit of which this is a part."""
    amount = measure.amount * WHOLE_PPM / measure.share_ppm if measure.share_ppm else measure.amount
    return dataclasses.replace(measure, share_ppm=WHOLE_PPM, amount=amount)
