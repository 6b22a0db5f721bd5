"""Nodes, and what pods need of them besides devices: kept up to date pod by pod, asked by placement.

Exists because a device is of no use on a node that can't take the pod. Decides nothing about devices. Pods that are bound,
pinned or in commit count against their node; finished ones do not. Not looked at: inter-pod affinity, topology spread
constraints, volumes (kube-scheduler still does, and a pod that it refuses is rolled back).
Amounts of resources are in thousandths, as whole numbers.
Source: kube-scheduler's NodeResourcesFit, NodeAffinity, TaintToleration, NodeUnschedulable, NodePorts; component-helpers
resource.PodRequests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, Self

from fairlead.controller import nodes_selector
from fairlead.controller.inventory_changes import ChangeLog
from fairlead.kube.quantity import Quantity, QuantityError

if TYPE_CHECKING:
    from fairlead.kube import core

PODS = "pods"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
Port = tuple[str, str, int]  # protocol, host IP, port


@dataclass(frozen=True, slots=True, kw_only=True)
class PodNeeds:
    """What a pod asks of a node, as a hashable value: pods of one Job have equal needs. Hashed once."""

    requests: tuple[tuple[str, int], ...] = ()  # resource, thousandths; sorted; always with one pod
    node_selector: tuple[tuple[str, str], ...] = ()
    affinity: core.NodeSelector | None = None
    preferred: tuple[core.PreferredSchedulingTerm, ...] = ()
    tolerations: tuple[core.Toleration, ...] = ()
    ports: tuple[Port, ...] = ()
    hash: int = field(default=0, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        content = (self.requests, self.node_selector, self.affinity, self.preferred, self.tolerations, self.ports)
        object.__setattr__(self, "hash", hash(content))

    def __hash__(self) -> int:
        return self.hash

    @classmethod
    def of(cls, pod: core.Pod) -> Self:
        spec = pod.spec
        affinity = spec.affinity.node_affinity if spec.affinity else None
        return cls(
            requests=tuple(sorted(_requests(spec).items())),
            node_selector=tuple(sorted(spec.node_selector.items())),
            affinity=affinity.required if affinity else None,
            preferred=affinity.preferred if affinity else (),
            tolerations=spec.tolerations,
            ports=tuple(sorted(set(_host_ports(spec)))),
        )


def _requests(spec: core.PodSpec) -> dict[str, int]:
    """max(containers + sidecars, each init container with the sidecars before it) + overhead, in thousandths."""
    running: dict[str, int] = {}
    for container in spec.containers:
        _add(running, container.resources.requests)
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec.init_containers:
        if container.restart_policy == "Always":
            _add(sidecars, container.resources.requests)
            start = dict(sidecars)
        else:
            start = dict(sidecars)
            _add(start, container.resources.requests)
        for name, amount in start.items():
            peak[name] = max(peak.get(name, 0), amount)
    for name, amount in sidecars.items():
        running[name] = running.get(name, 0) + amount
    total = {name: max(running.get(name, 0), peak.get(name, 0)) for name in running.keys() | peak.keys()}
    if spec.resources is not None:
        for name, value in spec.resources.requests.items():
            total[name] = _milli(value)  # what the pod says as a whole wins
    _add(total, spec.overhead)
    total[PODS] = 1000
    return {name: amount for name, amount in total.items() if amount > 0}


def _add(total: dict[str, int], requests: Mapping[str, str | int]) -> None:
    for name, value in requests.items():
        total[name] = total.get(name, 0) + _milli(value)


def _milli(value: str | int) -> int:
    """In thousandths; 0 for what is no quantity (the API server lets none through, an old object might hold one)."""
    try:
        return Quantity.of(value).scaled(-3)
    except QuantityError:
        return 0


def _host_ports(spec: core.PodSpec) -> Iterator[Port]:
    for container in (*spec.init_containers, *spec.containers):
        for port in container.ports:
            number = port.host_port or (port.container_port if spec.host_network else 0)
            if number:
                yield (port.protocol or "TCP", port.host_ip or "0.0.0.0", number)


def ports_clash(wanted: Iterable[Port], taken: Iterable[Port]) -> Port | None:
    """The first wanted port that cannot be bound beside those taken; 0.0.0.0 is every address."""
    taken = list(taken)
    for protocol, address, number in wanted:
        for other_protocol, other_address, other_number in taken:
            same_address = address == other_address or "0.0.0.0" in {address, other_address}
            if (protocol, number) == (other_protocol, other_number) and same_address:
                return (protocol, address, number)
    return None


@dataclass(slots=True, eq=False)
class NodeInfo:
    """One node: its labels, its taints, what it can give and what its pods have taken (thousandths)."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[core.Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    allocatable: dict[str, int] = field(default_factory=dict)
    used: dict[str, int] = field(default_factory=dict)
    ports: dict[str, tuple[Port, ...]] = field(default_factory=dict)  # by pod UID
    verdicts: dict[PodNeeds, str | None] = field(default_factory=dict)

    def same(self, other: NodeInfo) -> bool:
        """Whether it offers what the other does, whatever runs on either."""
        return (self.labels, self.taints, self.unschedulable, self.ready, self.allocatable) == (
            other.labels,
            other.taints,
            other.unschedulable,
            other.ready,
            other.allocatable,
        )

    def refuses(self, needs: PodNeeds) -> str | None:
        """Why the node, whatever runs on it, does not take a pod with these needs; None when it does."""
        try:
            return self.verdicts[needs]
        except KeyError:
            if len(self.verdicts) >= 256:
                self.verdicts.clear()
            verdict = self.verdicts[needs] = self._refuses(needs)
            return verdict

    def _refuses(self, needs: PodNeeds) -> str | None:
        if not self.ready:
            return "not ready"
        if self.unschedulable and not tolerated(UNSCHEDULABLE, "", "NoSchedule", needs.tolerations):
            return "unschedulable"
        for taint in self.taints:
            if taint.effect in {"NoSchedule", "NoExecute"} and not tolerated(
                taint.key, taint.value, taint.effect, needs.tolerations
            ):
                return f"untolerated taint {taint.key}"
        if any(self.labels.get(key) != value for key, value in needs.node_selector):
            return "node selector"
        if needs.affinity is not None and not nodes_selector.matches(needs.affinity, self.name, self.labels):
            return "node affinity"
        return None

    def preference(self, needs: PodNeeds) -> int:
        """The sum of the weights of the preferred affinity terms that the node satisfies."""
        return sum(
            term.weight
            for term in needs.preferred
            if nodes_selector.term_matches(term.preference, self.name, self.labels)
        )


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
    """All nodes, by name, with the pods that weigh on them. Each update costs that node or pod."""

    def __init__(self) -> None:
        self._nodes: dict[str, NodeInfo] = {}
        self._pods: dict[str, tuple[str, PodNeeds]] = {}  # pod UID: node name, needs
        self._on: dict[str, dict[str, PodNeeds]] = {}  # node name: pods by UID; also for nodes not seen yet
        self._sorted: tuple[NodeInfo, ...] | None = None
        self.changes: ChangeLog[str] = ChangeLog()  # names of nodes
        self.structure = 0  # grows when a node comes, goes, or offers something else; not with pods

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
        name = node.metadata.name
        conditions = [condition for condition in node.status.conditions if condition.type == "Ready"]
        info = NodeInfo(
            name=name,
            labels=node.metadata.labels,
            taints=node.spec.taints,
            unschedulable=node.spec.unschedulable,
            ready=not conditions or node.ready,
            allocatable={resource: _milli(value) for resource, value in node.status.allocatable.items()},
        )
        before = self._nodes.get(name)
        if before is not None and before.same(info):
            return  # a heartbeat
        for uid, needs in self._on.get(name, {}).items():
            _weigh(info, uid, needs, 1)
        self._nodes[name] = info
        self._sorted = None
        self._changed(name)

    def drop_node(self, name: str) -> None:
        if self._nodes.pop(name, None) is not None:
            self._sorted = None
            self._changed(name)

    def _changed(self, name: str) -> None:
        self.structure += 1
        self.changes.note(name)

    def set_pod(self, pod: core.Pod, node: str | None = None) -> None:
        """Count the pod on its node: `node` if said, else where it is bound, else where it is pinned; else nowhere."""
        uid = pod.metadata.uid
        self.drop_pod(uid)
        if pod.finished:
            return
        where = node or pod.spec.node_name
        if not where and not pod.spec.scheduling_gates and pod.spec.affinity and pod.spec.affinity.node_affinity:
            where = nodes_selector.pinned_node(pod.spec.affinity.node_affinity.required) or ""
        if not where:
            return
        needs = PodNeeds.of(pod)
        self._pods[uid] = (where, needs)
        self._on.setdefault(where, {})[uid] = needs
        if (info := self._nodes.get(where)) is not None:
            _weigh(info, uid, needs, 1)
            self.changes.note(where)

    def pod(self, uid: str) -> tuple[str, PodNeeds] | None:
        """Where a counted pod is, and what it asks; None for one that is not counted."""
        return self._pods.get(uid)

    def drop_pod(self, uid: str) -> None:
        where, needs = self._pods.pop(uid, (None, None))
        if where is None or needs is None:
            return
        pods = self._on[where]
        del pods[uid]
        if not pods:
            del self._on[where]
        if (info := self._nodes.get(where)) is not None:
            _weigh(info, uid, needs, -1)
            self.changes.note(where)


def _weigh(info: NodeInfo, uid: str, needs: PodNeeds, sign: int) -> None:
    for resource, value in needs.requests:
        info.used[resource] = info.used.get(resource, 0) + sign * value
    if needs.ports:
        if sign > 0:
            info.ports[uid] = needs.ports
        else:
            info.ports.pop(uid, None)
