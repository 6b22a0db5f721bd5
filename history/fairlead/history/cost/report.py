"""How well a fleet was used in a window, against its targets: what `fairlead report` shows. Pure, exact.

Utilisation of the fleet is the busy part of all device time that is known: held time without samples counts as busy. Idle is the part of
the time held in which devices were idle. Memory is the peaks of devices against what they have, weighed by that and by the time held.
Percentiles are nearest ranks: the p95 of twenty waits is the nineteenth.

Advice names claims that would do with a smaller MIG profile: one with the peak's memory and a quarter more, and at least the part of the
GPU's compute that was busy on average. Members of a gang get the same size: what the largest of them needs. A mean of load has no bursts
in it, and samples say how long kernels ran, not how much of the GPU they filled. Sizes come from the caller: the driver's tables.
Example: an 80 GB GPU with a peak of 25 GB and a load of 30 % needs 31.25 GB and 2.1 of 7 compute slices: 3g.40gb.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Final, NamedTuple

from fairlead.api.durations import duration_s
from fairlead.history.cost.bill import Conservation, conserve
from fairlead.history.cost.usage import Figures, Money, priced
from fairlead.history.cost.window import Known, Reader
from fairlead.history.ledger.entries import HELD, WHOLE_PPM, Held, Wait
from fairlead.history.prices import PriceBook
from fairlead.kube.timestamps import HOUR_US

FLEET_PERCENT: Final = (65, 85)
MEMORY_PERCENT: Final = 80
IDLE_PERCENT: Final = 20
TOP: Final = 10


@dataclass(frozen=True, kw_only=True)
class Holder:
    """A gang that held idle devices; `gang` "": claims of no gang. `idle` and `held` in ppm × µs."""

    queue: str
    namespace: str
    gang: str
    idle: int
    held: int
    cost: Money


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """Waits in one queue that ended in the window, in seconds. `target_s` None: the queue has none."""

    queue: str
    gangs: int
    p50_s: float
    p95_s: float
    target_s: float | None

    @property
    def met(self) -> bool | None:
        return None if self.target_s is None else self.p95_s <= self.target_s


@dataclass(frozen=True, kw_only=True)
class Report:
    """Parts are of 1; None: nothing to divide by."""

    known: Known
    conservation: Conservation
    figures: Figures  # of all device time
    utilisation: Fraction | None
    unsampled: Fraction | None  # of the time held
    idle: Fraction | None
    memory: Fraction | None
    holders: tuple[Holder, ...]
    sizing: tuple[Advice, ...]
    sizing_total: int  # how many advices there are
    waiting: tuple[Waiting, ...]


@dataclass(slots=True)
class _Memory:
    """Bytes × time of the devices that pass: their peaks, and what they have."""

    peak: int = 0
    whole: int = 0

    def counted(self, held: Iterable[Held]) -> Iterator[Held]:
        for each in held:
            if each.sampled.memory_bytes and each.sampled.memory_peak_bytes is not None:
                time_us = sum(time for _, time in each.times_us)
                self.peak += time_us * each.sampled.memory_peak_bytes
                self.whole += time_us * each.sampled.memory_bytes
            yield each


def make(
    reader: Reader, book: PriceBook, known: Known, *, tables: Iterable[Table] = (), targets_s: Mapping[str, float]
) -> Report:
    """`targets_s`: of queues, see `wait_targets`. Raises ConservationError where the ledger is inconsistent."""
    conservation = conserve(reader, known.window)
    every, gangs = Figures(), dict[tuple[str, ...], Figures]()
    for each in priced(reader, book, [known.window], ("queue", "namespace", "gang")):
        figures = each.figures()
        every.add(figures)
        if each.sum.bucket in HELD:
            gangs.setdefault(each.sum.keys, Figures()).add(figures)
    memory = _Memory()
    advice = advise(memory.counted(reader.held(*known.window)), tables)
    seen = conservation.total - conservation.weighed["unknown"]
    return Report(
        known=known,
        conservation=conservation,
        figures=every,
        utilisation=_part(every.utilised, seen),
        unsampled=_part(every.held - every.sampled, every.held),
        idle=_part(every.weighed.get("idle", 0), every.held),
        memory=_part(memory.peak, memory.whole),
        holders=_holders(gangs),
        sizing=tuple(_priced(each, gangs) for each in advice[:TOP]),
        sizing_total=len(advice),
        waiting=_waiting(reader.waits(*known.window), targets_s),
    )


def wait_targets(queues: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """`spec.waitTarget` of Queues, in seconds, where it is a duration; objects of other versions may lack it."""
    found = dict[str, float]()
    for raw in queues:
        text = (raw.get("spec") or {}).get("waitTarget")
        if isinstance(text, str):
            try:
                found[str(raw["metadata"]["name"])] = duration_s(text)
            except ValueError:
                continue
    return found


def nearest_rank(ordered: Sequence[float], percent: int) -> float:
    """The nearest-rank quantile of values in order, at least one."""
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def _holders(gangs: Mapping[tuple[str, ...], Figures]) -> tuple[Holder, ...]:
    found = [
        Holder(
            queue=queue,
            namespace=namespace,
            gang=gang,
            idle=figures.weighed["idle"],
            held=figures.held,
            cost=figures.money(buckets=("idle",)),
        )
        for (queue, namespace, gang), figures in gangs.items()
        if figures.weighed.get("idle")
    ]
    found.sort(key=lambda each: (-each.idle, each.queue, each.namespace, each.gang))
    return tuple(found[:TOP])


def _priced(advice: Advice, gangs: Mapping[tuple[str, ...], Figures]) -> Advice:
    figures = gangs.get((advice.queue, advice.namespace, advice.gang), Figures())
    part = _part(advice.saved, figures.held) or Fraction(0)
    return replace(advice, saved_cost={currency: cost * part for currency, cost in figures.money().items()})


def _waiting(waits: Iterable[Wait], targets_s: Mapping[str, float]) -> tuple[Waiting, ...]:
    queues = dict[str, list[float]]()
    for wait in waits:
        queues.setdefault(wait.queue, []).append((wait.admitted_us - wait.queued_us) / 1e6)
    return tuple(
        Waiting(
            queue=queue,
            gangs=len(lasted),
            p50_s=nearest_rank(sorted(lasted), 50),
            p95_s=nearest_rank(sorted(lasted), 95),
            target_s=targets_s.get(queue),
        )
        for queue, lasted in sorted(queues.items())
    )


def _part(part: int | Fraction, whole: int) -> Fraction | None:
    return Fraction(part, whole) if whole else None


HEADROOM: Final = Fraction(5, 4)
SAMPLED_LEAST: Final = Fraction(1, 2)
"""Of the time held: with less, the peak may have been missed."""
LEAST_US: Final = HOUR_US
NEAR: Final = Fraction(1, 20)
"""How far a device's memory may be from a table's: drivers reserve a part of it."""


class Size(NamedTuple):
    """A MIG profile: `memory` and `compute` are parts of the GPU."""

    name: str
    memory_bytes: int
    memory: Fraction
    compute: Fraction

    @property
    def part(self) -> Fraction:
        return max(self.memory, self.compute)


Table = Sequence[Size]
"""The profiles of one product, the whole GPU's among them."""


