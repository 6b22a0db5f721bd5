"""What is said of a gang: its status, in words, from facts.

Exists so that `kubectl get gangs`, events and `fairlead explain` tell one story. Pure: a function of the gang, the plan's
verdict on it and the status written before (for the times at which conditions changed).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Any

from fairlead.api import names
from fairlead.controller.gangs.evictions import RETURN_S, Course, Past, mark_of
from fairlead.controller.gangs.gangs import Gang
from fairlead.controller.gangs.members import Member, Stage
from fairlead.controller.gangs.requests import allocated_s, blocked, node_of
from fairlead.engine.explain.explanation import explanation
from fairlead.engine.types.plan import Reservation, Waiting
from fairlead.engine.types.reasons import Code
from fairlead.kube import timestamps

MESSAGE_MAX = 4096
NODES_MAX = 1000
LISTED_MAX = 8


class Progress(StrEnum):
    """Reasons beside `reasons.Code`: how far a gang has come, rather than what stands in its way."""

    QUEUED = "Queued"
    ADMITTING = "Admitting"
    STARTING = "Starting"
    RUN = "MembersRun"
    SUCCEEDED = "PodsSucceeded"
    FAILED = "PodsFailed"
    STOPPING = "Stopping"
    EVICTED = "Evicted"
    ROLLED_BACK = "RolledBack"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The gang's place in the controller: the plan's verdict, whether it is being admitted, what went wrong last."""

    waiting: Waiting | None = None
    admitting: bool = False
    queue: str | None = None
    setback: str = ""  # why the last admission was taken back
    course: Course | None = None  # the eviction that it is in
    victims: tuple[str, ...] = ()  # gangs that are being evicted for it
    reservation: Reservation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`words` may be put together later: thousands of gangs are looked at for each one that is written."""

    phase: str
    reason: str
    words: str | Callable[[], str]

    @property
    def message(self) -> str:
        return self.words if isinstance(self.words, str) else self.words()


def verdict(gang: Gang, standing: Standing) -> Verdict:
    """Where the gang stands, and why."""
    released, gated = gang.released, gang.gated
    if not released and not gated:
        failed = gang.at(Stage.FAILED)
        if failed:
            return Verdict(
                phase="Failed",
                reason=Progress.FAILED.value,
                words=f"{len(failed)} of {len(gang.members)} pods failed",
            )
        return Verdict(phase="Finished", reason=Progress.SUCCEEDED.value, words="all pods have ended well")
    if not gated and all(member.leaving for member in released):
        count = len(released)
        what = "pod is" if count == 1 else "pods are"
        mark = next((mark for member in released if (mark := mark_of(member.pod)) is not None), None)
        why = f": evicted, {mark.story}" if mark is not None else ""
        return Verdict(
            phase="Running",
            reason=Progress.STOPPING.value,
            words=f"{count} {what} on the way out, and devices still held{why}",
        )
    if released and gang.placed >= gang.size:
        return _under_way(gang, gated, standing)
    if standing.admitting:
        return Verdict(
            phase="Admitted", reason=Progress.ADMITTING.value, words="devices are chosen; claims are being written"
        )
    problem = blocked(gang)
    if problem is not None:
        phase = "Gathering" if problem.code == "Gathering" else "Waiting"
        return Verdict(phase=phase, reason=problem.code.value, words=problem.message)
    if standing.waiting is not None:
        words = partial(_waiting, standing.waiting, standing)
        return Verdict(phase="Waiting", reason=standing.waiting.reason.code.value, words=words)
    if standing.setback:
        return Verdict(phase="Waiting", reason=Progress.ROLLED_BACK.value, words=standing.setback)
    return Verdict(phase="Waiting", reason=Progress.QUEUED.value, words="not considered yet")


def _waiting(waiting: Waiting, standing: Standing) -> str:
    message = str(waiting.reason)
    if standing.victims and waiting.reason.code is not Code.MAKING_ROOM:
        message = f"{message} Being evicted for it: {_listed(standing.victims)}."
    return f"{message} Before that: {standing.setback}." if standing.setback else message


def _under_way(gang: Gang, gated: tuple[Member, ...], standing: Standing) -> Verdict:
    ready = sum(_ready(member) for member in gang.members)
    more = ""
    if gated:
        why = f": {standing.waiting.reason}" if standing.waiting else ""
        more = f"; {len(gated)} more wait{why}"
    if standing.course is not None:
        more = f"{more}; {standing.course}"
    if ready >= gang.size:
        return Verdict(phase="Running", reason=Progress.RUN.value, words=f"{ready} of {gang.size} members run{more}")
    return Verdict(
        phase="Admitted",
        reason=Progress.STARTING.value,
        words=f"devices are given; {ready} of {gang.size} members run{more}",
    )


def _ready(member: Member) -> bool:
    runs = member.stage is Stage.RELEASED and member.pod.status.phase == "Running" and not member.leaving
    return runs or member.stage is Stage.SUCCEEDED


def gang_spec(gang: Gang) -> dict[str, Any]:
    """The Gang object's spec: what the members' annotations ask for."""
    spec: dict[str, Any] = {"size": gang.size}
    if gang.queue:
        spec["queue"] = gang.queue
    if gang.topology:
        spec["topology"] = gang.topology
    runtime = gang.members[0].pod.metadata.annotations.get(names.MIN_RUNTIME)
    if runtime and gang.min_runtime_s is not None:
        spec["minRuntime"] = runtime
    return spec


def gang_status(
    gang: Gang,
    standing: Standing,
    *,
    before: Mapping[str, Any],
    created: float,
    now: float,
    past: Past | None = None,
) -> dict[str, Any]:
    """The status to be written; equal to `before` when nothing changed but the time. `created`: when it got in line."""
    seen = verdict(gang, standing)
    seen = replace(seen, words=seen.message)  # put together once
    admitted = seen.phase in {"Admitted", "Running", "Finished", "Failed"}
    running = seen.phase == "Running"
    status: dict[str, Any] = {
        "phase": seen.phase,
        "members": len(gang.members) - len(gang.at(Stage.LEAVING)),
        "ready": sum(_ready(member) for member in gang.members),
        "reason": seen.reason,
        "message": seen.message[:MESSAGE_MAX],
    }
    queue = (
        standing.queue or (standing.waiting.queue if standing.waiting else None) or before.get("queue") or gang.queue
    )
    if queue:
        status["queue"] = queue
    if seen.phase == "Waiting" and standing.waiting is not None:
        status["position"] = standing.waiting.position
        status["why"] = explanation(standing.waiting.reason)
    nodes = sorted({node for member in gang.members if (node := node_of(member))})
    if nodes:
        status["nodes"] = nodes[:NODES_MAX]
    stamps = [
        stamp
        for member in gang.released
        for entry in member.entries
        if entry.claim is not None and (stamp := allocated_s(entry.claim))
    ]
    if admitted:
        given = timestamps.seconds(min(stamps) if stamps else now)
        status["admittedTime"] = before.get("admittedTime") or given
        status["waitSeconds"] = max(0.0, round(timestamps.parse(status["admittedTime"]) - created, 1))
    status["conditions"] = [
        _condition("Admitted", admitted, seen, before, now),
        _condition("Running", running, seen, before, now),
        *_further(standing, before, now, past=past, admitted=admitted),
    ]
    if not admitted:
        unchanged = {key: value for key, value in before.items() if key != "waitSeconds"} == status
        status["waitSeconds"] = before.get("waitSeconds", 0.0) if unchanged else max(0.0, round(now - created, 1))
    return status


def evicted_status(past: Past, before: Mapping[str, Any], now: float) -> dict[str, Any]:
    """Of a gang whose pods are all gone because it was evicted, and that is remembered until they are made anew."""
    seen = Verdict(
        phase="Gathering",
        reason=Progress.EVICTED.value,
        words=f"{past.story}; remembered until {timestamps.seconds(past.at + RETURN_S)}",
    )
    return {
        "phase": seen.phase,
        "reason": seen.reason,
        "message": seen.message[:MESSAGE_MAX],
        "members": 0,
        "ready": 0,
        "nodes": [],
        "position": None,
        "why": None,
        "conditions": [
            _condition("Admitted", False, seen, before, now),
            _condition("Running", False, seen, before, now),
            *_further(Standing(), before, now, past=past, admitted=False),
        ],
    }


def _further(
    standing: Standing, before: Mapping[str, Any], now: float, *, past: Past | None, admitted: bool
) -> list[dict[str, Any]]:
    """Conditions that most gangs never have: those that hold, and those that held."""
    told: dict[str, Verdict] = {}
    course, kept = standing.course, standing.reservation
    if course is not None:
        told["Evicting"] = Verdict(phase="", reason=course.mark.kind, words=str(course))
    if standing.victims:
        told["Preempting"] = Verdict(
            phase="", reason="Evicting", words=f"being evicted for it: {_listed(standing.victims)}"
        )
    if kept is not None:
        ready = f", expected to be free by {timestamps.seconds(kept.ready_by)}" if kept.ready_by is not None else ""
        told["Reserved"] = Verdict(phase="", reason=kept.kind, words=f"kept free for it: {_listed(kept.nodes)}{ready}")
    if past is not None and not admitted:
        told["Evicted"] = Verdict(phase="", reason=Progress.EVICTED.value, words=past.story)
    had = {condition.get("type") for condition in before.get("conditions", ())}
    over = Verdict(phase="", reason="Over", words="no longer")
    return [
        _condition(kind, kind in told, told.get(kind, over), before, now)
        for kind in ("Evicting", "Evicted", "Preempting", "Reserved")
        if kind in told or kind in had
    ]


def _listed(names_: tuple[str, ...]) -> str:
    more = len(names_) - LISTED_MAX
    return ", ".join(names_[:LISTED_MAX]) + (f" and {more} more" if more > 0 else "")


def _condition(kind: str, holds: bool, seen: Verdict, before: Mapping[str, Any], now: float) -> dict[str, Any]:
    status = "True" if holds else "False"
    old = next((c for c in before.get("conditions", ()) if c.get("type") == kind), None)
    since = old["lastTransitionTime"] if old and old.get("status") == status else timestamps.seconds(now)
    return {
        "type": kind,
        "status": status,
        "reason": seen.reason,
        "message": seen.message[:MESSAGE_MAX],
        "lastTransitionTime": since,
    }
