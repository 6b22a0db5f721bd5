"""What a pod needs of a node besides devices, of the pods around it and of volumes; and the mix of pods that usually request devices.

Amounts of resources are in thousandths, as whole numbers. Terms about other pods are the required ones: inter-pod affinity, anti-affinity
and topology spread (DoNotSchedule), with selectors resolved: `matchLabels`, `matchLabelKeys` and `mismatchLabelKeys` are requirements,
`namespaceSelector` is the names of the namespaces that it selects now. By preferred terms kube-scheduler scores; a pinned pod has one node.
Source: component-helpers resource.PodRequests; kube-scheduler's NodePorts, interpodaffinity and podtopologyspread, 1.36; core/v1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Self

import msgspec

from fairlead.engine.types.values import Fact
from fairlead.kube import core, resource
from fairlead.kube.labels import Requirement
from fairlead.kube.objects import LabelSelector, LabelSelectorRequirement
from fairlead.kube.quantity import Quantity, QuantityError
from fairlead.kube.spec_key import spec_key

PODS = "pods"
KNOWN_MAX = 10_000  # pods' needs of which something is remembered
Port = tuple[str, str, int]  # protocol, host IP, port


class Constraints(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """What of a pod's needs does not depend on what runs on a node: pods that differ in amounts only have equal ones."""

    node_selector: tuple[tuple[str, str], ...] = ()
    affinity: core.NodeSelector | None = None
    tolerations: tuple[core.Toleration, ...] = ()
    volumes: tuple[core.NodeSelector, ...] = ()


class PodNeeds(Fact, frozen=True, kw_only=True, cache_hash=True, dict=True, gc=True):
    """What a pod needs of a node, as a hashable value: pods of one Job have equal needs."""

    requests: tuple[tuple[str, int], ...] = ()  # resource, thousandths; sorted; always with one pod
    node_selector: tuple[tuple[str, str], ...] = ()
    affinity: core.NodeSelector | None = None
    preferred: tuple[core.PreferredSchedulingTerm, ...] = ()
    tolerations: tuple[core.Toleration, ...] = ()
    ports: tuple[Port, ...] = ()
    volumes: tuple[core.NodeSelector, ...] = ()  # where its volumes are, or may be made: the node satisfies all
    neighbours: Neighbours | None = None

    @cached_property
    def constraints(self) -> Constraints:
        return Constraints(self.node_selector, self.affinity, self.tolerations, self.volumes)

    @classmethod
    def of(cls, pod: core.Pod, namespaces: Namespaces | None = None) -> Self:
        """Without volumes, which are other objects. `namespaces`: those that a selector selects."""
        spec = pod.spec
        affinity = spec.affinity.node_affinity if spec.affinity else None
        return cls(
            requests=_requests(spec),
            node_selector=tuple(sorted(spec.node_selector.items())),
            affinity=affinity.required if affinity else None,
            preferred=affinity.preferred if affinity else (),
            tolerations=spec.tolerations,
            ports=tuple(sorted(set(_host_ports(spec)))),
            neighbours=neighbours_of(pod, namespaces),
        )


_known_requests: dict[bytes, tuple[tuple[str, int], ...]] = {}


def _requests(spec: core.PodSpec) -> tuple[tuple[str, int], ...]:
    """Sorted. Remembered by all that it depends on: each pod is read several times, and those of one owner are alike."""
    key = spec_key((spec.containers, spec.init_containers, spec.resources, spec.overhead))
    known = _known_requests.get(key)
    if known is None:
        if len(_known_requests) >= KNOWN_MAX:
            _known_requests.clear()
        known = _known_requests[key] = tuple(sorted(_total(spec).items()))
    return known


def _total(spec: core.PodSpec) -> dict[str, int]:
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
            total[name] = milli(value)  # the request of the pod as a whole wins
    _add(total, spec.overhead)
    total[PODS] = 1000
    return {name: amount for name, amount in total.items() if amount > 0}


def _add(total: dict[str, int], requests: Mapping[str, str | int]) -> None:
    for name, value in requests.items():
        total[name] = total.get(name, 0) + milli(value)


def milli(value: str | int) -> int:
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


Namespaces = Callable[["LabelSelector"], Iterable[str]]
"""Names of the namespaces that a selector selects now."""


class PodSelector(Fact, frozen=True, kw_only=True):
    """Pods by namespace and labels; all requirements must hold. `namespaces` None: any; (): none."""

    namespaces: tuple[str, ...] | None = None
    requirements: tuple[LabelSelectorRequirement, ...] = ()

    def selects(self, namespace: str, labels: Mapping[str, str]) -> bool:
        if self.namespaces is not None and namespace not in self.namespaces:
            return False
        return all(Requirement(rule.key, rule.operator, rule.values).matches(labels) for rule in self.requirements)


class AffinityTerm(Fact, frozen=True, kw_only=True):
    """Some pod (affinity), or none (anti-affinity), of `pods` runs in the node's domain of `topology_key`."""

    topology_key: str
    pods: PodSelector


