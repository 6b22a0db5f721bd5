"""From when to when gangs held devices, hold them, and are forecast to: the ledger's spans, today's claims and forecasts as one list; pure.

A run is the time in which a gang held at least one device without a break: one that was evicted and started again has two. What holds
devices now counts from the ledger or, where that does not know it, from its claims' allocation on. Times are unix seconds.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, NamedTuple

from fairlead.controller.gangs.claims.allocations import allocated_at, allocated_node, results
from fairlead.history.ledger.entries import Span
from fairlead.kube import timestamps
from fairlead.kube.containment import computed
from fairlead.kube.resource import ResourceClaim
from fairlead.kube.resources import Raw
from fairlead.kube.timestamps import SECOND_US
from fairlead.ui.model.facts import Facts, Holder, Past
from fairlead.ui.model.gangs import evicted_at
from fairlead.ui.model.holders import holders
from fairlead.ui.model.scope import EVERYTHING, Scope

State = Literal["ran", "runs", "waits"]
BREAK_S = 2.0  # between two claims of one gang that count as one run: times of claims are whole seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """`gang`: namespace/name; of what is in no gang, of the claim, and `is_gang` is false. `devices`: the most at once; None: not known.

    `end` of what waits is its p50, None where none is forecast; `p90` likewise. `ended`: why it ended, as the ledger says; "" where that
    is not known. `lost`: its work was lost to an eviction. `never`: it cannot start on this cluster. `position`: in its queue.
    """

    gang: str
    queue: str
    state: State
    start: float
    end: float | None
    devices: int | None = None
    nodes: tuple[str, ...] = ()
    is_gang: bool = True
    ended: str = ""
    lost: bool = False
    p90: float | None = None
    never: bool = False
    position: int | None = None


class _Piece(NamedTuple):
    """A device that was held."""

    start: float
    end: float
    node: str
    queue: str
    goes_on: bool
    ended: str
    lost: bool


class _Key(NamedTuple):
    gang: str
    is_gang: bool
    node: str  # "" where nodes are not told apart

    @property
    def namespace(self) -> str:
        return self.gang.partition("/")[0]


def runs(facts: Facts, past: Past, *, since: float, scope: Scope = EVERYTHING, by_node: bool = False) -> list[Run]:
    """Those that end after `since`, and all that wait. `by_node`: each node's part of a run is a run of its own, and none waits.

    `facts` are those of the viewer; of the past what is in namespaces of the scope is taken.
    """
    now_held = _held_now(facts, by_node=by_node)
    found: list[Run] = []
    going: set[str] = set()
    for key, of_gang in _past_runs(past, by_node=by_node).items():
        if not scope.sees(key.namespace):
            continue
        *before, last = of_gang
        now = now_held.pop(key, None)
        if now is not None and last.state != "runs" and not _joins(now, last):
            now_held[key] = now
        elif now is not None:
            last = replace(
                last, state="runs", end=facts.at, devices=len(now), queue=now[0].queue or last.queue, ended=""
            )
        elif last.state == "runs" and facts.claims:
            last = replace(last, state="ran")  # claims are read, and none is its
        if last.state == "runs":
            going.add(key.gang)
        found += [each for each in before if each.end is None or each.end > since]
        if last.end is None or last.end > since:
            found.append(last)
    for key, held in now_held.items():
        held.sort()
        found.append(replace(_run(key, held, facts.at), state="runs"))
    found += _without_claims(facts, going, by_node=by_node)
    return found if by_node else found + list(waiting(facts.gangs, at=facts.at))


def ledger_runs(past: Past, *, since: float, scope: Scope = EVERYTHING, by_node: bool = False) -> list[Run]:
    """As `runs`, of the ledger alone: what went on at the end of its window is `runs`."""
    every = _past_runs(past, by_node=by_node).items()
    return [
        run for key, found in every if scope.sees(key.namespace) for run in found if run.end is None or run.end > since
    ]


def past_runs(past: Past, gang: str) -> tuple[Run, ...]:
    """The runs of one gang, namespace/name, as the ledger saw them, in order of time; one that went on then is `runs`."""
    return _past_runs(past, by_node=False).get(_Key(gang, True, ""), ())


def waiting(gangs: Iterable[Raw], *, at: float) -> Iterator[Run]:
    """Gangs that wait, in their order, with their forecasts. `at`: now."""
    for raw in gangs:
        yield from computed(partial(_waiting, raw, at), partial(_without_times, raw, at))


def _without_times(raw: Raw, at: float, _: Exception) -> list[Run]:
    """A gang that cannot be read is named all the same."""
    return [Run(gang=_id(raw), queue="", state="waits", start=at, end=None)]


def _waiting(raw: Raw, at: float) -> list[Run]:
    """The run of a gang, if it waits."""
    status = raw.get("status") or {}
    if status.get("phase") != "Waiting":
        return []
    forecast = status.get("forecast") or {}
    p50, p90 = timestamps.parsed(forecast.get("p50")), timestamps.parsed(forecast.get("p90"))
    return [
        Run(
            gang=_id(raw),
            queue=str(status.get("queue") or ""),
            state="waits",
            start=_queued(raw, at),
            end=None if p50 is None else max(p50, at),
            p90=None if p90 is None else max(p90, p50 or p90, at),
            never=bool(forecast.get("never")),
            position=status.get("position"),
        )
    ]


def _of_span(span: Span) -> _Piece:
    return _Piece(
        min(span.allocated_us, span.start_us) / SECOND_US,  # a span is cut to the window that was read
        span.end_us / SECOND_US,
        span.node,
        span.queue,
        span.goes_on,
        span.ended_by,
        span.lost,
    )


def _held_now(facts: Facts, *, by_node: bool) -> dict[_Key, list[_Piece]]:
    """What claims hold now, from their allocation on."""
    known: Mapping[str, Holder] = (
        facts.hardware.holders if facts.hardware is not None else holders(facts.claims, facts.pods, facts.gangs)
    )
    found: dict[_Key, list[_Piece]] = {}
    for claim in facts.claims:
        holder = known.get(claim.metadata.uid, Holder())
        pieces = computed(
            partial(_pieces_of, claim, holder, facts.at, by_node=by_node), partial(_unreadable, claim, facts.at)
        )
        for key, piece in pieces:
            found.setdefault(key, []).append(piece)
    return found


def _pieces_of(claim: ResourceClaim, holder: Holder, at: float, *, by_node: bool) -> list[tuple[_Key, _Piece]]:
    """One of each device that the claim holds."""
    found: list[tuple[_Key, _Piece]] = []
    for device in results(claim):
        node = allocated_node(claim) or device.pool
        key = _Key(holder.gang or _name(claim), bool(holder.gang), node if by_node else "")
        found.append((key, _Piece(_since(claim, holder, at), at, node, holder.queue, True, "", False)))
    return found


def _unreadable(claim: ResourceClaim, at: float, _: Exception) -> list[tuple[_Key, _Piece]]:
    """The run of a claim that cannot be read, under the claim's own name, from now on."""
    return [(_Key(_name(claim), False, ""), _Piece(at, at, "", "", True, "", False))]


