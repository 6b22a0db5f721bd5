"""Filters that look at the pods on other nodes: InterPodAffinity and PodTopologySpread, required terms only.

A refusal has kube-scheduler's words. Pure: reads pods and nodes as plain dicts, counts them again for each pod.
Source: kubernetes pkg/scheduler/framework/plugins/{interpodaffinity,podtopologyspread}, 1.36. Not modelled: default constraints of
the cluster, which are ScheduleAnyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from fairlead.kube import labels
from fairlead.kube.objects import LabelSelector
from fairlead.sandbox.node_fit import matches_affinity, untolerated
from fairlead.sandbox.objects import Obj, is_deleting, labels_of, namespace_of, spec_of

SPREAD: Final = "node(s) didn't match pod topology spread constraints"
SPREAD_LABEL: Final = "node(s) didn't match pod topology spread constraints (missing required label)"
AFFINITY: Final = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY: Final = "node(s) didn't match pod anti-affinity rules"
EXISTING_ANTI_AFFINITY: Final = "node(s) didn't satisfy existing pods anti-affinity rules"

Labels = Mapping[str, str]
NamespaceLabels = Callable[[str], Labels]
PodsOn = Iterable[tuple[Obj, Iterable[Obj]]]  # each node with the pods on it
Counts = dict[tuple[str, str], int]  # by topology key and value


class Neighbours:
    """What one pod needs of the pods around it, counted once for all nodes."""

    def __init__(self, pod: Obj, cluster: PodsOn, namespace_labels: NamespaceLabels) -> None:
        nodes = [(node, list(pods)) for node, pods in cluster]
        self._pod = pod
        self._existing: Counts = {}
        for node, pods in nodes:
            for other in pods:
                for term in required_terms(other, "podAntiAffinity"):
                    if _selects(term, other, pod, namespace_labels):
                        _add(self._existing, node, term)
        self._anti = [
            (term, _count((term,), pod, nodes, namespace_labels)) for term in required_terms(pod, "podAntiAffinity")
        ]
        self._affinity = list(required_terms(pod, "podAffinity"))
        # A pod counts for an affinity term only where it matches all of them.
        self._attracted = _count(self._affinity, pod, nodes, namespace_labels)
        self._first = not self._attracted and all(_selects(term, pod, pod, namespace_labels) for term in self._affinity)
        self._spread = [_Spread(each, pod, nodes) for each in _hard_constraints(pod)]

    def refusal(self, node: Obj) -> str | None:
        """In the order of the plugins: PodTopologySpread, then InterPodAffinity."""
        for constraint in self._spread:
            if constraint.key not in labels_of(node):
                return SPREAD_LABEL
            if not constraint.allows(labels_of(node)[constraint.key]):
                return SPREAD
        if not self._attracts(node):
            return AFFINITY
        if any(_there(counts, node, term) for term, counts in self._anti):
            return ANTI_AFFINITY
        if any(labels_of(node).get(key) == value for key, value in self._existing):
            return EXISTING_ANTI_AFFINITY
        return None

    def _attracts(self, node: Obj) -> bool:
        has_keys = all(term.get("topologyKey") in labels_of(node) for term in self._affinity)
        return has_keys and (self._first or all(_there(self._attracted, node, term) for term in self._affinity))


class _Spread:
    """One constraint with whenUnsatisfiable DoNotSchedule."""

    def __init__(self, constraint: Mapping[str, Any], pod: Obj, nodes: list[tuple[Obj, list[Obj]]]) -> None:
        self.key = str(constraint["topologyKey"])
        self._most = int(constraint.get("maxSkew", 1))
        selector = _with_label_keys(constraint.get("labelSelector"), constraint.get("matchLabelKeys"), labels_of(pod))
        self._self = int(_matches(selector, labels_of(pod)))
        self._counts: dict[str, int] = {}
        keys = [str(each["topologyKey"]) for each in _hard_constraints(pod)]
        for node, pods in nodes:
            if not all(key in labels_of(node) for key in keys) or not _included(constraint, pod, node):
                continue
            value = labels_of(node)[self.key]
            alike = (each for each in pods if namespace_of(each) == namespace_of(pod) and not is_deleting(each))
            number = sum(_matches(selector, labels_of(each)) for each in alike)
            self._counts[value] = self._counts.get(value, 0) + number
        domains_missing = len(self._counts) < int(constraint.get("minDomains") or 1)
        self._least = 0 if domains_missing else min(self._counts.values())

    def allows(self, value: str) -> bool:
        return self._counts.get(value, 0) + self._self - self._least <= self._most


def _included(constraint: Mapping[str, Any], pod: Obj, node: Obj) -> bool:
    """Whether the node's domain counts; by default where the pod's node affinity takes the node, whatever its taints."""
    if (constraint.get("nodeAffinityPolicy") or "Honor") == "Honor" and not matches_affinity(pod, node):
        return False
    honours_taints = constraint.get("nodeTaintsPolicy") == "Honor"
    tainted = untolerated(spec_of(node).get("taints") or (), spec_of(pod).get("tolerations") or ())
    return not (honours_taints and any(tainted))


def _hard_constraints(pod: Obj) -> list[Mapping[str, Any]]:
    found = spec_of(pod).get("topologySpreadConstraints") or ()
    return [each for each in found if each.get("whenUnsatisfiable") == "DoNotSchedule"]


def required_terms(pod: Obj, kind: str) -> Iterator[Mapping[str, Any]]:
    """`kind`: podAffinity or podAntiAffinity."""
    affinity = (spec_of(pod).get("affinity") or {}).get(kind) or {}
    yield from affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or ()


def _selects(term: Mapping[str, Any], owner: Obj, pod: Obj, namespace_labels: NamespaceLabels) -> bool:
    """Whether the owner's term selects the pod."""
    names, selector = term.get("namespaces") or (), term.get("namespaceSelector")
    if not names and selector is None:
        names = (namespace_of(owner),)
    namespace = namespace_of(pod)
    if namespace not in names and not _matches(selector, namespace_labels(namespace)):
        return False
    wanted = _with_label_keys(term.get("labelSelector"), term.get("matchLabelKeys"), labels_of(owner))
    wanted = _with_label_keys(wanted, term.get("mismatchLabelKeys"), labels_of(owner), operator="NotIn")
    return _matches(wanted, labels_of(pod))


