"""What a pod needs of the pods around it: required inter-pod affinity, anti-affinity, and topology spread (DoNotSchedule).

Selectors are resolved: `matchLabels`, `matchLabelKeys` and `mismatchLabelKeys` are requirements,
`namespaceSelector` is the names of the namespaces that it selects now. Preferred terms are not here: kube-scheduler scores by
them, and a pod that is pinned has one node.
Source: core/v1 PodAffinityTerm and TopologySpreadConstraint; kube-scheduler's interpodaffinity and podtopologyspread, 1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from fairlead.engine.types.fact import Fact
from fairlead.kube.labels import Requirement
from fairlead.kube.objects import LabelSelectorRequirement

if TYPE_CHECKING:
    from fairlead.kube import core
    from fairlead.kube.objects import LabelSelector

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
