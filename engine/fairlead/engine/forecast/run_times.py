"""What is known of how long a gang still runs, best source first, and draws from that.

    reported progress      what the job itself says is left
    like gangs             runs of the same namespace, name stem, size and user; else of any user; else of namespace and stem. Of few runs
                           only the median counts, and how far runs of any like gangs are from the median of the others
    declared limit         activeDeadlineSeconds, times the part of their limits that other gangs used
    namespace              runs of the same namespace
    cluster                the survival curve of all runs
    service                none: it ends when somebody ends it, and says nothing of runs that end by themselves
    none                   where no run has ended yet: as long again as it has lasted, with 50 % probability

A declared limit bounds every draw: the cluster ends the pod then. Pure: history and running gangs are arguments.
Curves are Kaplan-Meier estimates of the share that still runs after a time. Runs that have not ended count as long as they have lasted
(censored): leaving them out would forget the long ones. The risk set is counted with one run more, so n runs leave 1/(n + 1) beyond the
longest; between two ends the curve is a line in the logarithm of time; what lies beyond all that was seen lasts in proportion to what it has
lasted, and the less is known of runs the wider it is spread.
Example: runs of 1, 2 and 4 h: a quarter each ends within 1 h, between 1 h and 2 h, between 2 h and 4 h, and later.
Draws are by name: that of one gang in one sample depends on the seed and on nothing else, so what differs between two simulations is the
change. Each eight samples have one draw of a gang in each eighth of (0, 1), in an order of its own.
Source: Kaplan and Meier, "Nonparametric estimation from incomplete observations", JASA 1958; Latin hypercube sampling (McKay, Beckman and
Conover, Technometrics 1979).
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, partial
from math import exp, inf, log
from statistics import NormalDist, median
from typing import NamedTuple

from fairlead.engine.types.gangs import GangRequest, RunningGang

_WHOLE = 1 << 64
STRATA = 8


@dataclass(frozen=True, slots=True)
class Draws:
    """The random draws of one sample. `middle`: every draw is one half, for a simulation of medians. `longest`: runs end by their deadlines alone."""

    seed: int
    sample: int
    middle: bool = False
    longest: bool = False

    def uniform(self, *names: object) -> float:
        """Within (0, 1): the same for the same names."""
        if self.middle:
            return 0.5
        block, number = divmod(self.sample, STRATA)
        stratum = _permuted(number, _hash(self.seed, "block", block, *names))
        return (stratum + (_hash(self.seed, self.sample, *names) + 0.5) / _WHOLE) / STRATA


def _permuted(number: int, random: int) -> int:
    """Where a permutation of the strata, which is drawn by `random`, takes a number."""
    left = list(range(STRATA))
    for size in range(STRATA, STRATA - number, -1):
        random, place = divmod(random, size)
        del left[place]
    return left[random % len(left)]


def _hash(*names: object) -> int:
    text = "\0".join(map(str, names))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())


SHORTEST_S = 1.0
BEYOND = 0.7  # spread, in the logarithm of time, of what lies beyond the longest of many runs seen
UNSURE = 1.0  # added to that, divided by the number of runs that ended: of runs that are unlike by a factor of three nine tenths come before p90
BEFORE = 0.5  # the shortest run seen, times this: none is taken to end sooner


class SurvivalCurve:
    """`runs`: seconds, and whether the run ended then."""

    def __init__(self, runs: Iterable[tuple[float, bool]]) -> None:
        ordered = sorted((max(SHORTEST_S, seconds), not ended) for seconds, ended in runs)
        self._at: list[float] = []  # logarithm of seconds, rising
        self._left: list[float] = []  # share that still runs then, falling
        self.ended = sum(not censored for _, censored in ordered)
        self._beyond = BEYOND + UNSURE / max(1, self.ended)
        left, at_risk = 1.0, len(ordered) + 1
        for seconds, censored in ordered:
            if not censored:
                if not self._at:
                    self._at.append(log(max(SHORTEST_S, seconds * BEFORE)))
                    self._left.append(1.0)
                left *= (at_risk - 1) / at_risk
                at = log(seconds)
                if at <= self._at[-1]:
                    at = self._at[-1] + 1e-6  # ties
                self._at.append(at)
                self._left.append(left)
            at_risk -= 1

    def left(self, seconds: float) -> float:
        at = log(max(SHORTEST_S, seconds))
        if not self._at or at <= self._at[0]:
            return 1.0
        if at >= self._at[-1]:
            return self._left[-1] * exp(-(at - self._at[-1]) / self._beyond)
        place = bisect_right(self._at, at)
        part = (at - self._at[place - 1]) / (self._at[place] - self._at[place - 1])
        return self._left[place - 1] + part * (self._left[place] - self._left[place - 1])

    def draw(self, elapsed_s: float, uniform: float) -> float:
        """How long a run lasts in all that has lasted `elapsed_s`; `uniform` within (0, 1), the smaller the longer."""
        wanted = self.left(elapsed_s) * uniform
        if not self._at:
            return max(elapsed_s, SHORTEST_S)
        if wanted <= self._left[-1]:
            beyond = -log(wanted / self._left[-1]) * self._beyond
            return max(elapsed_s, exp(min(self._at[-1] + beyond, 60.0)))
        place = bisect_left(self._left, -wanted, key=lambda left: -left)
        high, low = self._left[place - 1], self._left[place]
        part = (high - wanted) / (high - low)
        return max(elapsed_s, exp(self._at[place - 1] + part * (self._at[place] - self._at[place - 1])))


LIKE_MIN = 3  # ended runs that a group needs
OWN_MIN = 12  # ended runs from which on a group has a curve of its own
RATIOS_MIN = 20  # ended runs of like gangs, to say how far runs are from the median of others like them
SCALE_S = 1000.0  # what parts of a limit and of a median are multiplied by, as curves begin at a second
LIMITED_MIN = 5  # runs with a limit, to say what part of it is used
PROGRESS_SPREAD = 0.15  # of what a job reports as left, in its logarithm
UNKNOWN_S = 60.0  # where no run has ended yet: each lasts as long again as it has lasted, with 50 % probability, and this at least

_GENERATED = re.compile(r"-(?:[bcdfghjklmnpqrstvwxz2456789]{5}|[0-9a-f]{8,40})$")
_NUMBERED = re.compile(r"[-._]v?[0-9]+(?=$|[-._])")


class Source(StrEnum):
    """Where a run time comes from, as `because` says it."""

    PROGRESS = "reported progress"
    LIKE = "like gangs before"
    LIMIT = "declared limits"
    NAMESPACE = "gangs of its namespace before"
    CLUSTER = "the cluster's survival curve"
    NONE = "no run seen yet"
    SERVICE = "services, which end by no time of their own"


def name_stem(name: str) -> str:
    """A name without what is generated or numbered in it: `train-llama-7-x7k2p` is `train-llama`."""
    name = name.partition("~")[0]  # of an arrival that a simulation draws
    stem = _NUMBERED.sub("", _GENERATED.sub("", name)).strip("-._")
    return stem or name


class GangKey(NamedTuple):
    """Like gangs have an equal one. `user`: who submitted it; "" where that is not known."""

    namespace: str
    stem: str
    size: int
    user: str = ""

    @classmethod
    def of(cls, gang: GangRequest | RunningGang, user: str = "") -> GangKey:
        return cls(gang.namespace, name_stem(gang.name), gang.size, user)


class RunRecord(NamedTuple):
    """One run. Of one that still runs `ended` is False and `run_s` what it has lasted."""

    key: GangKey
    run_s: float
    ended: bool = True
    limit_s: float | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """What a running job reported of itself: so many seconds were left at that time (unix seconds)."""

    left_s: float
    at: float


class RunTimes:
    """`records`: of runs that ended, and of those under way."""

    def __init__(
        self,
        records: Iterable[RunRecord],
        progress: Mapping[str, Progress] | None = None,
        users: Mapping[str, str] | None = None,
    ) -> None:
        """`progress` and `users` by gang id."""
        groups: dict[tuple[object, ...], list[tuple[float, bool]]] = {}
        parts: list[tuple[float, bool]] = []
        for record in records:
            run, key = (record.run_s, record.ended), record.key
            for group in (key, key[:3], key[:2], key[:1], ()):
                groups.setdefault(group, []).append(run)
            if record.limit_s:
                parts.append((record.run_s / record.limit_s * SCALE_S, record.ended))
        self._groups = groups
        self._curves: dict[tuple[object, ...], SurvivalCurve] = {}
        self._limited = SurvivalCurve(parts) if sum(ended for _, ended in parts) >= LIMITED_MIN else None
        self._progress = progress or {}
        self._users = users or {}
        self._known: dict[tuple[GangKey, bool], tuple[Source, Callable[[float, float], float] | None]] = {}

    @cached_property
    def _ratios(self) -> SurvivalCurve | None:
        return _ratios(runs for group, runs in self._groups.items() if len(group) == len(GangKey._fields))

    def source(self, gang: GangRequest | RunningGang, limit_s: float | None) -> Source:
        if gang.endless and limit_s is None:
            return Source.SERVICE
        return Source.PROGRESS if gang.id in self._progress else self._source(self._key(gang), limit_s is not None)[0]

    def ends_at(
        self, gang: GangRequest | RunningGang, started: float, now: float, draws: Draws, *, ends_by: float | None
    ) -> float:
        """When it ends, unix seconds, not before `now`. `ends_by`: when the cluster ends it, if that is declared."""
        if draws.longest or (gang.endless and ends_by is None):
            return inf if ends_by is None else max(ends_by, now)
        uniform = draws.uniform("run", gang.id)
        progress = self._progress.get(gang.id)
        elapsed_s = max(0.0, now - started)
        if progress is not None:
            left_s = progress.left_s * exp(PROGRESS_SPREAD * NormalDist().inv_cdf(1.0 - uniform))
            end = progress.at + left_s
        else:
            limit_s = None if ends_by is None else max(SHORTEST_S, ends_by - started)
            end = started + self._lasts(self._key(gang), elapsed_s, limit_s, uniform)
        if ends_by is not None:
            end = min(end, ends_by)
        return max(end, now)

    def _key(self, gang: GangRequest | RunningGang) -> GangKey:
        """The key of an arrival that a simulation draws: that of the gang that it is drawn from."""
        return GangKey.of(gang, self._users.get(gang.id.partition("~")[0], ""))

    def _lasts(self, key: GangKey, elapsed_s: float, limit_s: float | None, uniform: float) -> float:
        source, draw = self._source(key, limit_s is not None)
        if source is Source.LIMIT and limit_s is not None:
            return limit_s if draw is None else draw(elapsed_s / limit_s * SCALE_S, uniform) * limit_s / SCALE_S
        if draw is None:
            return max(elapsed_s, UNKNOWN_S) / uniform
        return draw(elapsed_s, uniform)

    def _source(self, key: GangKey, limited: bool) -> tuple[Source, Callable[[float, float], float] | None]:
        known = self._known.get((key, limited))
        if known is None:
            known = self._known[key, limited] = self._choose(key, limited)
        return known

    def _choose(self, key: GangKey, limited: bool) -> tuple[Source, Callable[[float, float], float] | None]:
        for group in (key, key[:3], key[:2]):
            ended = [run_s for run_s, done in self._groups.get(group, ()) if done]
            if ended and len(ended) < OWN_MIN and self._ratios is not None:
                return Source.LIKE, partial(_scaled, self._ratios, median(ended))
            if len(ended) >= LIKE_MIN:
                return Source.LIKE, self._curve(group).draw
        if limited:
            return Source.LIMIT, None if self._limited is None else self._limited.draw
        if self._ended(key[:1]) >= LIKE_MIN:
            return Source.NAMESPACE, self._curve(key[:1]).draw
        return (Source.CLUSTER, self._curve(()).draw) if self._ended(()) else (Source.NONE, None)

    def _ended(self, group: tuple[object, ...]) -> int:
        return sum(ended for _, ended in self._groups.get(group, ()))

    def _curve(self, group: tuple[object, ...]) -> SurvivalCurve:
        curve = self._curves.get(group)
        if curve is None:
            curve = self._curves[group] = SurvivalCurve(self._groups[group])
        return curve


def _ratios(groups: Iterable[list[tuple[float, bool]]]) -> SurvivalCurve | None:
    """Runs as parts of the median of the other ended runs of their group; None where there are too few."""
    found: list[tuple[float, bool]] = []
    for runs in groups:
        ended = sorted(run_s for run_s, done in runs if done)
        if not ended:
            continue
        whole = median(ended)
        found += [(run_s / max(SHORTEST_S, whole) * SCALE_S, False) for run_s, done in runs if not done]
        if len(ended) > 1:
            medians = (_median_without(ended, place) for place in range(len(ended)))
            found += [
                (run_s / max(SHORTEST_S, each) * SCALE_S, True) for run_s, each in zip(ended, medians, strict=True)
            ]
    return SurvivalCurve(found) if sum(done for _, done in found) >= RATIOS_MIN else None


def _median_without(ordered: Sequence[float], place: int) -> float:
    """The median of all but one of two or more."""
    low, high = (len(ordered) - 2) // 2, (len(ordered) - 1) // 2  # among those that are left
    return (ordered[low + (low >= place)] + ordered[high + (high >= place)]) / 2


def _scaled(ratios: SurvivalCurve, median_s: float, elapsed_s: float, uniform: float) -> float:
    by = max(SHORTEST_S, median_s) / SCALE_S
    return ratios.draw(elapsed_s / by, uniform) * by
