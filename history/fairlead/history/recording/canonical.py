"""The canonical form of one plan: plain JSON of what users and the rim can see, under names of its own.

Recordings and the comparison of decisions in tests keep digests of these forms, so only this file reads the fields of a plan: a
field that is renamed changes one line here and no digest. Two parts are kept apart:
    decision  which gang gets what, what is evicted, reserved and counted, and the facts behind each reason, without wording
    texts     the sentences that users read
Keeps: equal plans have equal forms, to the byte; key order and spacing are fixed; floats are written as `repr` writes them.
"""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import msgspec

from fairlead.engine.types.plan import (
    Admission,
    ClaimAllocation,
    Eviction,
    FlavorTotal,
    FlavorUse,
    Plan,
    QueueUse,
    Reservation,
    Waiting,
)
from fairlead.engine.types.reasons import NearMiss, PreemptionBlock, PreemptionBlocker, Reason, RequestShortage
from fairlead.engine.types.settings import Problem
from fairlead.engine.types.values import PodRef, amount
from fairlead.engine.types.values import text as quantity
from fairlead.kube import resource

Json = dict[str, Any]
BARRIERS_PRINTED = 4  # a reason's sentence names so many; the texts have the others beside it
BARS = {
    PreemptionBlock.SHARE: "share",
    PreemptionBlock.WITHIN_SHARE: "within share",
    PreemptionBlock.DESERVED: "deserved",
    PreemptionBlock.OTHER_FLAVOR: "other flavor",
    PreemptionBlock.PRIORITY: "priority",
    PreemptionBlock.POLICY: "policy",
    PreemptionBlock.MIN_RUNTIME: "min runtime",
    PreemptionBlock.BUDGET: "budget",
    PreemptionBlock.DISRUPTIONS: "disruptions",
    PreemptionBlock.UNKNOWN: "unknown",
    PreemptionBlock.PLACE: "place",
    PreemptionBlock.STEPS: "steps",
    PreemptionBlock.NEVER: "never",
    PreemptionBlock.LEAVING: "leaving",
    PreemptionBlock.NODES: "nodes",
}


def encode(part: Json) -> bytes:
    """One line of JSON."""
    return json.dumps(part, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=_plain).encode()


def decision(plan: Plan, *, waiting: bool = True) -> Json:
    """Without the gangs that wait, if so asked."""
    return {
        "admissions": [_admission(entry) for entry in plan.admissions],
        **({"waiting": [_waiting(entry) for entry in plan.waiting]} if waiting else {}),
        "evictions": [_eviction(entry) for entry in plan.evictions],
        "reservations": [_reservation(entry) for entry in plan.reservations],
        "queues": [_queue(entry) for entry in plan.queues],
        "flavors": [_flavor(entry) for entry in plan.flavors],
        "due": _seconds(plan.due),
        "problems": [_problem(entry) for entry in plan.problems],
    }


def texts(plan: Plan) -> Json:
    return {
        "waiting": [text(entry.reason) for entry in plan.waiting],
        "evictions": [text(entry.reason) for entry in plan.evictions],
        "problems": [entry.message for entry in plan.problems],
    }


# ------------------------------------------------------------------------------------------------------ admissions


def _admission(entry: Admission) -> Json:
    return {
        "gang": entry.id,
        "uid": entry.uid,
        "queue": entry.queue,
        "pods": [{"pod": _pod(assigned.pod), "node": assigned.node} for assigned in entry.assignments],
        "claims": [_claim(claim) for claim in entry.claims],
    }


def _claim(claim: ClaimAllocation) -> Json:
    return {
        "key": claim.key,
        "claim": f"{claim.namespace}/{claim.name}",
        "allocation": _allocation(claim.allocation),
        "reservedFor": [_pod(pod) for pod in claim.reserved_for],
        "alreadyAllocated": claim.already_allocated,
    }


def _allocation(allocation: resource.AllocationResult) -> Json:
    return {
        "results": [_result(result) for result in allocation.devices.results],
        "config": [_config(each.opaque, each) for each in allocation.devices.config if each.opaque is not None],
        "nodeSelector": None if allocation.node_selector is None else _plain(allocation.node_selector),
    }


def _result(result: resource.DeviceRequestAllocationResult) -> Json:
    return {
        "request": result.request,
        "driver": result.driver,
        "pool": result.pool,
        "device": result.device,
        "adminAccess": bool(result.admin_access),
        "shareID": result.share_id,
        "consumedCapacity": [
            [name, quantity(amount(value))] for name, value in sorted(result.consumed_capacity.items())
        ],
        "tolerations": [_plain(toleration) for toleration in result.tolerations],
        "bindingConditions": list(result.binding_conditions),
        "bindingFailureConditions": list(result.binding_failure_conditions),
    }


