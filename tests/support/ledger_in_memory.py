"""A ledger in memory, made from intervals: every answer is a naive integral over them, so that it can be read and believed.

Samples of an interval that is cut are divided by time, so that what two windows side by side have sums to what both have.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from fractions import Fraction

from fairlead.history.ledger.entries import (
    BUCKETS,
    Allocation,
    Bucket,
    Decision,
    Gap,
    Held,
    Interval,
    Measure,
    Sampled,
    Span,
    Stretch,
    Sum,
    Unit,
    UnitDay,
    Wait,
)
from fairlead.history.ledger.pod_entries import PodInterval, PodSum
from fairlead.kube.timestamps import DAY_US, HOUR_US


class Ledger:
    def __init__(
        self,
        intervals: Sequence[Interval] = (),
        *,
        waits: Sequence[Wait] = (),
        gaps: Sequence[Gap] = (),
        decisions: Sequence[Decision] = (),
        known: tuple[int, int] | None = None,
        pods: Sequence[PodInterval] = (),
    ) -> None:
        self.intervals = list(intervals)
        self._pods = pods
        self._waits, self._gaps, self._decisions, self._known = waits, gaps, decisions, known

    def decisions(self, namespace: str, gang: str, most: int) -> list[Decision]:
        own = [each for each in self._decisions if (each.namespace, each.gang) == (namespace, gang)]
        return sorted(own, key=lambda each: -each.at_us)[:most]

    def overlapping(self, since_us: int, until_us: int, most: int) -> int:
        return min(most + 1, sum(_part(each, since_us, until_us) is not None for each in self.intervals))

    def sums(self, since_us: int, until_us: int, by: tuple[str, ...]) -> list[Sum]:
        found: dict[tuple[tuple[str, ...], Bucket, bool, Measure], list[int]] = defaultdict(lambda: [0, 0, 0])
        cuts = _days(since_us, until_us) if "day" in by else [(since_us, until_us)]
        for begin, end in cuts:
            for each in self.intervals:
                part = _part(each, begin, end)
                if part is not None:
                    keys = tuple(_key(each, name, begin) for name in by)
                    for place, value in enumerate(part):
                        found[keys, each.bucket, each.lost, each.measure][place] += value
        return [
            Sum(keys=keys, bucket=bucket, lost=lost, measure=measure, time_us=time, sampled_us=sampled, busy_us=busy)
            for (keys, bucket, lost, measure), (time, sampled, busy) in found.items()
        ]

    def pod_sums(self, since_us: int, until_us: int, by: tuple[str, ...]) -> list[PodSum]:
        found: dict[tuple[tuple[str, ...], str, str, str | None], Fraction] = defaultdict(Fraction)
        for begin, end in _days(since_us, until_us) if "day" in by else [(since_us, until_us)]:
            for each in self._pods:
                time_us = min(end, each.end_us or end) - max(begin, each.start_us)
                if time_us > 0:
                    keys = tuple(_pod_key(each, name, begin) for name in by)
                    of = each.amount
                    found[keys, of.flavor, of.resource, of.capacity_type] += of.amount * time_us
        return [
            PodSum(keys=keys, flavor=flavor, resource=resource, capacity_type=kind, weighed=weighed)
            for (keys, flavor, resource, kind), weighed in found.items()
        ]

    def held(self, since_us: int, until_us: int) -> Iterator[Held]:
        found: dict[tuple[Allocation, Unit, str], list[tuple[Interval, tuple[int, int, int]]]] = defaultdict(list)
        for each in sorted(self.intervals, key=lambda interval: interval.start_us):
            part = _part(each, since_us, until_us)
            if part is not None and each.allocation is not None:
                found[each.allocation, each.unit, each.device].append((each, part))
        for (allocation, unit, device), parts in found.items():
            last = parts[-1][0]
            times = {
                bucket: sum(part[0] for interval, part in parts if interval.bucket == bucket) for bucket in BUCKETS
            }
            peaks = [i.sampled.memory_peak_bytes for i, _ in parts if i.sampled.memory_peak_bytes is not None]
            yield Held(
                allocation=allocation,
                unit=unit,
                node=last.node,
                device=device,
                measure=last.measure,
                times_us=tuple((bucket, time) for bucket, time in times.items() if time),
                sampled=Sampled(
                    sampled_us=sum(part[1] for _, part in parts),
                    busy_us=sum(part[2] for _, part in parts),
                    memory_peak_bytes=max(peaks, default=None),
                    memory_bytes=last.sampled.memory_bytes,
                ),
                ended_by=last.ended_by,
                lost=any(interval.lost for interval, _ in parts),
            )

    def spans(self, since_us: int, until_us: int) -> Iterator[Span]:
        found: dict[tuple[Allocation, Unit, str], list[Interval]] = defaultdict(list)
        for each in sorted(self.intervals, key=lambda interval: interval.start_us):
            if _part(each, since_us, until_us) is not None and each.allocation is not None:
                found[each.allocation, each.unit, each.device].append(each)
        for (of, _, _), parts in found.items():
            last = max(part.end_us or 0 for part in parts)
            goes_on = last > until_us
            yield Span(
                namespace=of.namespace,
                queue=of.queue,
                gang=of.gang,
                claim=of.claim,
                allocated_us=of.allocated_us,
                node=parts[-1].node,
                flavor=parts[-1].measure.flavor,
                amount=parts[-1].measure.amount,
                share_ppm=parts[-1].measure.share_ppm,
                start_us=max(since_us, parts[0].start_us),
                end_us=min(until_us, last),
                goes_on=goes_on,
                ended_by="" if goes_on else parts[-1].ended_by,
                lost=any(part.lost for part in parts),
                device=parts[-1].device,
            )

    def stretches(self, namespace: str, gang: str, since_us: int, until_us: int, most: int) -> list[Stretch]:
        own = [
            Stretch(
                each.node,
                each.device,
                each.bucket,
                max(since_us, each.start_us),
                min(until_us, each.end_us or 0),
                *part[1:],
            )
            for each in sorted(self.intervals, key=lambda interval: interval.start_us)
            if each.allocation is not None
            and (each.allocation.namespace, each.allocation.gang) == (namespace, gang)
            and (part := _part(each, since_us, until_us)) is not None
        ]
        return own[-most:]

    def waits(self, since_us: int, until_us: int) -> list[Wait]:
        return [wait for wait in self._waits if since_us <= wait.admitted_us < until_us]

    def gaps(self, since_us: int, until_us: int) -> list[Gap]:
        return [gap for gap in self._gaps if gap.start_us < until_us and gap.end_us > since_us]

    def unit_days(self, since_us: int, until_us: int) -> Iterator[UnitDay]:
        for begin, end in _days(since_us, until_us):
            for unit in sorted({interval.unit for interval in self.intervals}):
                own = [i for i in self.intervals if i.unit == unit and _part(i, begin, end) is not None]
                if own:
                    weighed = {
                        bucket: sum(
                            (_part(i, begin, end) or (0,))[0] * i.measure.share_ppm for i in own if i.bucket == bucket
                        )
                        for bucket in BUCKETS
                    }
                    first = max(begin, min(i.start_us for i in own))
                    last = min(end, max(end if i.end_us is None else i.end_us for i in own))
                    yield UnitDay(
                        unit=unit,
                        node=own[0].node,
                        day_us=begin // DAY_US * DAY_US,
                        present_us=last - first,
                        weighed=tuple((bucket, part) for bucket, part in weighed.items() if part),
                    )

    def close(self) -> None:
        """Nothing is open."""

    def known(self) -> tuple[int, int] | None:
        if self._known is not None or not self.intervals:
            return self._known
        ends = [i.end_us for i in self.intervals if i.end_us is not None]
        return min(i.start_us for i in self.intervals), max(ends)


def day(text: str, hours: float = 0) -> int:
    """Unix microseconds."""
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1e6 + hours * HOUR_US)


def allocation(
    claim: str, *, at: int = 0, gang: str = "train", queue: str = "ml", namespace: str = "vision", user: str = "", **labels: str
) -> Allocation:  # fmt: skip
    return Allocation(
        claim_uid=f"uid-{namespace}-{claim}",
        namespace=namespace,
        claim=claim,
        allocated_us=at,
        gang=gang,
        queue=queue,
        user=user,
        labels=tuple(sorted(labels.items())),
    )


def interval(
    gpu: int,
    bucket: Bucket,
    start_us: int,
    end_us: int,
    *,
    claim: Allocation | None = None,
    ppm: int = 1_000_000,
    flavor: str = "h100",
    capacity_type: str | None = None,
    busy: float | None = None,
    peak: int | None = None,
    memory: int | None = None,
    lost: bool = False,
    node: str = "node-a",
    ended_by: str = "",
) -> Interval:
    """Of GPU number `gpu` of the node. `busy`: the samples' utilisation, 0 to 1, over all of it; None: no samples."""
    lasts = end_us - start_us
    sampled = Sampled() if busy is None else Sampled(
        sampled_us=lasts, busy_us=round(lasts * busy), memory_peak_bytes=peak, memory_bytes=memory
    )  # fmt: skip
    return Interval(
        unit=Unit("gpu.fairlead.dev", node, f"gpu-{gpu}"),
        node=node,
        bucket=bucket,
        measure=Measure(share_ppm=ppm, flavor=flavor, amount=Fraction(ppm, 1_000_000), capacity_type=capacity_type),
        start_us=start_us,
        end_us=end_us,
        device=f"gpu-{gpu}" if claim else "",
        allocation=claim,
        sampled=sampled,
        lost=lost,
        ended_by=ended_by,
    )