def _with_label_keys(
    selector: Mapping[str, Any] | None, keys: Iterable[str] | None, of: Labels, *, operator: str = "In"
) -> Mapping[str, Any] | None:
    """The selector with the pod's own values of these keys; the apiserver writes it so into the pod, this does no harm twice."""
    added = [{"key": key, "operator": operator, "values": [of[key]]} for key in keys or () if key in of]
    if selector is None or not added:
        return selector
    return {**selector, "matchExpressions": [*(selector.get("matchExpressions") or ()), *added]}


def _matches(selector: Mapping[str, Any] | None, of: Labels) -> bool:
    """None matches nothing, an empty selector everything."""
    return selector is not None and labels.matches(msgspec.convert(selector, LabelSelector), of)


def _count(
    terms: Iterable[Mapping[str, Any]],
    owner: Obj,
    nodes: Iterable[tuple[Obj, list[Obj]]],
    namespace_labels: NamespaceLabels,
) -> Counts:
    """The number of pods that all terms of the owner select, by domain."""
    terms, found = list(terms), Counts()
    for node, pods in nodes if terms else ():
        for pod in pods:
            if all(_selects(term, owner, pod, namespace_labels) for term in terms):
                for term in terms:
                    _add(found, node, term)
    return found


def _add(counts: Counts, node: Obj, term: Mapping[str, Any]) -> None:
    key = str(term.get("topologyKey"))
    if key in labels_of(node):
        place = (key, labels_of(node)[key])
        counts[place] = counts.get(place, 0) + 1


def _there(counts: Counts, node: Obj, term: Mapping[str, Any]) -> bool:
    key = str(term.get("topologyKey"))
    return (key, labels_of(node).get(key, "")) in counts


def concerns(pod: Obj) -> bool:
    """Whether the pod has such terms of its own."""
    wanted = (*required_terms(pod, "podAffinity"), *required_terms(pod, "podAntiAffinity"), *_hard_constraints(pod))
    return bool(wanted)
