"""What becomes of a gang, as spans of its trace: gang ⊃ wait, decide, commit ⊃ (write claims, release pods), start; evict.

A gang's trace is that of its oldest pending member's annotation; where there is none, one that `trace_context` makes of its namespace,
name and owner. The span `gang` lasts from that pod's creation until all containers run. It has the id that the annotation names where
Fairlead began the trace, so that what the webhook wrote below that id belongs to it; under a user's span it is a child. A gang that was
evicted, or whose members are replaced, has another span `gang` in the same trace. Members with other traces are linked.
Times of the apiserver and of kubelet are whole seconds: creation and start are taken as the end of theirs, or as the moment when
they were seen where that was earlier, so that no span begins before what led to it.
Decides nothing. All is kept in memory and lost with the term; the next leader's spans begin with what it sees.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from fairlead.api import names, trace_context
from fairlead.api.trace_context import TraceContext
from fairlead.controller.book.book import Book
from fairlead.controller.book.gang_state import GangState, Trace
from fairlead.controller.gangs.evictions import past_evictions
from fairlead.controller.gangs.evictions.eviction_marks import EvictionMark
from fairlead.controller.gangs.membership.gangs import Gang, GangId, created_s, starts_s
from fairlead.controller.gangs.membership.members import Member
from fairlead.controller.watch.caches import Caches
from fairlead.engine.types.plan import Admission, Waiting
from fairlead.kube.timing import Time
from fairlead.kube.tracing import OFF, Span, Tracing, Value

TEXT_CHARS_MAX = 1_000
LINKS_MAX = 16
ENDED_MAX = 16_384  # traces of which the first span `gang` was made
SECOND_S = 1.0
STARTED = frozenset({"Running", "Succeeded", "Failed"})  # phases of pods


class GangTraces:
    """`ratio`: which part of the gangs is traced that neither their users nor the webhook gave a trace."""

    def __init__(self, tracing: Tracing, caches: Caches, book: Book, *, ratio: float, time: Time) -> None:
        self._tracing = tracing
        self._caches = caches
        self._ratio = ratio
        self._clock, self._wall = time.clock, time.wall
        self._book = book
        self._runs = book.all(GangState.trace)
        self._on = tracing is not OFF
        self._ended: OrderedDict[int, None] = OrderedDict()

    # -- on the way to its containers ------------------------------------------------------------------------------

    def seen(self, gang: Gang, now: float) -> None:
        """The gang changed, or is new."""
        if not self._on:
            return
        run = self._runs.get(gang.id)
        if run is None:
            if gang.gated:
                self._open(gang, gang.gated, now)
            elif any(each.pod.status.phase == "Pending" and not each.terminating for each in gang.released):
                run = self._open(gang, gang.released, now)  # another leader released it
                run.admitted, run.released_s = frozenset(each.uid for each in gang.released), now
            return
        if run.released_s is None:
            return
        pods = [each for each in gang.members if each.uid in run.admitted]
        if not pods or any(each.terminating for each in pods):
            self._end(gang.id, run, now, error="its pods are gone before all of them ran")
        elif all(each.pod.status.phase in STARTED for each in pods):
            ended_s = max(
                run.released_s,
                min(now, max((at for each in pods for at in starts_s(each.pod)), default=0.0) + SECOND_S),
            )
            self._child(run, "start", run.released_s, ended_s, {"fairlead.pods": len(pods)})
            self._end(gang.id, run, ended_s)

    def decided(self, gang: Gang, admission: Admission, waiting: Waiting | None, decided: tuple[float, float]) -> None:
        """Its admission was decided. `waiting`: what the decision before said of it; `decided`: begin and end, of the clock."""
        if not self._on:
            return
        now = self._wall()
        run = self._runs.get(gang.id) or self._open(gang, gang.gated or gang.members, now)
        began_s, ended_s = map(self._wall_time, decided)
        run.attributes["fairlead.queue"] = admission.queue
        reason: dict[str, Value] = {"fairlead.queue": admission.queue}
        if waiting is not None:
            reason["fairlead.reason"] = waiting.reason.code.value
            reason["fairlead.reason.message"] = str(waiting.reason)[:TEXT_CHARS_MAX]
            if waiting.place is not None:
                reason["fairlead.position"] = waiting.place
        self._child(run, "wait", min(run.waits_since_s, began_s), began_s, reason)
        nodes = len({assigned.node for assigned in admission.assignments})
        about: dict[str, Value] = {"fairlead.pods": len(admission.assignments), "fairlead.nodes": nodes}
        self._child(run, "decide", began_s, ended_s, about)
        run.admitted = frozenset(assigned.pod.uid for assigned in admission.assignments)

    def annotations(self, gang: Gang) -> Mapping[str, str]:
        """For claims that are made for the gang, by which the driver's spans are of its trace."""
        run = self._runs.get(gang.id)
        return {} if run is None else {names.TRACEPARENT: str(run.at)}

    def committed(self, gang_id: GangId, *, began: float, written_s: float | None, why: str) -> None:
        """Its admission was carried out, or undone for a reason.

        `began` is of the clock, `written_s` unix seconds: when its claims were written; None where they were not.
        """
        run = self._runs.get(gang_id)
        if run is None:
            return
        began_s, ended_s = self._wall_time(began), self._wall()
        commit = self._child(run, "commit", began_s, ended_s, {}, error=why)
        if written_s is not None:
            for name, since_s, until_s in (("write claims", began_s, written_s), ("release pods", written_s, ended_s)):
                self._add(commit.span(name), commit.span_id, name, since_s, until_s, {})
        if why:
            run.waits_since_s, run.admitted = ended_s, frozenset()
        else:
            run.released_s = ended_s

    def gone(self, gang_id: GangId) -> None:
        """The gang has no members left."""
        run = self._runs.get(gang_id)
        if run is None:
            return
        now = self._wall()
        if not run.admitted:
            self._child(run, "wait", run.waits_since_s, now, {})
        self._end(gang_id, run, now, error="it is gone before it ran")

    # -- evictions -------------------------------------------------------------------------------------------------

    def eviction_begun(self, gang_id: GangId) -> None:
        """It was decided; its pods are being marked."""
        if self._on:
            self._book[gang_id].evicting_since_s = self._wall()

    def eviction_ended(self, gang: Gang, mark: EvictionMark, pods: int, *, why: str = "") -> None:
        """`pods` of them were evicted, or none, for a reason."""
        if not self._on or not gang.members:
            return
        now = self._wall()
        found, own = self._named(gang, gang.released or gang.members)
        at = found if found.begun_here else own  # the span `gang` that was made, or the first one of its trace
        since = self._book.take(gang.id, GangState.evicting_since_s)
        self._add(
            at.span("evict", repr(now)),
            at.span_id,
            "evict",
            min(now, mark.at if since is None else since),
            now,
            {
                **_about(gang),
                "fairlead.eviction.kind": mark.kind,
                "fairlead.eviction.for": mark.beneficiary,
                "fairlead.reason.message": mark.why[:TEXT_CHARS_MAX],
                "fairlead.pods": pods,
            },
            error=why,
        )

    # -- spans -----------------------------------------------------------------------------------------------------

    def _open(self, gang: Gang, members: tuple[Member, ...], now: float) -> Trace:
        at, parent = self._context(gang, members)
        began_s = min(created_s(each.pod) for each in members)
        run = Trace(
            at=at,
            parent=parent,
            links=_links(at, members),
            attributes=_about(gang),
            began_s=min(now, began_s),
            waits_since_s=min(now, began_s + SECOND_S),
        )
        self._book[gang.id].trace = run
        return run

    def _context(self, gang: Gang, members: tuple[Member, ...]) -> tuple[TraceContext, int | None]:
        """The span `gang` of these members that is to be made, and its parent; an earlier leader may have made the first."""
        found, own = self._named(gang, members)
        if found.begun_here and found.trace_id not in self._ended:
            raw = self._caches.gang_object(gang.id)
            if raw is None or past_evictions.past_eviction(raw, self._wall()) is None:
                return found, None
        return own, found.span_id

    def _named(self, gang: Gang, members: tuple[Member, ...]) -> tuple[TraceContext, TraceContext]:
        """The context that the oldest of these members names, and the span `gang` of that member below it."""
        first = min(members, key=lambda each: (created_s(each.pod), each.pod.metadata.name)).pod.metadata
        found = trace_context.of(first.annotations)
        if found is None:
            owner = first.controller
            of = (first.uid,) if gang.solo else (gang.namespace, gang.name, owner.uid if owner else "")
            found = trace_context.begin(*of, ratio=self._ratio)
        return found, found.span("gang", gang.namespace, gang.name, first.uid)

    def _end(self, gang_id: GangId, run: Trace, ended_s: float, *, error: str = "") -> None:
        self._book[gang_id].trace = None
        self._add(run.at, run.parent, "gang", run.began_s, ended_s, run.attributes, error=error, links=run.links)
        self._ended[run.at.trace_id] = None
        if len(self._ended) > ENDED_MAX:
            self._ended.popitem(last=False)

    def _child(
        self, run: Trace, name: str, began_s: float, ended_s: float, attributes: Mapping[str, Value], error: str = ""
    ) -> TraceContext:
        at = run.at.span(name, repr(began_s))
        self._add(at, run.at.span_id, name, began_s, ended_s, attributes, error=error)
        return at

    def _add(
        self,
        at: TraceContext,
        parent: int | None,
        name: str,
        began_s: float,
        ended_s: float,
        attributes: Mapping[str, Value],
        *,
        error: str = "",
        links: tuple[TraceContext, ...] = (),
    ) -> None:
        if at.sampled:
            self._tracing.add(
                Span(
                    name=name,
                    at=at,
                    parent=parent,
                    began_s=began_s,
                    ended_s=ended_s,
                    attributes=attributes,
                    error=error[:TEXT_CHARS_MAX],
                    links=links,
                )
            )

    def _wall_time(self, clock_s: float) -> float:
        return self._wall() - (self._clock() - clock_s)


def _about(gang: Gang) -> dict[str, Value]:
    return {
        "k8s.namespace.name": gang.namespace,
        "fairlead.gang.name": gang.name,
        "fairlead.gang.size": gang.size,
    }


def _links(at: TraceContext, members: tuple[Member, ...]) -> tuple[TraceContext, ...]:
    """The other traces that members are in."""
    texts = {each.pod.metadata.annotations.get(names.TRACEPARENT, "") for each in members}
    others: dict[int, TraceContext] = {}
    for text in sorted(texts)[: 2 * LINKS_MAX]:
        found = trace_context.of({names.TRACEPARENT: text})
        if found is not None and found.trace_id != at.trace_id:
            others.setdefault(found.trace_id, found)
    return tuple(others.values())[:LINKS_MAX]
