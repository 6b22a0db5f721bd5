"""Nodes: whether they take a pod, devices aside, and what announces that one goes soon.

A node refuses pods whose volumes are elsewhere. What pods need of the pods around them is judged in `neighbour_counts`. Amounts of resources
are in thousandths, as whole numbers. Notices (a spot instance reclaimed, maintenance, a scale-down, a reboot) are read from taints,
conditions and annotations by the clouds' and the maintenance tools' own words; `docs/moves.md` has each with its source.
Example: a taint aws-node-termination-handler/spot-itn added at 12:00:00 means that the instance is stopped at 12:02:00.
Source: kube-scheduler's NodeResourcesFit, NodeAffinity, TaintToleration, NodeUnschedulable, NodePorts; component-helpers
resource.PodRequests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fairlead.engine.inventory import node_selector
from fairlead.engine.types.pods import PODS, Constraints, PodNeeds, Port
from fairlead.engine.types.values import Fact
from fairlead.kube import core, resource, timestamps


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


HOSTNAME = "kubernetes.io/hostname"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
REFUSALS_MAX = 256  # remembered per node
VOLUMES = "volumes that are elsewhere"
GOES_SOON = "goes soon"


@dataclass(slots=True, eq=False)
class NodeInfo:
    """One node: its labels, its taints, its allocatable resources and what its pods request of them (thousandths)."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[core.Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    notice: NodeNotice | None = None  # that it goes soon: nothing new starts there
    allocatable: dict[str, int] = field(default_factory=dict)
    used: dict[str, int] = field(default_factory=dict)
    ports: dict[str, tuple[Port, ...]] = field(default_factory=dict)  # by pod UID
    refusals: dict[Constraints, str | None] = field(default_factory=dict)  # remembered answers of `refuses`

    def same(self, other: NodeInfo) -> bool:
        """Whether it is as the other, whatever runs on either."""
        return (self.labels, self.taints, self.unschedulable, self.ready, self.notice, self.allocatable) == (
            other.labels,
            other.taints,
            other.unschedulable,
            other.ready,
            other.notice,
            other.allocatable,
        )

    @property
    def open(self) -> bool:
        """Whether new pods may start there, whatever they tolerate."""
        return self.ready and not self.unschedulable and self.notice is None

    def refuses(self, needs: PodNeeds) -> str | None:
        """Why the node, whatever runs on it, does not take a pod with these needs; None when it does."""
        constraints = needs.constraints
        try:
            return self.refusals[constraints]
        except KeyError:
            if len(self.refusals) >= REFUSALS_MAX:
                self.refusals.clear()
            refusal = self.refusals[constraints] = self._refuses(constraints)
            return refusal

    def _refuses(self, wanted: Constraints) -> str | None:
        if not self.ready:
            return "not ready"
        if self.unschedulable and not tolerated(UNSCHEDULABLE, "", "NoSchedule", wanted.tolerations):
            return "unschedulable"
        taint = self.untolerated(wanted.tolerations)
        if taint is not None:
            return f"untolerated taint {taint.key}"
        if self.notice is not None:
            return f"{GOES_SOON}: {self.notice.what}"
        return self._labels_refuse(wanted)

    @property
    def passing(self) -> bool:
        """Whether it takes fewer pods than its kind, for a while: by a cordon, a notice, or a taint that says what state it is in."""
        return (
            not self.ready or self.unschedulable or self.notice is not None or any(passes(t.key) for t in self.taints)
        )

    def kind_refuses(self, wanted: Constraints, *, fresh: bool) -> str | None:
        """Why no node of this kind takes such a pod, room aside: not its cordon, a notice, or a taint that says what state it is in.

        `fresh`: another node of the kind, so that what asks for this one by its name is not met.
        """
        taint = _untolerated((each for each in self.taints if not passes(each.key)), wanted.tolerations)
        if taint is not None:
            return f"untolerated taint {taint.key}"
        if not fresh:
            return self._labels_refuse(wanted)
        labels = {key: value for key, value in self.labels.items() if key != HOSTNAME}
        return _labels_refuse(wanted, "", labels)

    def has_room_for(self, needs: PodNeeds) -> bool:
        """Whether the pod's requests fit when nothing runs there."""
        asked = (each for each in needs.requests if self.allocatable or each[0] != PODS)
        return all(value <= self.allocatable.get(name, 0) for name, value in asked)

    def untolerated(self, tolerations: tuple[core.Toleration, ...]) -> core.Taint | None:
        """The first taint that keeps a pod with these tolerations off."""
        return _untolerated(self.taints, tolerations)

    def _labels_refuse(self, wanted: Constraints) -> str | None:
        return _labels_refuse(wanted, self.name, self.labels)

    def preference(self, needs: PodNeeds) -> int:
        """The sum of the weights of the preferred affinity terms that the node satisfies."""
        return sum(
            term.weight
            for term in needs.preferred
            if node_selector.term_matches(term.preference, self.name, self.labels)
        )


def _labels_refuse(wanted: Constraints, name: str, labels: Mapping[str, str]) -> str | None:
    for key, value in wanted.node_selector:
        if labels.get(key) != value:
            return f"node selector {key}={value}"
    if wanted.affinity is not None and not node_selector.matches(wanted.affinity, name, labels):
        unmet = node_selector.unmet(wanted.affinity, name, labels)
        return f"node affinity {unmet}".rstrip()
    if any(not node_selector.matches(volume, name, labels) for volume in wanted.volumes):
        return VOLUMES
    return None


def _untolerated(taints: Iterable[core.Taint], tolerations: tuple[core.Toleration, ...]) -> core.Taint | None:
    for taint in taints:
        if taint.effect in {"NoSchedule", "NoExecute"} and not tolerated(
            taint.key, taint.value, taint.effect, tolerations
        ):
            return taint
    return None


Tolerates = core.Toleration | resource.DeviceToleration  # the same fields, the same rules


def tolerated(key: str, value: str, effect: str, tolerations: Iterable[Tolerates]) -> bool:
    for toleration in tolerations:
        if toleration.effect and toleration.effect != effect:
            continue
        if toleration.key and toleration.key != key:
            continue
        operator = toleration.operator or "Equal"
        if operator == "Exists" or (operator == "Equal" and toleration.key == key and toleration.value == value):
            return True
    return False
