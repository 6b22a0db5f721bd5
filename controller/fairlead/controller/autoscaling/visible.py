"""Mode Visible: gated pods with the condition by which autoscalers know pods that fit nowhere.

cluster-autoscaler and Karpenter look at `PodScheduled=False, reason=Unschedulable`, not at scheduling gates; the apiserver gives a gated
pod the reason SchedulingGated. So the reason is changed while nodes are asked for, and changed back after. The message begins with a
marker, by which it is told from kube-scheduler's own word. The pod's claims must exist first: an autoscaler reads them.
Sources: cluster-autoscaler pkg/utils/kubernetes/listers.go (SchedulerUnprocessed, unschedulable pods), Karpenter pkg/utils/pod/scheduling.go
(IsProvisionable, FailedToSchedule). A kube-scheduler with SchedulerPreEnqueuePodStatus (KEP-5501) may write its own reason again: that is
answered `REWRITES_MAX` times per pod and not more.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from fairlead.api import names
from fairlead.controller.book.book import GangState
from fairlead.controller.gangs.conditions import condition
from fairlead.controller.gangs.membership.gangs import Gang
from fairlead.controller.gangs.membership.members import Member, PodClaim
from fairlead.engine.types.plan import NodeDemand
from fairlead.kube import core

REWRITES_MAX = 5
GATED = "SchedulingGated"
GATED_MESSAGE = "Scheduling is blocked due to non-empty scheduling gates"


def shown(pod: core.Pod) -> bool:
    """Whether autoscalers see it because of us."""
    return any(
        each.type == "PodScheduled" and each.reason == "Unschedulable" and each.message.startswith(names.AWAITING_NODES)
        for each in pod.status.conditions
    )


def may_be_shown(pod: core.Pod) -> bool:
    """Whether it still waits at our gate."""
    return (
        pod.has_gate(names.ADMISSION_GATE)
        and not pod.spec.node_name
        and pod.metadata.deletion_timestamp is None
        and not pod.finished
    )


def to_show(gang: Gang) -> list[Member]:
    return [member for member in gang.gated if may_be_shown(member.pod) and not shown(member.pod)]


def to_hide(gang: Gang) -> list[Member]:
    return [member for member in gang.gated if may_be_shown(member.pod) and shown(member.pod)]


def claims_to_make(gang: Gang) -> list[tuple[Member, PodClaim]]:
    """Claims that only Fairlead makes, which do not exist yet; the claim controller makes the others for gated pods, too."""
    return [
        (member, claim)
        for member in gang.gated
        for claim in member.claims
        if claim.source is not None and claim.claim is None and claim.template is not None
    ]


def awaits_claims(gang: Gang) -> bool:
    """Whether the claim controller has not made all of its claims yet."""
    return any(claim.source is None and claim.claim is None for member in gang.gated for claim in member.claims)


def shown_condition(gang: Gang, demand: NodeDemand, now: float) -> dict[str, Any]:
    message = (
        f"{names.AWAITING_NODES}: gang {gang.namespace}/{gang.name} lacks devices of flavor {demand.flavor} and nothing else, and queue "
        f"{demand.queue or '(none)'} may run it"
    )
    return condition("PodScheduled", False, "Unschedulable", message, now=now)


def hidden_condition(now: float) -> dict[str, Any]:
    """As the apiserver writes it for a gated pod."""
    return condition("PodScheduled", False, GATED, GATED_MESSAGE, now=now)


def may_be_shown_again(state: GangState, pod: core.Pod) -> bool:
    """Only so often, where another component writes its own reason each time."""
    return (state.rewrites or Counter())[pod.metadata.uid] < REWRITES_MAX


def note_shown(state: GangState, pod: core.Pod) -> None:
    state.rewrites = Counter(state.rewrites)
    state.rewrites[pod.metadata.uid] += 1
