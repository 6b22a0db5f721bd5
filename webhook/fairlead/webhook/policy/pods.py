"""Policy rules about pods with managed devices: requests, tolerations, node affinity, idle devices, and the defaults of the last two.

A pod and the template of a workload are judged by the same functions. Keeps: `set_defaults` adds what `pod_findings` would
report, and a second pass adds nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fairlead.api import names
from fairlead.api.base import SelectorRequirement
from fairlead.api.policy import NodeAffinity, Toleration
from fairlead.kube.quantity import Quantity, QuantityError
from fairlead.webhook.objects.fields import Json, list_at, map_at, strings_at
from fairlead.webhook.objects.pods import REQUIRED_NODE_AFFINITY, containers, required_node_terms
from fairlead.webhook.policy.policies import Policies, finding, first
from fairlead.webhook.review.patch import PatchBuilder
from fairlead.webhook.review.verdict import Finding


def pod_findings(policies: Policies, spec: Json, path: str, *, template: bool = False) -> Iterator[Finding]:
    """Findings about a pod spec at path; template: of a template's pods, to which defaults are added when they are created. Raises MalformedError."""
    for policy in policies:
        rules = policy.spec
        if rules.resource_requests == "EqualLimits":
            for text in first(_unequal_requests(spec, path)):
                yield finding(policy, "resourceRequests", text)
        if rules.tolerations is not None and _reported(rules.tolerations.missing, rules.mode, template=template):
            for toleration in _missing_tolerations(spec, rules.tolerations.tolerations):
                yield finding(
                    policy, "tolerations", f"{path}.tolerations: {_toleration_text(toleration)} is missing; add it"
                )
        if rules.node_affinity is not None and _reported(rules.node_affinity.missing, rules.mode, template=template):
            for wanted in _missing_requirements(spec, rules.node_affinity):
                where = f"{path}.affinity.nodeAffinity"
                yield finding(
                    policy,
                    "nodeAffinity",
                    f"{where}: {_requirement_text(wanted)} is missing; require it, or set nodeSelector",
                )


def keep_idle_findings(policies: Policies, metadata: Json, where: str) -> Iterator[Finding]:
    """Findings about the metadata of a pod, or of a template, at `where`. Raises MalformedError."""
    if strings_at(metadata, "annotations", where).get(names.KEEP_IDLE) != "true":
        return
    for policy in policies:
        if policy.spec.keep_idle == "Reject":
            cure = "remove it; a Queue of such pods may say idle: {then: nothing}"
            yield finding(policy, "keepIdle", f"{where}.annotations[{names.KEEP_IDLE}]: is not allowed here; {cure}")


def set_defaults(policies: Policies, patch: PatchBuilder) -> None:
    """Add the tolerations and node affinity of Enforce policies that the pod lacks. Raises MalformedError."""
    for policy in policies:
        rules = policy.spec
        if rules.mode != "Enforce":
            continue
        if rules.tolerations is not None and rules.tolerations.missing == "Default":
            for toleration in _missing_tolerations(map_at(patch.patched, "spec"), rules.tolerations.tolerations):
                patch.append(("spec", "tolerations"), _json(toleration))
        if rules.node_affinity is not None and rules.node_affinity.missing == "Default":
            _require(patch, rules.node_affinity)


def _reported(missing: str, mode: str, *, template: bool) -> bool:
    """Whether something missing is a finding; otherwise it is added."""
    return missing == "Require" or (mode != "Enforce" and not template)


# -- requests ------------------------------------------------------------------------------------------------------


def _unequal_requests(spec: Json, path: str) -> Iterator[str]:
    for list_name, index, container in containers(spec, path):
        where = f"{path}.{list_name}[{index}].resources"
        resources = map_at(container, "resources", where)
        limits, requests = map_at(resources, "limits", where), map_at(resources, "requests", where)
        for resource in ("cpu", "memory"):
            limit, request = limits.get(resource), requests.get(resource, limits.get(resource))
            if limit is None:
                yield f"{where}.limits[{resource}]: is missing; write a limit, and the same as request or none"
            elif limit != request and not _equal(limit, request):
                yield f"{where}.requests[{resource}]: {request} must equal the limit {limit}; write the same, or none"


