"""The gangs that wait in one sample: which of them the next simulated decision looks at, and when those start that the budget leaves out.

A decision that looks at 2,000 waiting gangs takes most of a second, and a forecast makes hundreds. Of gangs of one queue that are
alike but for their age the later ones are refused where the first is (`plan.scheduling`), so a few of each kind are enough; once all of
a kind have started the next ones are looked at, at the same instant. Where there are more kinds than `most`, the first by
priority and age of each queue in turn are looked at: then a small gang far back starts later here than by backfill.
Where the budget ends the simulation a queue keeps the devices that it holds: the first gang of its line starts when as many of them have
come free as it asks for, the next one after it, and so on; each then holds them for as long as it runs. What is submitted meanwhile joins
the line by priority and age. Coarse: takes the queues' shares as they are, lets no gang pass another, and has no account of where devices are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import zip_longest
from math import inf

from fairlead.engine.types.gangs import GangRequest
from fairlead.kube import resource
from fairlead.kube.spec_key import spec_key

EACH = 2  # gangs of a kind at first
EACH_MAX = 64


class Kinds:
    """A number for each kind of pending gang: equal for gangs that a decision treats alike but for their age."""

    def __init__(self) -> None:
        self._numbers: dict[object, int] = {}
        self._specs: dict[bytes, int] = {}
        self._spec_of: dict[int, tuple[object, int]] = {}  # by identity, which the value keeps alive
        self._kinds: dict[int, tuple[GangRequest, int]] = {}

    def of(self, gang: GangRequest) -> int:
        known = self._kinds.get(id(gang))
        if known is not None:
            return known[1]
        claims = {claim.key: claim for claim in gang.claims}
        number = self._number(
            (
                gang.queue,
                gang.namespace,
                gang.priority,
                gang.size,
                gang.preempts,
                gang.preemptor,
                gang.replaces,
                gang.run_s,
                gang.topology,
                gang.subgroup_topology,
                gang.placed_nodes,
                gang.placed_subgroups,
                gang.align,
                spec_key(gang.placed_members) if gang.placed_members else b"",
                gang.models,
                spec_key(gang.placed_claims) if gang.placed_claims else b"",
                gang.kept,
                gang.avoid,
                gang.refused,
                tuple(
                    (
                        member.needs,
                        member.subgroup,
                        member.worker_group,
                        tuple(self._spec(claims[key].spec) for key in member.claims if key in claims),
                    )
                    for member in gang.members
                ),
                tuple(claim.key for claim in gang.claims if claim.allocation is not None),
            )
        )
        self._kinds[id(gang)] = (gang, number)
        return number

    def _spec(self, spec: resource.ResourceClaimSpec) -> int:
        known = self._spec_of.get(id(spec))
        if known is None:
            number = self._specs.setdefault(spec_key(spec), len(self._specs))
            known = self._spec_of[id(spec)] = (spec, number)
        return known[1]

    def _number(self, content: object) -> int:
        return self._numbers.setdefault(content, len(self._numbers))


class PendingWindow:
    def __init__(self, gangs: Iterable[GangRequest], kinds: Kinds, *, most: int) -> None:
        self._kinds = kinds
        self._most = most
        self._waiting: dict[int, dict[str, GangRequest]] = {}  # by kind, in order of age; then by gang id
        self._each: dict[int, int] = {}
        self._hidden = False  # there were more kinds than `most`
        for gang in sorted(gangs, key=_age):
            self._waiting.setdefault(kinds.of(gang), {})[gang.id] = gang

    def __bool__(self) -> bool:
        return any(self._waiting.values())

    def all(self) -> list[GangRequest]:
        return [gang for line in self._waiting.values() for gang in line.values()]

    def __contains__(self, gang: GangRequest) -> bool:
        return gang.id in self._waiting.get(self._kinds.of(gang), ())

    def shown(self) -> tuple[GangRequest, ...]:
        """Those that the next decision looks at, in order of their ids."""
        queues: dict[object, list[GangRequest]] = {}
        for kind, gangs in self._waiting.items():
            each = self._each.get(kind, EACH)
            for _, gang in zip(range(each), gangs.values(), strict=False):
                queues.setdefault(gang.queue or ("", gang.namespace), []).append(gang)
        for line in queues.values():
            line.sort(key=lambda gang: (not (gang.preemptor or gang.replaces), -gang.priority, *_age(gang)))
        found: list[GangRequest] = []
        for turn in zip_longest(*queues.values()):
            if len(found) >= self._most:
                break
            found += [gang for gang in turn if gang is not None]
        self._hidden = len(found) < sum(map(len, queues.values()))
        return tuple(sorted(found, key=lambda gang: gang.id))

    def started(self, shown: Iterable[GangRequest], admitted: set[str]) -> bool:
        """Takes the admitted ones out. Whether more of their kinds wait that were not shown: then decide again."""
        stays: set[int] = set()
        went: dict[int, int] = {}
        for gang in shown:
            kind = self._kinds.of(gang)
            if gang.id in admitted:
                del self._waiting[kind][gang.id]
                went[kind] = went.get(kind, 0) + 1
            else:
                stays.add(kind)
        again = bool(went) and self._hidden
        for kind in went.keys() - stays:
            if self._waiting[kind]:
                again = True
                self._each[kind] = min(EACH_MAX, 2 * self._each.get(kind, EACH))
            else:
                del self._waiting[kind]
        for kind in stays:
            self._each.pop(kind, None)
        return again

    def add(self, gang: GangRequest) -> None:
        kind = self._kinds.of(gang)
        line = self._waiting.setdefault(kind, {})
        line[gang.id] = gang
        self._waiting[kind] = {each.id: each for each in sorted(line.values(), key=_age)}

    def replace(self, before: GangRequest, gang: GangRequest) -> None:
        line = self._waiting[self._kinds.of(before)]
        del line[before.id]
        self.add(gang)


def _age(gang: GangRequest) -> tuple[float, str]:
    return (gang.created, gang.uid)


Place = tuple[int, float, str, int]  # in a line; the last makes it unique


def at_pace(
    left: Iterable[GangRequest],
    *,
    now: float,
    until: float,
    queue_of: Callable[[GangRequest], str],
    devices_of: Callable[[GangRequest], int],
    run_s_of: Callable[[GangRequest], float],
    running: Mapping[str, Sequence[tuple[float, int]]],
    coming: Iterable[tuple[float, GangRequest]] = (),
) -> dict[str, float]:
    """Start by gang id, unix seconds, of those that start before `until`. `running`: of the gangs of each queue when they end, and how
    many devices they hold. `coming`: in order of time, what is submitted when; it may go on beyond `until`.

    A queue that holds nothing counts with an equal part of what every other gang holds, and where no gang runs nothing comes free; a
    gang that asks for more than its queue holds starts when all that it holds has come free.
    """
    lines: dict[str, list[GangRequest]] = {}
    for gang in left:
        lines.setdefault(queue_of(gang), []).append(gang)
    if not lines or not any(running.values()):
        return {}
    arrivals: dict[str, list[tuple[float, GangRequest]]] = {}
    for at, gang in coming:
        if at > until:
            break
        arrivals.setdefault(queue_of(gang), []).append((at, gang))
    everywhere = [(end, devices / len(lines)) for each in running.values() for end, devices in each]
    starts: dict[str, float] = {}
    for queue, line in lines.items():
        pace = _Pace(list(running.get(queue, ())) or list(everywhere), now, devices_of, run_s_of)
        starts |= pace.starts(line, arrivals.get(queue, ()), until)
    return starts


class _Pace:
    """The pace of one queue. `ends`: of its gangs, with the devices that they hold."""

    def __init__(
        self,
        ends: list[tuple[float, float]],
        now: float,
        devices_of: Callable[[GangRequest], int],
        run_s_of: Callable[[GangRequest], float],
    ) -> None:
        heapify(ends)
        self._ends = ends
        self._held = sum(devices for _, devices in ends)
        self._free = 0.0
        self._now = now
        self._devices_of = devices_of
        self._run_s_of = run_s_of

    def starts(
        self, line: Sequence[GangRequest], arrivals: Sequence[tuple[float, GangRequest]], until: float
    ) -> dict[str, float]:
        waiting = [(_place(gang, gang.created, number), gang) for number, gang in enumerate(line)]
        heapify(waiting)
        wanted, starts = {gang.id for gang in line}, {}
        come = 0
        while True:
            for gang in self._begin(waiting):
                if gang.id in wanted:
                    wanted.remove(gang.id)
                    starts[gang.id] = self._now
            end = self._ends[0][0] if self._ends else inf
            arrival = arrivals[come][0] if come < len(arrivals) else inf
            if not wanted or min(end, arrival) > until:
                return starts
            self._now = max(self._now, min(end, arrival))
            if end <= arrival:
                self._free += heappop(self._ends)[1]
            else:
                gang = arrivals[come][1]
                come += 1
                heappush(waiting, (_place(gang, arrival, -come), gang))

    def _begin(self, waiting: list[tuple[Place, GangRequest]]) -> Iterable[GangRequest]:
        """What starts now, in order; the first that does not fit lets none pass."""
        while waiting:
            devices = min(float(self._devices_of(waiting[0][1])), self._held)
            if self._free < devices and self._ends:
                return
            gang = heappop(waiting)[1]
            self._free -= devices
            heappush(self._ends, (self._now + self._run_s_of(gang), devices))
            yield gang


def _place(gang: GangRequest, created: float, number: int) -> Place:
    return (-gang.priority, created, gang.uid, number)
