"""What announces that a node goes soon: a spot instance reclaimed, maintenance, a scale-down, a reboot. Read from its taints and conditions.

A table of the clouds' and the maintenance tools' own words; `docs/moves.md` has each with its source. Nothing of it is configured: a
cluster without these tools has none of them. `by` is when the node may be gone, as far as it is known: of a taint that says when
it was added, by how long before the fact it is set.
Example: a taint aws-node-termination-handler/spot-itn added at 12:00:00 means that the instance is stopped at 12:02:00.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fairlead.engine.types.fact import Fact
from fairlead.kube import timestamps

if TYPE_CHECKING:
    from fairlead.kube import core


class NodeNotice(Fact, frozen=True, kw_only=True):
    """`source`: the taint's key or the condition's type. `by`: unix seconds; None: not known."""

    source: str
    what: str
    by: float | None = None

    def __str__(self) -> str:
        when = "" if self.by is None else f" by {timestamps.seconds(self.by)}"
        return f"{self.what}{when} ({self.source})"


@dataclass(frozen=True, slots=True)
class _Kind:
    what: str
    lead_s: float | None = None  # how long before the fact it is set; None: that differs


_TAINTS = {
    "aws-node-termination-handler/spot-itn": _Kind("spot interruption", 120.0),
    "aws-node-termination-handler/scheduled-maintenance": _Kind("scheduled maintenance"),
    "aws-node-termination-handler/asg-lifecycle-termination": _Kind("termination by its auto scaling group"),
    "aws-node-termination-handler/rebalance-recommendation": _Kind("rebalance recommendation"),
    "karpenter.sh/disrupted": _Kind("disruption by Karpenter"),
    "karpenter.sh/disruption": _Kind("disruption by Karpenter"),  # before 1.0
    "cloud.google.com/impending-node-termination": _Kind("node termination"),
    "remediator.kubernetes.azure.com/unschedulable": _Kind("auto-drain by AKS"),
    "remediator.aks.microsoft.com/unschedulable": _Kind("auto-drain by AKS"),  # its older name
    "medik8s.io/drain": _Kind("node maintenance"),
    "kubevirt.io/drain": _Kind("node maintenance"),
    "medik8s.io/remediation": _Kind("remediation by medik8s"),
    "weave.works/kured-node-reboot": _Kind("reboot by Kured"),
    "ToBeDeletedByClusterAutoscaler": _Kind("scale-down by the cluster autoscaler"),
}
_PASSING = (
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "startup-taint.cluster-autoscaler.kubernetes.io/",
    "status-taint.cluster-autoscaler.kubernetes.io/",
    "ignore-taint.cluster-autoscaler.kubernetes.io/",
    "karpenter.sh/unregistered",
)  # set on a node for a while, by Kubernetes and by autoscalers
_CONDITIONS = {"VMEventScheduled": _Kind("event scheduled by Azure")}
_HARMLESS = "Freeze"  # in a condition's reason, or where that only repeats its type in its message: a pause of seconds
_ANNOTATIONS = {"weave.works/kured-reboot-in-progress": _Kind("reboot by Kured")}


def passes(key: str) -> bool:
    """Whether a taint of this key says what state a node is in, and not which pods its kind is for."""
    return key in _TAINTS or key.startswith(_PASSING)


def notice_of(node: core.Node) -> NodeNotice | None:
    """The first to come, as far as that is known; else the first by name. None: the node says nothing."""
    said = [(taint.key, _TAINTS.get(taint.key), taint.time_added) for taint in node.spec.taints]
    said += [
        (condition.type, _CONDITIONS.get(condition.type), condition.last_transition_time)
        for condition in node.status.conditions
        if condition.status == "True" and _HARMLESS not in f"{condition.reason} {condition.message}"
    ]
    said += [(key, _ANNOTATIONS.get(key), since) for key, since in node.metadata.annotations.items()]
    found = [_notice(source, kind, since) for source, kind, since in said if kind is not None]
    return min(found, key=lambda each: (each.by is None, each.by or 0.0, each.source), default=None)


def _notice(source: str, kind: _Kind, since: str | None) -> NodeNotice:
    by = None
    if kind.lead_s is not None and since:
        try:
            by = timestamps.parse(since) + kind.lead_s
        except ValueError:
            by = None
    return NodeNotice(source=source, what=kind.what, by=by)
