"""The spec and status of a Gang object. Pure: a function of the gang, its scheduling state, and the status before.

The status equals `before` when nothing changed but the time, so that it is not written again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fairlead.controller.book.shown import NODES_CONDITION, SchedulingState
from fairlead.controller.gangs.claims.allocations import allocated_at, node_of
from fairlead.controller.gangs.conditions import MESSAGE_MAX, condition
from fairlead.controller.gangs.evictions.past_evictions import Outlook, PastEviction
from fairlead.controller.gangs.held import idleness
from fairlead.controller.gangs.membership.gangs import Gang, GangId, SharedDecision
from fairlead.controller.gangs.membership.members import Stage
from fairlead.controller.report.asked import asked
from fairlead.controller.report.gang_phase import (
    PhaseSummary,
    Progress,
    listed,
    ready_members,
    summarize,
)
from fairlead.engine.explain.explainer import explanation
from fairlead.engine.types.gangs import Hold
from fairlead.engine.types.reasons import Code
from fairlead.kube import timestamps

NODES_MAX = 1000
WITHOUT_DEVICES_MAX = 100
ON_HOLD = Code.ON_HOLD.value
RARE_CONDITIONS = (
    "Evicting",
    "Evicted",
    "Preempting",
    "Reserved",
    idleness.CONDITION,
    NODES_CONDITION,
    ON_HOLD,
    "SharedWithOtherSystem",
)


def gang_status(
    gang: Gang,
    state: SchedulingState,
    *,
    before: Mapping[str, Any],
    created: float,
    now: float,
    past: PastEviction | None = None,
) -> dict[str, Any]:
    """`created`: since when the gang is queued, unix seconds, or waits again after `past`, its last eviction."""
    summary = summarize(gang, state)
    summary = replace(summary, text="; ".join((summary.message, *gang.notes)))  # composed once
    admitted = summary.phase in {"Admitted", "Running", "Finished", "Failed"}
    status: dict[str, Any] = {
        "phase": summary.phase,
        "members": len(gang.members) - len(gang.at(Stage.DELETED)),
        "ready": ready_members(gang),
        "reason": summary.reason,
        "message": summary.message[:MESSAGE_MAX],
        "queuedTime": timestamps.seconds(created if past is None else past.queued_since),
    }
    without = sorted(member.pod.metadata.name for member in gang.members if member.without_devices)
    if without:
        status["withoutDevices"] = without[:WITHOUT_DEVICES_MAX]
    waiting = state.waiting
    if state.queue:
        status["queue"] = state.queue
    if not admitted and (asks := asked(gang.at(Stage.GATED))):
        status["asks"] = asks
    if summary.phase == "Waiting" and waiting is not None:
        if waiting.place is not None:
            status["position"] = waiting.place
        status["why"] = explanation(waiting.reason)
        if state.forecast is not None:
            status["forecast"] = state.forecast.status(waiting)
        if state.nodes is not None:
            status["nodesAwaited"] = state.nodes.status()
    nodes = sorted({node for member in gang.members if (node := node_of(member))})
    if nodes:
        status["nodes"] = nodes[:NODES_MAX]
    if state.placement and admitted:
        status["placement"] = [each.status() for each in state.placement]
    if state.models is not None and admitted:
        status["models"] = state.models.status()
    if state.reservation is not None:
        status["reservedNodes"] = list(state.reservation.nodes[:NODES_MAX])
    if admitted:
        status["admittedTime"] = before.get("admittedTime") or timestamps.seconds(_first_allocation(gang) or now)
        status["waitSeconds"] = max(0.0, round(timestamps.parse(status["admittedTime"]) - created, 1))
    status["conditions"] = _conditions(
        summary, state, before, now, admitted=admitted, past=None if admitted else past, shared=gang.shared_with
    )
    if not admitted:
        unchanged = {key: value for key, value in before.items() if key != "waitSeconds"} == status
        status["waitSeconds"] = before.get("waitSeconds", 0.0) if unchanged else max(0.0, round(now - created, 1))
    return status


def _first_allocation(gang: Gang) -> float | None:
    """Unix seconds of the oldest allocation of a released member."""
    times = (
        allocated_at(each.claim, (member.pod,))
        for member in gang.released
        for each in member.claims
        if each.claim is not None
    )
    return min((at for at in times if at), default=None)


def evicted_status(past: PastEviction, outlook: Outlook, before: Mapping[str, Any], now: float) -> dict[str, Any]:
    """The status of an evicted gang without pods, whose Gang object is kept until its pods are recreated."""
    text = f"{past.description}; {outlook.text}"
    summary = PhaseSummary(phase="Evicted", reason=Progress.EVICTED.value, text=text)
    if outlook.ended:
        summary = PhaseSummary(
            phase="Failed", reason=Code.NO_MORE_PODS.value, text=f"{outlook.text} ({past.description})"
        )
    return _without_pods(summary, SchedulingState(), before, now, past=past)


def held_status(hold: Hold, gang: GangId, before: Mapping[str, Any], now: float) -> dict[str, Any]:
    """The status of a gang without pods, whose Gang object is kept because of its protected hold."""
    text = f"has no pods; {hold}; kept until `fairlead resume gang {gang[1]} -n {gang[0]}`"
    summary = PhaseSummary(phase="Gathering", reason=Code.ON_HOLD.value, text=text)
    return _without_pods(summary, SchedulingState(hold=str(hold)), before, now, past=None)


def _without_pods(
    summary: PhaseSummary, state: SchedulingState, before: Mapping[str, Any], now: float, *, past: PastEviction | None
) -> dict[str, Any]:
    return {
        "phase": summary.phase,
        "reason": summary.reason,
        "message": summary.message[:MESSAGE_MAX],
        "members": 0,
        "ready": 0,
        **{name: list[str]() for name in ("asks", "withoutDevices", "nodes", "placement", "reservedNodes")},
        **dict.fromkeys(("models", "position", "why", "forecast", "nodesAwaited")),
        "conditions": _conditions(summary, state, before, now, past=past),
    }


def _conditions(
    summary: PhaseSummary,
    state: SchedulingState,
    before: Mapping[str, Any],
    now: float,
    *,
    admitted: bool = False,
    past: PastEviction | None,
    shared: SharedDecision | None = None,
) -> list[dict[str, Any]]:
    """Ours: those that hold, those in `before` that no longer do, and Admitted and Running always. Those of other types stay as they are."""
    old = before.get("conditions", ())
    holding = _rarely_held(state, past)
    if shared is not None:
        holding["SharedWithOtherSystem"] = (shared.system.replace("-", ""), shared.text)
    had = {each.get("type") for each in old}
    said = (summary.reason, summary.message)
    return [
        condition("Admitted", admitted, *said, now=now, before=old),
        condition("Running", summary.phase == "Running", *said, now=now, before=old),
        *(
            condition(kind, kind in holding, *holding.get(kind, ("Over", "no longer")), now=now, before=old)
            for kind in RARE_CONDITIONS
            if kind in holding or kind in had
        ),
        *(each for each in old if each.get("type") not in {"Admitted", "Running", *RARE_CONDITIONS}),
    ]


def _rarely_held(state: SchedulingState, past: PastEviction | None) -> dict[str, tuple[str, str]]:
    """Reason and message by type, of conditions that most gangs never have."""
    holding: dict[str, tuple[str, str]] = {}
    if state.eviction is not None:
        holding["Evicting"] = (state.eviction.mark.kind, str(state.eviction))
    if past is not None:
        holding["Evicted"] = (Progress.EVICTED.value, past.description)
    if state.victims:
        holding["Preempting"] = ("Evicting", f"being evicted for it: {listed(state.victims)}")
    kept = state.reservation
    if kept is not None:
        free = f", expected to be free by {timestamps.seconds(kept.ready_by)}" if kept.ready_by is not None else ""
        holding["Reserved"] = (kept.kind, f"kept free for it: {listed(kept.nodes)}{free}")
    if state.idle is not None:
        holding[idleness.CONDITION] = ("DevicesIdle", str(state.idle))
    if state.hold:
        holding[ON_HOLD] = ("Held", state.hold)
    nodes = state.nodes
    if nodes is not None and nodes.demand.since is not None:
        holding[NODES_CONDITION] = ("NodesAsked" if nodes.demand.state == "Asked" else "NotAskedNow", nodes.text)
    return holding