def _name(claim: ResourceClaim) -> str:
    return f"{claim.metadata.namespace}/{claim.metadata.name}"


def _since(claim: ResourceClaim, holder: Holder, now: float) -> float:
    try:
        at = allocated_at(claim, ()) if holder.since is None else holder.since
    except ValueError:
        return now
    return min(now, at or now)


def _past_runs(past: Past, *, by_node: bool) -> Mapping[_Key, tuple[Run, ...]]:
    """The runs of each gang in order of time; kept with the past."""
    made: Mapping[_Key, tuple[Run, ...]] | None = past.made.get(("runs", by_node))
    if made is None:
        pieces: dict[_Key, list[_Piece]] = {}
        for span in past.spans:
            key = _Key(f"{span.namespace}/{span.gang or span.claim}", bool(span.gang), span.node if by_node else "")
            pieces.setdefault(key, []).append(_of_span(span))
        made = past.made["runs", by_node] = {key: tuple(_merged(key, of_gang)) for key, of_gang in pieces.items()}
    return made


def _merged(key: _Key, pieces: list[_Piece]) -> Iterator[Run]:
    """Runs of one gang: pieces that overlap or follow one another are one."""
    pieces.sort()
    begin, until = 0, pieces[0].end
    for place in range(1, len(pieces) + 1):
        if place < len(pieces) and pieces[place].start <= until + BREAK_S:
            until = max(until, pieces[place].end)
            continue
        yield _run(key, pieces[begin:place], until)
        if place < len(pieces):
            begin, until = place, pieces[place].end


def _joins(now: list[_Piece], last: Run) -> bool:
    """Whether it holds devices without a break since its last run."""
    return last.end is not None and min(each.start for each in now) <= last.end + BREAK_S


def _run(key: _Key, pieces: list[_Piece], until: float) -> Run:
    last = max(pieces, key=lambda each: each.end)
    return Run(
        gang=key.gang,
        is_gang=key.is_gang,
        queue=last.queue,
        state="runs" if any(each.goes_on for each in pieces) else "ran",
        start=pieces[0].start,
        end=until,
        devices=_most(pieces),
        nodes=tuple(dict.fromkeys(each.node for each in pieces)),
        ended=next((each.ended for each in pieces if each.ended and each.end == until), last.ended),
        lost=any(each.lost for each in pieces),
    )


def _most(pieces: list[_Piece]) -> int:
    """Held at once; `pieces` are in order of their start."""
    ends: list[float] = []
    most = 0
    for each in pieces:
        while ends and ends[0] <= each.start:
            heapq.heappop(ends)
        heapq.heappush(ends, each.end)
        most = max(most, len(ends))
    return most


def _without_claims(facts: Facts, seen: Collection[str], *, by_node: bool) -> Iterator[Run]:
    """Gangs that run by their status, where claims are not read: a snapshot's, or those of a viewer who may not list them."""
    if facts.claims:
        return
    for raw in facts.gangs:
        status = raw.get("status") or {}
        if status.get("phase") not in {"Admitted", "Running"} or _id(raw) in seen:
            continue
        start = timestamps.parsed(status.get("admittedTime"))
        nodes = tuple(map(str, status.get("nodes") or ()))
        for own in [(node,) for node in nodes] if by_node else [nodes]:
            yield Run(
                gang=_id(raw),
                queue=str(status.get("queue") or ""),
                state="runs",
                start=_queued(raw, facts.at) if start is None else start,
                end=facts.at,
                nodes=own,
            )


def _queued(raw: Raw, now: float) -> float:
    """Since when it waits: since it is queued, or its eviction after that."""
    status = raw.get("status") or {}
    created = timestamps.parsed(status.get("queuedTime") or raw["metadata"].get("creationTimestamp"))
    known = [each for each in (created, evicted_at(status)) if each is not None]
    return min(now, max(known, default=now))


def _id(raw: Raw) -> str:
    return f"{raw['metadata'].get('namespace', '')}/{raw['metadata']['name']}"
