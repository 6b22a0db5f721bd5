"""How well a fleet was used in a window, against its targets: what `fairlead report` shows. Pure, exact.

Utilisation of the fleet is the busy part of all device time that is known: held time without samples counts as busy. Idle is the part of
the time held in which devices were idle. Memory is the peaks of devices against what they have, weighed by that and by the time held.
Percentiles are nearest ranks: the p95 of twenty waits is the nineteenth.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from fairlead.api.durations import duration_s
from fairlead.history.cost.conservation import Conservation, conserve
from fairlead.history.cost.reading import Reader
from fairlead.history.cost.rightsizing import Advice, Table, advise
from fairlead.history.cost.usage import Figures, Money, priced
from fairlead.history.cost.window import Known
from fairlead.history.ledger.entries import HELD, Held, Wait
from fairlead.history.prices import PriceBook

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
class Sizing:
    """An advice, and the part of the gang's cost that it would have saved."""

    advice: Advice
    saved: Money


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
    sizing: tuple[Sizing, ...]
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
        sizing=tuple(_sizing(each, gangs) for each in advice[:TOP]),
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


def _sizing(advice: Advice, gangs: Mapping[tuple[str, ...], Figures]) -> Sizing:
    figures = gangs.get((advice.queue, advice.namespace, advice.gang), Figures())
    part = _part(advice.saved, figures.held) or Fraction(0)
    return Sizing(advice=advice, saved={currency: cost * part for currency, cost in figures.money().items()})


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
