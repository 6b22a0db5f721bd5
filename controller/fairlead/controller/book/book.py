"""The book of gangs of one term of leadership: what it knows of each and has under way for it, beside what pods and claims show.

    book[gang_id].backoff            what is known of one gang; None: nothing
    book.all(GangState.backoff)      of those that have one, by id
    book.forget(gang_id)             its members are gone: what is theirs goes with them

`GangState` is the one list of it: whatever is kept of a gang is a field there, which says whether it outlives the gang's members.
A field is a column: most gangs, which have few of the fields, cost little, and "which gangs back off" costs what these cost. The
order of a column is that in which its gangs got their entry. Only the term knows it: what must survive the process is in the
cluster. Times are unix seconds. Decides nothing, reads no clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar, overload

from fairlead.api.trace_context import TraceContext
from fairlead.controller.book.shown import SchedulingState, ShownForecast
from fairlead.controller.gangs.evictions.moved import Held
from fairlead.controller.gangs.held.vacancies import Vacancy
from fairlead.controller.gangs.membership.gangs import Gang, GangId
from fairlead.engine.types.gangs import GangRequest, RunningGang
from fairlead.engine.types.plan import Admission, Eviction, NodeDemand, Reservation, Waiting
from fairlead.kube.tracing import Value

T = TypeVar("T")
Columns = dict["Field[Any]", dict[GangId, Any]]


class Row:
    """One gang in the columns of a book. Holds nothing itself: it is current whenever it is read."""

    __slots__ = ("columns", "id")

    def __init__(self, gang_id: GangId, columns: Columns) -> None:
        self.id = gang_id
        self.columns = columns


class Field(Generic[T]):
    """`outlives`: kept when the gang's members are gone (`Book.forget`); who sets it says when it ends."""

    def __init__(self, *, outlives: bool = False) -> None:
        self.outlives = outlives

    @overload
    def __get__(self, row: None, owner: type) -> Field[T]: ...
    @overload
    def __get__(self, row: Row, owner: type) -> T | None: ...
    def __get__(self, row: Row | None, owner: type) -> Field[T] | T | None:
        return self if row is None else row.columns[self].get(row.id)

    def __set__(self, row: Row, value: T | None) -> None:
        if value is None:
            row.columns[self].pop(row.id, None)
        else:
            row.columns[self][row.id] = value


@dataclass(slots=True)
class Backoff:
    """How long a gang whose admission failed is not requested."""

    why: str = ""  # of the last failure
    failures: int = 0  # in a row
    until: float = 0.0  # 0: over
    avoid: dict[str, float] = field(default_factory=dict)  # node: until when
    queued_since: float | None = None  # of the gang that was rolled back


@dataclass(slots=True)
class Attempts:
    """Attempts to evict a gang whose pods are marked."""

    refused: str = ""  # why the last one was
    failures: int = 0  # in a row
    at: float = 0.0  # the last
    retry_at: float = 0.0


@dataclass(slots=True)
class Move:
    """A place that is held for a gang which is being moved."""

    held: Held
    queue: str | None  # that is charged for it
    owner: str = ""  # UID of the owner of a gang of one


@dataclass(slots=True)
class Replacement:
    """Members of a running gang that are being replaced."""

    places: dict[str, Vacancy] = field(default_factory=dict)  # of members that run, by pod UID
    vacant: dict[str, Vacancy] = field(default_factory=dict)  # of members lost, oldest first
    lifted: tuple[Vacancy, ...] = ()  # of these, free while a decision is made
    short_since: float | None = None
    given_up: bool = False


class NodesAsked(NamedTuple):
    since: float
    devices: int  # that the flavor had then


class Rollout(NamedTuple):
    """The part of a gang in the rollout of its workload."""

    workload: tuple[str, str]  # namespace, and Kind/name
    generation: str
    holds: bool  # pods of it are released, and not all are leaving


@dataclass(slots=True)
class Report:
    """What is to be written into a gang's status."""

    gang: Gang
    state: SchedulingState
    soon: object = None  # what is written soon when it changes
    reason: str = ""
    admitting_since: float | None = None  # of the clock
    written: tuple[Gang, SchedulingState, str | None] | None = None  # the last; with the object's version then


class Wait(NamedTuple):
    queue: str
    at: float


@dataclass(slots=True, kw_only=True)
class Trace:
    """The trace of a gang on its way from creation to its containers."""

    at: TraceContext
    parent: int | None
    links: tuple[TraceContext, ...]
    attributes: dict[str, Value]
    began_s: float
    waits_since_s: float
    admitted: frozenset[str] = frozenset()  # UIDs of the pods that were released
    released_s: float | None = None


Said = tuple[str, str]
"""A pod's UID, and the text."""


@dataclass(slots=True)
class Looks:
    """At the Events of a pod of the gang that does not start."""

    due: float
    wait_s: float
    said: Said | None = None


