"""What a pod needs of a node besides devices, its volumes and the pods around it included. Amounts of resources are in thousandths, as whole numbers.

Source: component-helpers resource.PodRequests, kube-scheduler's NodePorts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Self

import msgspec

from fairlead.engine.types.fact import Fact
from fairlead.engine.types.neighbours import Namespaces, Neighbours, neighbours_of
from fairlead.kube import core
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