def _part(each: Interval, begin: int, end: int) -> tuple[int, int, int] | None:
    """Time, sampled and busy of the interval within a window; None: they do not meet."""
    assert each.end_us is not None, "write its end"
    first, last = max(begin, each.start_us), min(end, each.end_us)
    if last <= first:
        return None
    whole = each.end_us - each.start_us

    def of(value: int) -> int:
        return value * (last - each.start_us) // whole - value * (first - each.start_us) // whole

    return last - first, of(each.sampled.sampled_us), of(each.sampled.busy_us)


def _days(since_us: int, until_us: int) -> list[tuple[int, int]]:
    edges = [since_us, *range((since_us // DAY_US + 1) * DAY_US, until_us, DAY_US), until_us]
    return list(itertools.pairwise(edges))


def _pod_key(each: PodInterval, name: str, time_us: int) -> str:
    own = {
        **each.holder._asdict(),
        "flavor": each.amount.flavor,
        "day": datetime.fromtimestamp(time_us // 1_000_000, UTC).date().isoformat(),
    }
    if name.startswith("label="):
        return dict(each.holder.labels).get(name.removeprefix("label="), "")
    return str(own.get(name, ""))


def _key(each: Interval, name: str, time_us: int) -> str:
    if name == "day":
        return datetime.fromtimestamp(time_us // 1_000_000, UTC).date().isoformat()
    if name in {"node", "device", "bucket"}:
        return str(getattr(each, name))
    if name == "unit":
        return str(each.unit)
    if name == "flavor":
        return each.measure.flavor
    if each.allocation is None:
        return ""
    if name.startswith("label="):
        return dict(each.allocation.labels).get(name.removeprefix("label="), "")
    return str(getattr(each.allocation, name))
