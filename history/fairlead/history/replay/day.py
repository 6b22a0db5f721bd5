"""What a recording says of a span of time: which gangs came when, how long they ran, and what became of the cluster meanwhile.

A gang is known by its id and the time since which it waits: pods that an eviction replaced are the same gang. Times are those of the
decisions that saw a change first. `run_s` is the length of its last run; a run that the recording does not see the end of is as long as
it was seen, and counts as `open`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from fairlead.history.facts import form, read
from fairlead.history.recording.errors import RecordingError
from fairlead.history.recording.records import Decision

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fairlead.engine.types.gangs import GangRequest, RunningGang
    from fairlead.history.recording.reader import Reader

Key = tuple[str, float]  # namespace/name, waiting since
CLUSTER = ("slices", "taint_rules", "classes", "nodes", "queues", "flavors", "budgets")
OF_GANGS = ("claims", "pods")  # those of gangs are the simulation's own; others are the cluster's


@dataclass(slots=True)
class Job:
    """A gang as recorded."""

    id: str
    created: float
    arrived: float
    request: GangRequest | None = None  # None: it held its devices when the recording began, and never waited
    running: RunningGang | None = None  # as last seen
    started: float | None = None  # when it was admitted, the first time
    ended: float | None = None  # the last time; None: it ran, or waited, when the recording ended
    run_s: float | None = None  # None: it never ran
    initial: bool = False  # held its devices when the recording began
    evicted: int = 0

    @property
    def open(self) -> bool:
        return self.started is not None and self.ended is None


@dataclass(slots=True)
class Day:
    began: float = 0.0
    ended: float = 0.0
    jobs: dict[Key, Job] = field(default_factory=dict)
    withdrawn: list[tuple[float, Key]] = field(default_factory=list)  # gangs that went without having run
    cluster: list[tuple[float, form.Facts]] = field(default_factory=list)
    """Changes of the cluster, the first one whole; pods and claims of no gang among them."""
    settings: form.Settings = field(default_factory=form.Settings)
    workload: tuple[form.Demand, ...] | None = None
    mix: form.Mix = field(default_factory=form.Mix)
    decisions: int = 0


def read_day(reader: Reader) -> Day:
    """Raises RecordingError, OSError."""
    reading = _Reading()
    for found in reader:
        if isinstance(found.record, Decision):
            reading.decision(found.record)
    day = reading.day
    if not day.cluster:
        raise RecordingError("the recording holds no decision: there is nothing to live through")
    for key, since in reading.admitted.values():
        if since == day.ended and day.jobs[key].started is None:
            day.jobs[key].started = since  # with the last decision: nothing is seen of its run
    for key, since in reading.runs.values():
        day.jobs[key].run_s = max(day.ended - since, 0.0)
    _only_the_cluster(day)
    return day


class _Reading:
    def __init__(self) -> None:
        self.day = Day()
        self.runs: dict[str, tuple[Key, float]] = {}  # by gang: what runs, and since when
        self.admitted: dict[str, tuple[Key, float]] = {}  # by gang: the last time
        self._waiting: dict[str, Key] = {}
        self._known: dict[str, set[str]] = {}

    def decision(self, record: Decision) -> None:
        day, at, facts = self.day, record.at, record.facts
        first = not day.cluster
        if first:
            day.began = at
        day.ended = max(day.ended, at)
        day.decisions += 1
        if record.whole:
            facts = self._with_what_is_gone(facts)
        self._note_known(facts)
        if facts.settings is not None:
            day.settings = facts.settings
        if not isinstance(facts.workload, msgspec.UnsetType):
            day.workload, day.mix = facts.workload, facts.mix
        tables = {name: getattr(facts, name) for name in (*CLUSTER, *OF_GANGS)}
        if first or any(tables.values()):
            day.cluster.append((at, form.Facts(**tables, order={})))
        self._gangs(facts, at)
        self._running(facts, at, first=first)
        self._unseen(at)
        for admission in (record.plan or {}).get("admissions", ()):
            if (waiting := self._waiting.get(admission["gang"])) is not None:
                self.admitted[admission["gang"]] = (waiting, at)
        for eviction in (record.plan or {}).get("evictions", ()):
            if eviction["whole"] and eviction["gang"] in self.runs:
                day.jobs[self.runs[eviction["gang"]][0]].evicted += 1

    def _with_what_is_gone(self, facts: form.Facts) -> form.Facts:
        """A whole state as a change: what was there before and is not any more is gone."""
        tables: dict[str, Any] = {}
        for name, known in self._known.items():
            entries = getattr(facts, name)
            tables[name] = {**dict.fromkeys(known - entries.keys()), **entries}
        return msgspec.structs.replace(facts, **tables)

    def _note_known(self, facts: form.Facts) -> None:
        for name in (*CLUSTER, *OF_GANGS, "gangs", "running"):
            known = self._known.setdefault(name, set())
            for key, value in getattr(facts, name).items():
                if value is None:
                    known.discard(key)
                else:
                    known.add(key)

    def _gangs(self, facts: form.Facts, at: float) -> None:
        for gang_id, value in facts.gangs.items():
            if value is None:
                if (key := self._waiting.pop(gang_id, None)) is not None:
                    self.day.withdrawn.append((at, key))  # unless it runs from now on: see `_only_the_cluster`
                continue
            request = read.gang(value)
            key = (gang_id, request.created)
            self._waiting[gang_id] = key
            job = self.day.jobs.setdefault(key, Job(gang_id, request.created, at))
            if job.request is None or request.whole:
                job.request = request

    def _running(self, facts: form.Facts, at: float, *, first: bool) -> None:
        for gang_id, value in facts.running.items():
            if value is None:
                self._end(gang_id, at)
                continue
            running = read.running_gang(value)
            key = (gang_id, running.created)
            known = self.runs.get(gang_id)
            if known is not None and known[0] != key:
                self._end(gang_id, at)
                known = None
            job = self.day.jobs.setdefault(key, Job(gang_id, running.created, at, initial=first))
            job.running = running
            if known is None:
                admitted = self.admitted.pop(gang_id, None)
                since = admitted[1] if admitted is not None and admitted[0] == key else at
                if first:
                    since = running.started
                self.runs[gang_id] = (key, since)
                job.started = since if job.started is None else job.started
                job.ended = None

    def _unseen(self, at: float) -> None:
        """Runs that began with the decision before and are over: nothing else tells of them. One that waits again was undone."""
        for gang_id, (key, since) in self.admitted.items():
            if gang_id in self.runs or gang_id in self._waiting:
                continue
            job = self.day.jobs[key]
            job.started = since if job.started is None else job.started
            job.run_s, job.ended = at - since, at
        self.admitted.clear()

    def _end(self, gang_id: str, at: float) -> None:
        run = self.runs.pop(gang_id, None)
        if run is None:
            return
        key, since = run
        job = self.day.jobs[key]
        job.run_s, job.ended = max(at - since, 0.0), at


def _only_the_cluster(day: Day) -> None:
    """Takes out what belongs to gangs: the simulation makes it anew. Of gangs that ran at the beginning it is kept, once."""
    pods, claims = set[str](), set[str]()
    for job in day.jobs.values():
        if job.request is not None:
            pods |= {member.pod.uid for member in job.request.members}
            claims |= {claim.key for claim in job.request.claims}
        if job.running is not None:
            pods |= {member.pod.uid for member in job.running.members}
            claims |= set(job.running.claims)
    for place, (at, facts) in enumerate(day.cluster):
        if place:
            kept = {"pods": _without(facts.pods, pods), "claims": _without(facts.claims, claims)}
            day.cluster[place] = at, msgspec.structs.replace(facts, **kept)
    day.withdrawn = [(at, key) for at, key in day.withdrawn if day.jobs[key].started is None]


def _without(entries: dict[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    gone = set(keys)
    return {key: value for key, value in entries.items() if key not in gone}
