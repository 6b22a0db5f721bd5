"""The policies' rules about pods with managed devices: requests, tolerations, node affinity, and the defaults of the last two.

Exists so that a pod and the template of a job are judged by the same functions. Ways past the claims are bypass.py's.
Keeps: what `defaults` adds is what `pod_findings` asks for, and a second pass adds nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fairlead.api.base import SelectorRequirement
from fairlead.api.policy import NodeAffinity, Toleration
from fairlead.kube.quantity import Quantity, QuantityError
from fairlead.webhook.objects.fields import Json, list_at, map_at, strings_at
from fairlead.webhook.policy.policies import Policies, finding
from fairlead.webhook.review.patch import Draft
from fairlead.webhook.review.verdict import Finding

_AFFINITY = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")


def pod_findings(policies: Policies, spec: Json, path: str, *, template: bool = False) -> Iterator[Finding]:
    """Everything that a pod spec at path breaks; what a template lacks is added to its pods. Raises MalformedError."""
    for policy in policies:
        rules = policy.spec
        if rules.resource_requests == "EqualLimits":
            for text in _unequal(spec, path):
                yield finding(policy, "resourceRequests", text)
        if rules.tolerations is not None and _wants(rules.tolerations.missing, rules.mode, template=template):
            for toleration in _untolerated(spec, rules.tolerations.tolerations):
                yield finding(policy, "tolerations", f"{path}.tolerations: {_shown(toleration)} is missing; add it")
        if rules.node_affinity is not None and _wants(rules.node_affinity.missing, rules.mode, template=template):
            for wanted in _unasked(spec, rules.node_affinity):
                where = f"{path}.affinity.nodeAffinity"
                yield finding(
                    policy, "nodeAffinity", f"{where}: {_said(wanted)} is missing; require it, or set nodeSelector"
                )


def defaults(policies: Policies, draft: Draft) -> None:
    """Adds to draft's pod what Enforce policies add where it is missing. Raises MalformedError."""
    for policy in policies:
        rules = policy.spec
        if rules.mode != "Enforce":
            continue
        if rules.tolerations is not None and rules.tolerations.missing == "Default":
            for toleration in _untolerated(map_at(draft.object, "spec"), rules.tolerations.tolerations):
                draft.append(("spec", "tolerations"), _json(toleration))
        if rules.node_affinity is not None and rules.node_affinity.missing == "Default":
            _require(draft, rules.node_affinity)


def _wants(missing: str, mode: str, *, template: bool) -> bool:
    """Whether what is missing is a finding; otherwise it is added."""
    return missing == "Require" or (mode != "Enforce" and not template)


# -- requests ------------------------------------------------------------------------------------------------------


def _unequal(spec: Json, path: str) -> Iterator[str]:
    for list_name in ("initContainers", "containers"):
        for index, container in enumerate(list_at(spec, list_name, path)):
            where = f"{path}.{list_name}[{index}].resources"
            resources = map_at(container, "resources", where)
            limits, requests = map_at(resources, "limits", where), map_at(resources, "requests", where)
            for resource in ("cpu", "memory"):
                limit, request = limits.get(resource), requests.get(resource, limits.get(resource))
                if limit is None:
                    yield f"{where}.limits[{resource}]: is missing; write a limit, and the same as request or none"
                elif limit != request and not _same(limit, request):
                    yield f"{where}.requests[{resource}]: {request} must equal the limit {limit}; write the same, or none"


def _same(limit: Any, request: Any) -> bool:
    try:
        return Quantity.of(limit) == Quantity.of(request)
    except (QuantityError, TypeError):
        return True  # the apiserver refuses it, with its reason


# -- tolerations ---------------------------------------------------------------------------------------------------


def _untolerated(spec: Json, wanted: list[Toleration]) -> list[Toleration]:
    given = list_at(spec, "tolerations", "spec")
    return [toleration for toleration in wanted if not any(_covers(one, toleration) for one in given)]


def _covers(given: Json, wanted: Toleration) -> bool:
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


def _shown(toleration: Toleration) -> str:
    value = f"={toleration.value}" if toleration.value else ""
    effect = f":{toleration.effect}" if toleration.effect else ""
    return f"the toleration {toleration.key or 'of everything'}{value}{effect} ({toleration.operator})"


# -- node affinity -------------------------------------------------------------------------------------------------


def _terms(spec: Json) -> list[Json]:
    """The terms of the required node affinity, of which one must hold. Raises MalformedError."""
    node, where = spec, "spec"
    for step in _AFFINITY:
        node = map_at(node, step, where)
        where = f"{where}.{step}"
    return list_at(node, "nodeSelectorTerms", where)


def _unasked(spec: Json, affinity: NodeAffinity) -> list[SelectorRequirement]:
    """What is not in every term, nor in the node selector."""
    terms = _terms(spec)
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


def _require(draft: Draft, affinity: NodeAffinity) -> None:
    spec = map_at(draft.object, "spec")
    missing = [_expression(wanted) for wanted in _unasked(spec, affinity)]
    if not missing:
        return
    at = ("spec", *_AFFINITY, "nodeSelectorTerms")
    terms = _terms(spec)
    if not terms:
        draft.set(at, [{"matchExpressions": missing}])
    for index in range(len(terms)):
        for expression in missing:
            if expression not in list_at(terms[index], "matchExpressions", "nodeSelectorTerms"):
                draft.append((*at, index, "matchExpressions"), expression)


def _expression(wanted: SelectorRequirement) -> Json:
    return wanted.model_dump(by_alias=True, mode="json", exclude_defaults=True)


def _said(wanted: SelectorRequirement) -> str:
    return f"{wanted.key} {wanted.operator}{f' {sorted(wanted.values)}' if wanted.values else ''}"