@dataclass(frozen=True, kw_only=True)
class Advice:
    """For devices of one size that a gang held, or a claim of no gang. `saved` is device time in ppm × µs: what would have been free."""

    queue: str
    namespace: str
    gang: str
    claim: str  # the first of them by name
    devices: int
    memory_bytes: int
    peak_bytes: int
    utilisation: Fraction
    size: str
    size_bytes: int
    saved: Fraction
    saved_cost: Money = field(default_factory=dict)  # that part of what the gang cost


class _Key(NamedTuple):
    queue: str
    namespace: str
    gang: str
    claim: str  # "" where there is a gang
    memory_bytes: int
    ppm: int


@dataclass(slots=True)
class _Group:
    """What is known of the devices of one key, so far."""

    claim: str
    peak_bytes: int = 0
    load: Fraction = Fraction(0)
    weighed: int = 0
    devices: set[tuple[str, str]] = field(default_factory=set)

    def add(self, held: Held) -> None:
        self.claim = min(self.claim, held.allocation.claim)
        self.peak_bytes = max(self.peak_bytes, held.sampled.memory_peak_bytes or 0)
        self.load = max(self.load, Fraction(held.sampled.busy_us, held.sampled.sampled_us))
        self.weighed += _time(held) * held.measure.share_ppm
        self.devices.add((str(held.unit), held.device))


def advise(held: Iterable[Held], tables: Iterable[Table]) -> list[Advice]:
    """Those by which most device time would be free first."""
    known, groups = list(tables), dict[_Key, _Group]()
    for each in held:
        if _is_known(each):
            of = each.allocation
            key = _Key(
                queue=of.queue,
                namespace=of.namespace,
                gang=of.gang,
                claim="" if of.gang else of.claim,
                memory_bytes=each.sampled.memory_bytes or 0,
                ppm=each.measure.share_ppm,
            )
            groups.setdefault(key, _Group(of.claim)).add(each)
    found = [advice for key, group in groups.items() if (advice := _advice(key, group, known)) is not None]
    return sorted(found, key=lambda each: (-each.saved, each.queue, each.namespace, each.gang, each.claim))


def _is_known(held: Held) -> bool:
    time_us, sampled = _time(held), held.sampled
    return bool(
        time_us >= LEAST_US
        and sampled.memory_bytes
        and sampled.memory_peak_bytes is not None
        and sampled.sampled_us >= SAMPLED_LEAST * time_us
    )


def _advice(key: _Key, group: _Group, tables: Iterable[Table]) -> Advice | None:
    table = _table(key.memory_bytes, key.ppm == WHOLE_PPM, tables)
    if table is None:
        return None
    own = Fraction(key.ppm, WHOLE_PPM)  # load is of the device that is held
    fits = [
        size
        for size in table
        if size.memory_bytes >= group.peak_bytes * HEADROOM
        and size.compute >= group.load * own
        and size.part < own
        and size.memory_bytes < key.memory_bytes
        and "+" not in size.name  # with media extensions, of which a GPU has one
    ]
    if not fits:
        return None
    best = min(fits, key=lambda size: (size.part, size.memory_bytes, size.compute, size.name))
    return Advice(
        queue=key.queue,
        namespace=key.namespace,
        gang=key.gang,
        claim=group.claim,
        devices=len(group.devices),
        memory_bytes=key.memory_bytes,
        peak_bytes=group.peak_bytes,
        utilisation=group.load,
        size=best.name,
        size_bytes=best.memory_bytes,
        saved=group.weighed * (1 - best.part / own),
    )


def _table(memory_bytes: int, whole: bool, tables: Iterable[Table]) -> Table | None:
    """The one that has a profile of this memory, the nearest: of a whole GPU, or of a part. None: no such GPU has MIG."""
    nearest: tuple[Fraction, Table] | None = None
    for table in tables:
        for size in table:
            far = abs(Fraction(size.memory_bytes, memory_bytes) - 1)
            if (size.memory == 1) == whole and far <= NEAR and (nearest is None or far < nearest[0]):
                nearest = far, table
    return None if nearest is None else nearest[1]


def _time(held: Held) -> int:
    return sum(time for _, time in held.times_us)