def _config(opaque: resource.OpaqueDeviceConfiguration, config: resource.DeviceAllocationConfiguration) -> Json:
    return {
        "source": config.source,
        "requests": list(config.requests),
        "driver": opaque.driver,
        "parameters": opaque.parameters,
    }


# ------------------------------------------------------------------------- waiting, evictions, reservations, problems


def _waiting(entry: Waiting) -> Json:
    return {
        "gang": entry.id,
        "uid": entry.uid,
        "queue": entry.queue,
        "position": entry.position,
        "reason": reason(entry.reason),
    }


def _eviction(entry: Eviction) -> Json:
    return {
        "kind": entry.kind,
        "gang": entry.id,
        "uid": entry.uid,
        "queue": entry.queue,
        "pods": [_pod(pod) for pod in entry.pods],
        "whole": entry.whole,
        "beneficiary": entry.beneficiary,
        "checkpointGrace": _seconds(entry.checkpoint_grace_s),
        "reason": reason(entry.reason),
        # What was added later is left out where there is none, so that digests of older plans stay.
        **({} if entry.place is None else {"place": _admission(entry.place), "gpuSeconds": entry.gpu_seconds}),
    }


def _reservation(entry: Reservation) -> Json:
    return {
        "kind": entry.kind,
        "gang": entry.id,
        "uid": entry.uid,
        "queue": entry.queue,
        "nodes": list(entry.nodes),
        "readyBy": _seconds(entry.ready_by),
    }


def _problem(entry: Problem) -> Json:
    return {"kind": entry.kind, "name": entry.name, "reason": entry.reason}


# ----------------------------------------------------------------------------------------------- queues and flavors


def _queue(entry: QueueUse) -> Json:
    return {
        "queue": entry.name,
        "waiting": entry.waiting,
        "admitted": entry.admitted,
        "flavors": [_use(use) for use in entry.flavors],
        **({"gpus": _amount(entry.gpus)} if entry.gpus else {}),
    }


def _use(use: FlavorUse) -> Json:
    return {
        "flavor": use.flavor,
        "used": _amount(use.used),
        "demand": _amount(use.demand),
        "fairShare": _amount(use.fair_share),
        "deserved": _amount(use.deserved),
        "limit": _amount(use.limit),
    }


def _flavor(entry: FlavorTotal) -> Json:
    return {
        "flavor": entry.flavor,
        "devices": entry.devices,
        "total": _amount(entry.total),
        "allocated": _amount(entry.allocated),
    }


# ---------------------------------------------------------------------------------------------------------- reasons


def reason(given: Reason) -> Json:
    """The code, and the facts behind it, without a word of prose. What is empty is left out: most reasons have little."""
    limit = given.limit
    facts: Json = {
        "ever": given.could_ever_fit,
        "requests": [_request(entry) for entry in given.requests],
        "nodes": [entry.nodes for entry in given.nodes],
        "nearest": None if given.near_miss is None else _nearest(given.near_miss),
        "holders": [[entry.gang, entry.queue, entry.devices] for entry in given.holders],
        "limit": None
        if limit is None
        else [
            *(limit.queue, limit.flavor, limit.used, limit.asked, limit.limit),
            *(() if limit.changes_at is None else (limit.changes_at,)),
        ],
        "budget": None
        if given.budget is None
        else [given.budget.queue, given.budget.spent, given.budget.limit, given.budget.renews_at],
        "barriers": [_blocker(entry) for entry in given.blockers],
    }
    return {"code": str(given.code), **{key: fact for key, fact in facts.items() if fact not in (None, [])}}


def _request(entry: RequestShortage) -> Json:
    return {
        "request": f"{entry.claim}:{entry.request}",
        "wanted": entry.wanted,
        "best": entry.per_node_best,
        "devices": entry.devices,
        "removed": [count for _, count in entry.removed],
        "nodes": entry.nodes,
    }


def _nearest(entry: NearMiss) -> Json:
    return {"placed": entry.members_placed, "wanted": entry.members_wanted, "node": entry.node}


def _blocker(entry: PreemptionBlocker) -> Json:
    return {
        "bar": BARS[entry.block],
        "queue": entry.queue,
        "gangs": entry.gangs,
        "devices": entry.devices,
        "example": entry.example,
        "until": _seconds(entry.until),
    }


def text(given: Reason) -> list[str]:
    return [str(given), *(str(blocker) for blocker in given.blockers[BARRIERS_PRINTED:])]


# ---------------------------------------------------------------------------------------------------------- values


def _pod(pod: PodRef) -> str:
    return f"{pod.namespace}/{pod.name}/{pod.uid}"


def _amount(amount: int | Fraction | None) -> str | None:
    """The same text for a whole number and for the fraction that equals it."""
    return None if amount is None else str(amount)


def _seconds(value: float | None) -> float | None:
    return None if value is None else float(value)


def _plain(value: Any) -> Any:
    """A struct of the Kubernetes API as JSON."""
    return msgspec.to_builtins(value)
