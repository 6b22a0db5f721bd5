"""All nodes, with the pods that count against them: updated node by node and pod by pod, read by placement.

Pods that are bound, pinned or in commit count against their node; finished ones do not.
"""

from __future__ import annotations

from collections.abc import Iterable

from fairlead.engine.inventory import node_selector
from fairlead.engine.inventory.changes import ChangeLog
from fairlead.engine.inventory.nodes import NodeInfo, NodeNotice, notice_of
from fairlead.engine.types.pods import NOT_KNOWN, Namespaces, Neighbours, PodIdentity, PodNeeds, milli
from fairlead.kube import core


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
