"""What a pod asks of a node: amounts of resources, taints and tolerations, node selectors and node affinity.

Pure, on plain dicts, the same for the scheduler, the control loops, quotas, kubelet and the placement of DaemonSet pods.
Amounts are integers: thousandths of cpu, whole units of everything else.
Source: k8s.io/component-helpers/scheduling/corev1 (helpers.go, nodeaffinity) and resource (PodRequests), 1.36.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from fairlead.kube.quantity import Quantity
from fairlead.sandbox.objects import Obj, containers_of, labels_of, name_of, spec_of


def tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    """One toleration against one taint, of nodes as of devices."""
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    operator = toleration.get("operator") or "Equal"
    if operator == "Exists":
        return True
    return bool(toleration.get("key")) and (toleration.get("value") or "") == (taint.get("value") or "")


def untolerated(
    taints: Iterable[Mapping[str, Any]],
    tolerations: Iterable[Mapping[str, Any]],
    *,
    effects: tuple[str, ...] = ("NoSchedule", "NoExecute"),
) -> Iterator[Mapping[str, Any]]:
    known = list(tolerations)
    for taint in taints:
        if str(taint.get("effect")) in effects and not any(tolerates(each, taint) for each in known):
            yield taint


def matches_affinity(pod: Obj, node: Obj) -> bool:
    """Whether the pod's nodeSelector and required node affinity take the node."""
    labels = labels_of(node)
    if any(labels.get(key) != value for key, value in (spec_of(pod).get("nodeSelector") or {}).items()):
        return False
    affinity = (spec_of(pod).get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return required is None or matches_selector(required, node)


def matches_selector(selector: Mapping[str, Any], node: Obj) -> bool:
    """A core/v1 NodeSelector: its terms are alternatives; an empty term matches nothing."""
    return any(matches_term(term, node) for term in selector.get("nodeSelectorTerms") or ())


def matches_term(term: Mapping[str, Any], node: Obj) -> bool:
    expressions = term.get("matchExpressions") or ()
    fields = term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    labels = labels_of(node)
    return all(_requirement(each, labels) for each in expressions) and all(
        _requirement(each, {"metadata.name": name_of(node)}) for each in fields
    )


def _requirement(requirement: Mapping[str, Any], values: Mapping[str, str]) -> bool:
    key, operator = str(requirement.get("key")), requirement.get("operator")
    wanted = list(requirement.get("values") or ())
    has = key in values
    match operator:
        case "In":
            return has and values[key] in wanted
        case "NotIn":
            return not has or values[key] not in wanted
        case "Exists":
            return has
        case "DoesNotExist":
            return not has
        case "Gt" | "Lt":
            try:
                left, right = int(values[key]), int(wanted[0])
            except (KeyError, ValueError, IndexError):
                return False
            return left > right if operator == "Gt" else left < right
    return False


@lru_cache(maxsize=4096)
def amount(resource: str, text: str) -> int:
    """A quantity as an integer: thousandths for cpu, whole units for everything else."""
    quantity = Quantity.of(text)
    return quantity.scaled(-3) if resource == "cpu" else int(quantity)


def amounts(quantities: Mapping[str, Any]) -> dict[str, int]:
    return {resource: amount(resource, str(value)) for resource, value in quantities.items()}


def pod_requests(pod: Obj) -> dict[str, int]:
    """What a pod requests: all containers together, or its largest init container where that is more, plus overhead."""
    total: dict[str, int] = {}
    for container in containers_of(pod):
        add(total, _requests(container))
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec_of(pod).get("initContainers") or ():
        wanted = _requests(container)
        if container.get("restartPolicy") == "Always":
            add(sidecars, wanted)
            wanted = {}
        for resource in {*wanted, *sidecars}:
            together = wanted.get(resource, 0) + sidecars.get(resource, 0)
            peak[resource] = max(peak.get(resource, 0), together)
    add(total, sidecars)
    for resource, value in peak.items():
        total[resource] = max(total.get(resource, 0), value)
    add(total, amounts(spec_of(pod).get("overhead") or {}))
    return total


def _requests(container: Mapping[str, Any]) -> dict[str, int]:
    resources = container.get("resources") or {}
    # A limit without a request is a request. The apiserver defaults it; an object that did not pass it lacks it.
    return amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for resource, value in more.items():
        total[resource] = total.get(resource, 0) + value
