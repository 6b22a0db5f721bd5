"""Which claims would do with a smaller MIG profile: from the peak of memory and the load that the samples say. Pure.

A profile does where it has the peak's memory and a quarter more, and at least the part of the GPU's compute that was busy on average.
Members of a gang get the same size: what the largest of them needs. Advice, not a verdict: a mean of load has no bursts in it, and
samples say how long kernels ran, not how much of the GPU they filled. Sizes come from the caller: those of the driver's tables.
Example: an 80 GB GPU with a peak of 25 GB and a load of 30 % needs 31.25 GB and 2.1 of 7 compute slices: 3g.40gb.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, NamedTuple

from fairlead.history.ledger.entries import WHOLE_PPM, Held
from fairlead.kube.timestamps import HOUR_US

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