def _equal(limit: Any, request: Any) -> bool:
    try:
        return Quantity.of(limit) == Quantity.of(request)
    except (QuantityError, TypeError):
        return True  # the apiserver denies it, with a reason of its own


# -- tolerations ---------------------------------------------------------------------------------------------------


def _missing_tolerations(spec: Json, wanted: list[Toleration]) -> list[Toleration]:
    given = list_at(spec, "tolerations", "spec")
    return [toleration for toleration in wanted if not any(_includes(one, toleration) for one in given)]


def _includes(given: Json, wanted: Toleration) -> bool:
    operator = given.get("operator") or "Equal"
    if given.get("effect") and given["effect"] != wanted.effect:
        return False
    if given.get("tolerationSeconds") is not None and given["tolerationSeconds"] != wanted.toleration_seconds:
        return False
    if not given.get("key"):
        return operator == "Exists"
    if given["key"] != wanted.key:
        return False
    return operator == "Exists" or (
        operator == wanted.operator == "Equal" and (given.get("value") or "") == (wanted.value or "")
    )


def _json(toleration: Toleration) -> Json:
    written = {
        "key": toleration.key,
        "operator": toleration.operator,
        "value": toleration.value,
        "effect": toleration.effect,
        "tolerationSeconds": toleration.toleration_seconds,
    }
    return {name: value for name, value in written.items() if value is not None}


def _toleration_text(toleration: Toleration) -> str:
    value = f"={toleration.value}" if toleration.value else ""
    effect = f":{toleration.effect}" if toleration.effect else ""
    return f"the toleration {toleration.key or 'of everything'}{value}{effect} ({toleration.operator})"


# -- node affinity -------------------------------------------------------------------------------------------------


def _missing_requirements(spec: Json, affinity: NodeAffinity) -> list[SelectorRequirement]:
    """The requirements that are neither in every term nor in the node selector."""
    terms = required_node_terms(spec)
    selector = strings_at(spec, "nodeSelector", "spec")
    return [
        wanted
        for wanted in affinity.match_expressions
        if not _selected(selector, wanted) and not (terms and all(_in_term(term, wanted) for term in terms))
    ]


def _selected(selector: Json, wanted: SelectorRequirement) -> bool:
    value = selector.get(wanted.key)
    return value is not None and (wanted.operator == "Exists" or (wanted.operator == "In" and value in wanted.values))


def _in_term(term: Json, wanted: SelectorRequirement) -> bool:
    return any(_implies(given, wanted) for given in list_at(term, "matchExpressions", "nodeSelectorTerms"))


def _implies(given: Json, wanted: SelectorRequirement) -> bool:
    if given.get("key") != wanted.key:
        return False
    operator, values = given.get("operator"), given.get("values")
    held = {value for value in values if isinstance(value, str)} if isinstance(values, list) else set()
    if wanted.operator == "In":
        return operator == "In" and bool(held) and held <= set(wanted.values)
    if wanted.operator == "NotIn":
        return operator == "DoesNotExist" or (operator == "NotIn" and held >= set(wanted.values))
    if wanted.operator == "Exists":
        return operator in {"Exists", "In", "Gt", "Lt"}
    return operator == "DoesNotExist"


def _require(patch: PatchBuilder, affinity: NodeAffinity) -> None:
    spec = map_at(patch.patched, "spec")
    missing = [_expression(wanted) for wanted in _missing_requirements(spec, affinity)]
    if not missing:
        return
    at = (*REQUIRED_NODE_AFFINITY, "nodeSelectorTerms")
    terms = required_node_terms(spec)
    if not terms:
        patch.set(at, [{"matchExpressions": missing}])
    for index in range(len(terms)):
        for expression in missing:
            if expression not in list_at(terms[index], "matchExpressions", "nodeSelectorTerms"):
                patch.append((*at, index, "matchExpressions"), expression)


def _expression(wanted: SelectorRequirement) -> Json:
    return wanted.model_dump(by_alias=True, mode="json", exclude_defaults=True)


def _requirement_text(wanted: SelectorRequirement) -> str:
    return f"{wanted.key} {wanted.operator}{f' {sorted(wanted.values)}' if wanted.values else ''}"