class GangState(Row):
    __slots__ = ()

    # What it asks for and holds, for the next decision; what the last one said.
    request = Field[GangRequest]()
    holding = Field[RunningGang](outlives=True)  # until its leftovers are known to be gone
    running_since = Field[
        float
    ]()  # so that a gang of which one member after the other is replaced keeps its min-runtime
    rollout = Field[Rollout](outlives=True)
    behind = Field[tuple[GangRequest, GangRequest]]()  # what was requested, and the same with predecessors
    waiting = Field[Waiting]()
    reservation = Field[Reservation](outlives=True)  # until the next decision

    # Its admission, or another write: one task at a time.
    busy = Field[bool](outlives=True)  # a task writes to it, or it settles
    admission = Field[Admission](outlives=True)  # that is being written
    assumed = Field[Admission](outlives=True)  # whose devices and nodes count as taken
    settles_until = Field[float](outlives=True)
    tried = Field[Mapping[str, float]]()  # `recovery.tried_at`: by pod UID
    backoff = Field[Backoff](outlives=True)  # a gang that was rolled back is evicted, and made again

    # Its eviction, and those for it.
    evicting = Field[Eviction](outlives=True)  # decided; the marks are being written
    attempts = Field[Attempts]()
    exempt_until = Field[float]()  # it could not be evicted: no victim so long
    evicted_for = Field[GangId](outlives=True)  # as its marks say
    victims = Field[set[GangId]](outlives=True)  # gangs that are evicted for it, as their marks say
    decided_for = Field[int](outlives=True)  # of `evicting`, how many are for it
    preempting_since = Field[float]()  # when the first gang was evicted for it
    noticed_at = Field[float]()  # it may leave a node that goes: since when that is known

    # Its places: moved to, and of members that are replaced.
    move = Field[Move](outlives=True)
    move_decided = Field[bool](outlives=True)  # the marks are being written
    moved_at = Field[float](outlives=True)  # the place was taken or given up
    moves_to = Field[Held](outlives=True)  # of the gang that takes the place, while a decision is made
    replacement = Field[Replacement](outlives=True)

    # Nodes: those that are asked for it, and those that are kept for its pods.
    demand = Field[NodeDemand](outlives=True)
    nodes_asked = Field[NodesAsked](outlives=True)
    nodes_read = Field[bool](outlives=True)  # the Gang object was asked since when nodes are asked for
    nodes_request = Field[tuple[GangRequest, GangRequest]](
        outlives=True
    )  # what was requested, and the same with since when
    nodes_note = Field[str](outlives=True)  # what the cluster answered
    shown = Field[bool]()  # pods of it are shown to autoscalers
    rewrites = Field[Counter[str]]()  # how often each pod was shown, by UID
    show_again_at = Field[float](outlives=True)  # its pods could not be shown or hidden
    nominated = Field[bool](outlives=True)  # a pod of it is nominated to a node, or is to be
    coming = Field[frozenset[str]](outlives=True)  # nodes that pods of it are on their way to

    # When it is looked at though nothing changed.
    deadline = Field[float](outlives=True)

    # What is said of it.
    forecast = Field[ShownForecast]()
    report = Field[Report]()
    phase = Field[str](outlives=True)  # as it is counted
    wait = Field[Wait](outlives=True)  # until it is counted
    trace = Field[Trace](outlives=True)  # until its spans are told
    evicting_since_s = Field[float]()
    living = Field[frozenset[str]]()  # UIDs of its members, as its status had them last
    without_job_since = Field[float](outlives=True)  # evicted, and without pods
    looks = Field[Looks]()
    start_noted = Field[float]()  # when the run began whose start was learned from

    @property
    def admitting(self) -> bool:
        """Whether its admission is being written, or it settles."""
        return self.admission is not None or self.settles_until is not None


FIELDS = tuple(each for each in vars(GangState).values() if isinstance(each, Field))
LAPSE = tuple(each for each in FIELDS if not each.outlives)


class Book:
    def __init__(self) -> None:
        self._columns: Columns = {each: {} for each in FIELDS}

    def __getitem__(self, gang_id: GangId) -> GangState:
        return GangState(gang_id, self._columns)

    def all(self, field: Field[T]) -> Mapping[GangId, T]:
        """By gang, in the order in which they got it, for those that have one. Follows every change."""
        return self._columns[field]

    def take(self, gang_id: GangId, field: Field[T]) -> T | None:
        """What the gang has; afterwards it has none."""
        found: T | None = self._columns[field].pop(gang_id, None)
        return found

    def replace(self, field: Field[T], found: Mapping[GangId, T]) -> None:
        """These gangs have one, and no others."""
        self._columns[field].clear()
        self._columns[field].update(found)

    def keep(self, field: Field[T], gangs: Container[GangId]) -> None:
        """Only these gangs go on having one."""
        column = self._columns[field]
        for gang_id in [gang_id for gang_id in column if gang_id not in gangs]:
            del column[gang_id]

    def forget(self, gang_id: GangId) -> None:
        """The gang has no members left."""
        for each in LAPSE:
            self._columns[each].pop(gang_id, None)