class SpreadTerm(Fact, frozen=True, kw_only=True):
    """With this pod, the node's domain has at most `max_skew` more of `pods` than the domain with the fewest."""

    topology_key: str
    max_skew: int
    pods: PodSelector
    min_domains: int = 1
    honors_affinity: bool = True  # domains count where the pod's node selector and affinity take the node
    honors_taints: bool = False  # and where it tolerates the node's taints


class Neighbours(Fact, frozen=True, kw_only=True):
    affinity: tuple[AffinityTerm, ...] = ()
    anti_affinity: tuple[AffinityTerm, ...] = ()
    spread: tuple[SpreadTerm, ...] = ()


class PodIdentity(Fact, frozen=True, kw_only=True):
    """By what others select a pod. `leaving`: it is deleted, and counts for spread no more."""

    namespace: str = ""
    labels: Mapping[str, str] = {}
    leaving: bool = False


NOT_KNOWN = PodIdentity()


def neighbours_of(pod: core.Pod, namespaces: Namespaces | None) -> Neighbours | None:
    """None where the pod has no such terms. `namespaces` None: namespace selectors select none."""
    affinity, constraints = pod.spec.affinity, pod.spec.topology_spread_constraints
    near = () if affinity is None or affinity.pod_affinity is None else affinity.pod_affinity.required
    far = () if affinity is None or affinity.pod_anti_affinity is None else affinity.pod_anti_affinity.required
    hard = tuple(each for each in constraints if each.when_unsatisfiable == "DoNotSchedule")
    if not near and not far and not hard:
        return None
    return Neighbours(
        affinity=tuple(_affinity_term(each, pod, namespaces) for each in near),
        anti_affinity=tuple(_affinity_term(each, pod, namespaces) for each in far),
        spread=tuple(_spread_term(each, pod) for each in hard),
    )


def _affinity_term(term: core.PodAffinityTerm, pod: core.Pod, namespaces: Namespaces | None) -> AffinityTerm:
    where: tuple[str, ...] | None = tuple(sorted(term.namespaces))
    selector = term.namespace_selector
    if selector is not None and not selector.match_labels and not selector.match_expressions:
        where = None
    elif selector is not None:
        where = tuple(sorted({*term.namespaces, *(() if namespaces is None else namespaces(selector))}))
    elif not term.namespaces:
        where = (pod.metadata.namespace,)
    requirements = _requirements(term.label_selector, term.match_label_keys, term.mismatch_label_keys, pod)
    return AffinityTerm(topology_key=term.topology_key, pods=_selector(where, requirements))


def _spread_term(term: core.TopologySpreadConstraint, pod: core.Pod) -> SpreadTerm:
    requirements = _requirements(term.label_selector, term.match_label_keys, (), pod)
    return SpreadTerm(
        topology_key=term.topology_key,
        max_skew=term.max_skew,
        pods=_selector((pod.metadata.namespace,), requirements),
        min_domains=term.min_domains or 1,
        honors_affinity=term.node_affinity_policy != "Ignore",
        honors_taints=term.node_taints_policy == "Honor",
    )


def _selector(
    namespaces: tuple[str, ...] | None, requirements: tuple[LabelSelectorRequirement, ...] | None
) -> PodSelector:
    if requirements is None:
        return PodSelector(namespaces=())  # no selector selects no pod
    return PodSelector(namespaces=namespaces, requirements=requirements)


def _requirements(
    selector: LabelSelector | None, keys: Iterable[str], other_keys: Iterable[str], pod: core.Pod
) -> tuple[LabelSelectorRequirement, ...] | None:
    """Each once, sorted: the apiserver writes `matchLabelKeys` into the selector too, in versions that differ by term."""
    if selector is None:
        return None
    labels = pod.metadata.labels
    found: list[tuple[str, str, tuple[str, ...]]]
    found = [(key, "In", (value,)) for key, value in selector.match_labels.items()]
    found += [(rule.key, rule.operator, rule.values) for rule in selector.match_expressions]
    found += [(key, "In", (labels[key],)) for key in keys if key in labels]
    found += [(key, "NotIn", (labels[key],)) for key in other_keys if key in labels]
    return tuple(
        LabelSelectorRequirement(key=key, operator=operator, values=values)
        for key, operator, values in sorted(set(found))
    )


class Demand(Fact, frozen=True):
    """A kind of pod that requests devices by one claim, and how often it arrived."""

    spec: resource.ResourceClaimSpec
    needs: PodNeeds
    count: int


class Workload(Fact, frozen=True, eq=False):
    """Most frequent first. Compared by identity: to use a new one costs a look at every node.

    `rare`: kinds that request several devices, or name where they may run, and are not among `demands`. `pods`: how many pods
    were counted, of all kinds.
    `once`: how many kinds were seen exactly once; `once / pods` estimates how often a pod of a new kind comes (Good, Turing).
    `cpu`: thousandths of a core that these pods requested, and pods that came without a claim.
    """

    demands: tuple[Demand, ...] = ()
    rare: tuple[Demand, ...] = ()
    pods: int = 0
    once: int = 0
    cpu: int = 0
