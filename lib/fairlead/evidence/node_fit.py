"""Whether a node takes a pod, devices aside: kube-scheduler's rules for resources, taints, selectors, affinity and ports.

Pure, over the API's structs. Amounts are in thousandths.
Source: component-helpers resource.PodRequests and nodeaffinity.go; kube-scheduler's NodeResourcesFit, TaintToleration, NodePorts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from fairlead.kube import core, labels, resource
from fairlead.kube.quantity import Quantity, QuantityError

Port = tuple[str, str, int]  # protocol, host IP, port


def needs(spec: core.PodSpec) -> dict[str, int]:
    """What a pod requests, in thousandths: the most of its containers and sidecars, and of each init container in its turn."""
    total: dict[str, int] = defaultdict(int)
    sidecars: dict[str, int] = defaultdict(int)
    for each in spec.containers:
        _add(total, each.resources.requests)
    peak: dict[str, int] = defaultdict(int)
    for each in spec.init_containers:
        turn = sidecars if each.restart_policy == "Always" else dict(sidecars)
        _add(turn, each.resources.requests)
        peak = defaultdict(int, {name: max(peak[name], turn.get(name, 0)) for name in peak.keys() | turn.keys()})
    total = defaultdict(int, {n: max(total[n] + sidecars[n], peak[n]) for n in {*total, *sidecars, *peak}})
    if spec.resources is not None:
        total |= {name: milli(value) for name, value in spec.resources.requests.items()}
    _add(total, spec.overhead)
    return {name: value for name, value in {**total, "pods": 1000}.items() if value > 0}


def milli(value: str | int) -> int:
    try:
        return Quantity.of(value).scaled(-3)
    except QuantityError:
        return 0


def _add(total: dict[str, int], requests: core.ResourceList) -> None:
    for name, value in requests.items():
        total[name] = total.get(name, 0) + milli(value)


def ports(spec: core.PodSpec) -> set[Port]:
    every = [port for each in (*spec.init_containers, *spec.containers) for port in each.ports]
    numbered = [(port, port.host_port or (port.container_port if spec.host_network else 0)) for port in every]
    return {(port.protocol or "TCP", port.host_ip or "0.0.0.0", number) for port, number in numbered if number}


def clash(one: Port, other: Port) -> bool:
    return one[::2] == other[::2] and (one[1] == other[1] or "0.0.0.0" in {one[1], other[1]})


def tolerated(
    taint: core.Taint | resource.DeviceTaint, tolerations: Iterable[core.Toleration | resource.DeviceToleration]
) -> bool:
    return taint.effect not in {"NoSchedule", "NoExecute"} or any(
        (not each.effect or each.effect == taint.effect)
        and (not each.key or each.key == taint.key)
        and (each.operator == "Exists" or (each.key == taint.key and each.value == taint.value))
        for each in tolerations
    )


def refusals(node: core.Node, pod: core.PodSpec) -> set[tuple[str, str]]:
    """Why the node, whatever runs there, does not take the pod: (by, what) of `Refused`."""
    affinity = pod.affinity.node_affinity if pod.affinity else None
    conditions = [each.status for each in node.status.conditions if each.type == "Ready"]
    cordon = core.Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
    found = {("Taint", taint.key) for taint in node.spec.taints if not tolerated(taint, pod.tolerations)}
    found |= {("NodeSelector", k) for k, v in pod.node_selector.items() if node.metadata.labels.get(k) != v}
    found |= {("NotReady", "")} if conditions and "True" not in conditions else set()
    found |= {("Unschedulable", "")} if node.spec.unschedulable and not tolerated(cordon, pod.tolerations) else set()
    if affinity is not None and affinity.required is not None and not selects(affinity.required, node):
        found.add(("Affinity", ""))
    return found


def pinned(pod: core.Pod) -> str:
    """The node on which the pod counts: where it is bound, or the one that all its affinity terms name."""
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    if pod.spec.node_name or pod.spec.scheduling_gates or affinity is None or affinity.required is None:
        return pod.spec.node_name
    named = [
        next((r.values[0] for r in term.match_fields if r.operator == "In" and len(r.values) == 1), "")
        for term in affinity.required.node_selector_terms
    ]
    return named[0] if len(set(named)) == 1 else ""


def selects(selector: core.NodeSelector, node: core.Node) -> bool:
    def field(rule: core.NodeSelectorRequirement) -> bool:
        named = rule.key == "metadata.name" and rule.operator in {"In", "NotIn"}
        return named and (node.metadata.name in rule.values) == (rule.operator == "In")

    return any(
        (term.match_expressions or term.match_fields)
        and all(
            labels.Requirement(r.key, r.operator, r.values).matches(node.metadata.labels)
            for r in term.match_expressions
        )
        and all(map(field, term.match_fields))
        for term in selector.node_selector_terms
    )
