"""Taints and tolerations, node selectors and node affinity: which nodes a pod (or an allocation) may use.

Pure predicates on plain dicts, the same for the scheduler, the control loops and the placement of DaemonSet pods.
Source: k8s.io/component-helpers/scheduling/corev1 (helpers.go, nodeaffinity), 1.36.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fairlead.sandbox.objects import Obj, labels_of, name_of, spec_of


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
