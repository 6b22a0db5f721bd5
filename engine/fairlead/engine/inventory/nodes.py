"""Nodes, and whether they take a pod, devices aside: updated pod by pod, read by placement.

Pods that are bound, pinned or in commit count against their node; finished ones do not. A node refuses pods whose volumes are
elsewhere. What pods need of the pods around them is kept here, and judged in `placement.neighbours`.
Amounts of resources are in thousandths, as whole numbers.
Source: kube-scheduler's NodeResourcesFit, NodeAffinity, TaintToleration, NodeUnschedulable, NodePorts; component-helpers
resource.PodRequests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from fairlead.engine.inventory import node_selector
from fairlead.engine.inventory.changes import ChangeLog
from fairlead.engine.inventory.notices import NodeNotice, notice_of, passes
from fairlead.engine.types.neighbours import NOT_KNOWN, PodIdentity
from fairlead.engine.types.pod_needs import PODS, Constraints, PodNeeds, Port, milli

if TYPE_CHECKING:
    from fairlead.engine.types.neighbours import Namespaces, Neighbours
    from fairlead.kube import core

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


class Tolerates(Protocol):
    """A toleration of a pod or of a device request: the same fields, the same rules."""

    @property
    def key(self) -> str: ...
    @property
    def operator(self) -> str: ...
    @property
    def value(self) -> str: ...
    @property
    def effect(self) -> str: ...


def tolerated(key: str, value: str, effect: str, tolerations: Iterable[Tolerates]) -> bool:
    """Whether one of the tolerations covers this taint."""
    for toleration in tolerations:
        if toleration.effect and toleration.effect != effect:
            continue
        if toleration.key and toleration.key != key:
            continue
        operator = toleration.operator or "Equal"
        if operator == "Exists" or (operator == "Equal" and toleration.key == key and toleration.value == value):
            return True
    return False


class NodeTable:
    """All nodes, by name, with the pods that count against them. Each update costs that node or pod."""

    def __init__(self, namespaces: Namespaces | None = None) -> None:
        """`namespaces`: those that a namespace selector of a pod selects."""
        self._nodes: dict[str, NodeInfo] = {}
        self.noticed: dict[str, NodeNotice] = {}  # by name, of nodes that go soon
        self.unready: set[str] = set()  # names of nodes that are not ready
        self._pods: dict[str, tuple[str, PodNeeds]] = {}  # pod UID: node name, needs
        self.identities: dict[str, PodIdentity] = {}  # of the counted pods, by UID
        self.repelling: dict[Neighbours, int] = {}  # terms of counted pods with anti-affinity: how many have them
        self._namespaces = namespaces
        self._on: dict[str, dict[str, PodNeeds]] = {}  # node name: its pods, by UID; also of nodes not seen yet
        self._sorted: tuple[NodeInfo, ...] | None = None
        self.changes: ChangeLog[str] = ChangeLog()  # names of nodes
        self.node_changes: ChangeLog[str] = (
            ChangeLog()
        )  # names of nodes that came, went or changed, whatever runs there
        self.pod_changes: ChangeLog[str] = ChangeLog()  # UIDs of pods that came, went, moved or changed
        self.structure = 0  # grows when a node comes, goes or changes; not with pods

    def __len__(self) -> int:
        return len(self._nodes)

    def get(self, name: str) -> NodeInfo | None:
        return self._nodes.get(name)

    def all(self) -> tuple[NodeInfo, ...]:
        """Every node, in name order."""
        if self._sorted is None:
            self._sorted = tuple(self._nodes[name] for name in sorted(self._nodes))
        return self._sorted

    def set_node(self, node: core.Node) -> None:
        conditions = [condition for condition in node.status.conditions if condition.type == "Ready"]
        info = NodeInfo(
            name=node.metadata.name,
            labels=node.metadata.labels,
            taints=node.spec.taints,
            unschedulable=node.spec.unschedulable,
            ready=not conditions or node.ready,
            notice=notice_of(node),
            allocatable={resource: milli(value) for resource, value in node.status.allocatable.items()},
        )
        self.set_info(info)

    def set_info(self, info: NodeInfo) -> None:
        """A node on which nothing is counted yet; its pods are."""
        name = info.name
        before = self._nodes.get(name)
        if before is not None and before.same(info):
            return  # a heartbeat
        for uid, needs in self._on.get(name, {}).items():
            _count_pod(info, uid, needs, 1)
        self._nodes[name] = info
        self._note_notice(name, info.notice)
        (self.unready.discard if info.ready else self.unready.add)(name)
        self._sorted = None
        self._changed(name)

    def drop_node(self, name: str) -> None:
        if self._nodes.pop(name, None) is not None:
            self._note_notice(name, None)
            self.unready.discard(name)
            self._sorted = None
            self._changed(name)

    def _note_notice(self, name: str, notice: NodeNotice | None) -> None:
        if notice is not None:
            self.noticed[name] = notice
        else:
            self.noticed.pop(name, None)

    def _changed(self, name: str) -> None:
        self.structure += 1
        self.changes.note(name)
        self.node_changes.note(name)

    def set_pod(self, pod: core.Pod, node: str | None = None) -> None:
        """Count the pod on its node: `node` if said, else where it is bound, else where it is pinned; else nowhere."""
        uid = pod.metadata.uid
        if pod.finished:
            self.drop_pod(uid)
            return
        where = node or pod.spec.node_name
        if not where and not pod.spec.scheduling_gates and pod.spec.affinity and pod.spec.affinity.node_affinity:
            where = node_selector.pinned_node(pod.spec.affinity.node_affinity.required) or ""
        if not where:
            self.drop_pod(uid)
            return
        meta = pod.metadata
        identity = PodIdentity(
            namespace=meta.namespace, labels=meta.labels, leaving=meta.deletion_timestamp is not None
        )
        self.set_needs(uid, where, PodNeeds.of(pod, self._namespaces), identity)

    def set_needs(self, uid: str, where: str, needs: PodNeeds, identity: PodIdentity = NOT_KNOWN) -> None:
        """The pod with these needs counts on the node `where`."""
        known_where, known = self._pods.get(uid, ("", needs))
        if self.identities.get(uid, identity) != identity:
            self.drop_pod(uid)  # others may select it now, or no more
            known_where = ""
        self.identities[uid] = identity
        if known_where == where and (known.requests, known.ports) == (needs.requests, needs.ports):
            if known != needs:
                self.pod_changes.note(uid)
                self._count_repelling(known, -1)
                self._count_repelling(needs, 1)
            self._pods[uid] = (where, needs)  # the node has as much room as before
            self._on[where][uid] = needs
            return
        self.drop_pod(uid)
        self.pod_changes.note(uid)
        self.identities[uid] = identity
        self._count_repelling(needs, 1)
        self._pods[uid] = (where, needs)
        self._on.setdefault(where, {})[uid] = needs
        if (info := self._nodes.get(where)) is not None:
            _count_pod(info, uid, needs, 1)
            self.changes.note(where)

    def _count_repelling(self, needs: PodNeeds, times: int) -> None:
        own = needs.neighbours
        if own is not None and own.anti_affinity:
            left = self.repelling.get(own, 0) + times
            if left:
                self.repelling[own] = left
            else:
                del self.repelling[own]

    def pod(self, uid: str) -> tuple[str, PodNeeds] | None:
        """A counted pod's node and needs; None for a pod that is not counted."""
        return self._pods.get(uid)

    def counted(self, uid: str) -> tuple[str, PodNeeds, PodIdentity] | None:
        """As `pod`, with by what others select it."""
        found = self._pods.get(uid)
        return None if found is None else (*found, self.identities.get(uid, NOT_KNOWN))

    def pods(self) -> Iterable[str]:
        """UIDs of the counted pods, in no order."""
        return self._pods.keys()

    def drop_pod(self, uid: str) -> None:
        where, needs = self._pods.pop(uid, (None, None))
        if where is None or needs is None:
            return
        self.identities.pop(uid, None)
        self._count_repelling(needs, -1)
        self.pod_changes.note(uid)
        pods = self._on[where]
        del pods[uid]
        if not pods:
            del self._on[where]
        if (info := self._nodes.get(where)) is not None:
            _count_pod(info, uid, needs, -1)
            self.changes.note(where)


def _count_pod(info: NodeInfo, uid: str, needs: PodNeeds, sign: int) -> None:
    for resource, value in needs.requests:
        info.used[resource] = info.used.get(resource, 0) + sign * value
    if needs.ports:
        if sign > 0:
            info.ports[uid] = needs.ports
        else:
            info.ports.pop(uid, None)
