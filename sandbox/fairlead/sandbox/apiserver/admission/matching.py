"""Whether a webhook or a policy applies to a request: rules, selectors, match conditions; and the variables of its CEL.

Webhooks and policies bind the same variables; values are plain JSON. `matchPolicy: Equivalent` is followed between versions
of one custom kind, whose objects differ in apiVersion only (no conversion); not between core and events.k8s.io Events. CEL's `authorizer`
asks the server's; field and label selectors of a question are ignored: RBAC has none.
Source: k8s.io/apiserver/pkg/admission/plugin/{cel,webhook/predicates,webhook/matchconditions} (1.36).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from fairlead.cel import ADMISSION, CompileError, EvaluationError, Program
from fairlead.cel import compile as compile_cel
from fairlead.cel.library.authz import Authorizer, Decision, Question
from fairlead.sandbox.apiserver.kinds.base import Attributes, Services
from fairlead.sandbox.apiserver.kinds.request import Access, Json, UserInfo
from fairlead.sandbox.apiserver.selectors import matches_labels
from fairlead.sandbox.apiserver.state import Conversions
from fairlead.sandbox.apiserver.subresources.scale import scale_of


def matched_version(owner: Json, rules: Sequence[Json], attributes: Attributes, services: Services) -> str | None:
    """The version of the object for the first rule that matches: the request's own, or an equivalent one."""
    if any(rule_matches(rule, attributes) for rule in rules):
        return attributes.kind.version
    if owner.get("matchPolicy") == "Exact" or attributes.subresource not in {"", "status"}:
        return None
    for kind in services.registry.of_resource(attributes.kind.group, attributes.kind.plural):
        if kind.strategy.custom_resource and kind.version != attributes.kind.version:
            other = replace(attributes, kind=kind)
            if any(rule_matches(rule, other) for rule in rules):
                return kind.version
    return None


def seen_as(obj: Json | None, attributes: Attributes, version: str) -> Json | None:
    """The object as a webhook or policy sees it: a Scale for /scale, else in the version of its rule."""
    if obj is None:
        return None
    sub = attributes.kind.subresource("scale")
    if attributes.subresource == "scale" and sub is not None:
        return scale_of(obj, sub)
    if version == attributes.kind.version:
        return obj
    return {**obj, "apiVersion": f"{attributes.kind.group}/{version}"}


def rule_matches(rule: Json, attributes: Attributes) -> bool:
    """One rule with operations: group, version, resource, operation and scope (and names, for policies)."""
    kind = attributes.kind
    names = rule.get("resourceNames") or []
    return (
        _in(rule.get("operations"), attributes.operation)
        and _in(rule.get("apiGroups"), kind.group)
        and _in(rule.get("apiVersions"), kind.version)
        and any(_resource(one, kind.plural, attributes.subresource) for one in rule.get("resources") or [])
        and _scope(rule.get("scope", "*"), attributes)
        and (not names or attributes.name in names)
    )


def _in(values: list[str] | None, value: str) -> bool:
    return any(one in {"*", value} for one in values or [])


def _resource(pattern: str, plural: str, subresource: str) -> bool:
    resource, _, sub = pattern.partition("/")
    return resource in {"*", plural} and (sub == subresource or (sub == "*" and "/" in pattern))


def _scope(scope: str, attributes: Attributes) -> bool:
    namespaced = bool(attributes.namespace) and not is_namespace(attributes)
    return scope in {"*", ""} or (scope == "Namespaced") == namespaced


def is_namespace(attributes: Attributes) -> bool:
    return attributes.kind.plural == "namespaces" and not attributes.kind.group


def namespace_object(attributes: Attributes, services: Services) -> Json | None:
    """The namespace of the request; None for cluster-scoped objects, namespaces included."""
    if not attributes.kind.namespaced:
        return None
    return services.get("", "namespaces", attributes.namespace)


def selectors_match(owner: Json, attributes: Attributes, services: Services) -> bool:
    """NamespaceSelector and objectSelector of a webhook, a policy or a binding."""
    return _namespace_selected(owner.get("namespaceSelector"), attributes, services) and _object_selected(
        owner.get("objectSelector"), attributes
    )


def _namespace_selected(selector: Json | None, attributes: Attributes, services: Services) -> bool:
    if _empty(selector):
        return True
    if is_namespace(attributes):
        if attributes.subresource:
            return True
        # For an update the new labels of the namespace count, for a deletion the old ones.
        return selects(selector, _labels(attributes.object or attributes.old_object))
    if not attributes.namespace:
        return True
    return selects(selector, _labels(services.get("", "namespaces", attributes.namespace)))


def _object_selected(selector: Json | None, attributes: Attributes) -> bool:
    if _empty(selector):
        return True
    return any(selects(selector, _labels(one)) for one in (attributes.object, attributes.old_object) if one is not None)


def _empty(selector: Json | None) -> bool:
    return not selector or (not selector.get("matchLabels") and not selector.get("matchExpressions"))


def _labels(obj: Json | None) -> Mapping[str, str]:
    labels: Mapping[str, str] = ((obj or {}).get("metadata") or {}).get("labels") or {}
    return labels


def selects(selector: Json | None, labels: Mapping[str, str]) -> bool:
    """A metav1.LabelSelector on labels; None selects everything."""
    return selector is None or matches_labels(selector, labels)


def request_fields(attributes: Attributes, matched: str = "") -> dict[str, Any]:
    """The common fields of AdmissionReview.request and CEL's `request`; `matched` is the version of the matching rule."""
    kind = attributes.kind
    body_kind = attributes.body_kind or (("autoscaling", "v1", "Scale") if attributes.subresource == "scale" else None)
    group, version, name = body_kind or (kind.group, kind.version, kind.kind)
    gvk = {"group": group, "version": version, "kind": name}
    gvr = {"group": kind.group, "version": kind.version, "resource": kind.plural}
    fields: dict[str, Any] = {"kind": {**gvk}, "resource": {**gvr}}
    if matched and body_kind is None:
        fields["kind"]["version"] = fields["resource"]["version"] = matched
    if attributes.subresource:
        fields["subResource"] = attributes.subresource
    fields["requestKind"] = gvk
    fields["requestResource"] = gvr
    if attributes.subresource:
        fields["requestSubResource"] = attributes.subresource
    if attributes.name:
        fields["name"] = attributes.name
    if attributes.namespace:
        fields["namespace"] = attributes.namespace
    fields["operation"] = attributes.operation
    fields["userInfo"] = attributes.user.as_json()
    fields["dryRun"] = attributes.dry_run
    fields["options"] = _options(attributes.options)
    return fields


def _options(options: Json) -> Json:
    """A patch is shown as the update that it amounts to."""
    if options.get("kind") != "PatchOptions":
        return options
    return {**{key: value for key, value in options.items() if key != "force"}, "kind": "UpdateOptions"}


def authorizer_of(attributes: Attributes, services: Services) -> Authorizer:
    def ask(question: Question) -> Decision:
        user = attributes.user
        if question.user is not None:  # serviceAccount(namespace, name) asks for another
            user = UserInfo(question.user, _groups(question.user))
        access = Access(
            question.verb,
            question.group,
            question.resource,
            question.subresource,
            question.namespace,
            question.name,
            question.path or "",
        )
        return Decision(services.allows(user, access))

    return Authorizer(ask)


def _groups(user: str) -> tuple[str, ...]:
    parts = user.split(":")
    if parts[:2] != ["system", "serviceaccount"] or len(parts) != 4:
        return ("system:authenticated",)
    return ("system:serviceaccounts", f"system:serviceaccounts:{parts[2]}", "system:authenticated")


Bindings = dict[str, Any]
Converted = Callable[[Conversions], None]
"""Receives what the CEL of each webhook and policy that matches converts."""


@lru_cache(maxsize=4096)
def program(text: str) -> Program:
    """Raises CompileError."""
    return compile_cel(text, ADMISSION)


def bindings(attributes: Attributes, services: Services, version: str = "") -> Bindings:
    """The variables of a request. The policy adds `params` and `variables`."""
    return {
        "object": seen_as(attributes.object, attributes, version or attributes.kind.version),
        "oldObject": seen_as(attributes.old_object, attributes, version or attributes.kind.version),
        "request": request_fields(attributes, version),
        "namespaceObject": namespace_object(attributes, services),
        "params": None,
        "variables": {},
        "authorizer": authorizer_of(attributes, services),
    }


def conversions(owner: str, attributes: Attributes, *, times: int = 1) -> Conversions:
    """Of the request's objects, for CEL that `owner` evaluates in so many goes."""
    objects = times * sum(one is not None for one in (attributes.object, attributes.old_object))
    return Conversions(owner, attributes.operation, attributes.kind.plural, attributes.subresource, objects)


def evaluate(text: str, bound: Bindings) -> Any:
    """The value of an expression. Raises CompileError, EvaluationError."""
    return program(text).evaluate(bound)


def conditions_hold(conditions: list[Json] | None, bound: Bindings) -> bool:
    """Match conditions: a false one decides, even where others fail. Raises EvaluationError when one fails and none is false."""
    failed: Exception | None = None
    for condition in conditions or []:
        try:
            if evaluate(condition["expression"], bound) is not True:
                return False
        except (CompileError, EvaluationError) as error:
            failed = error
    if failed is not None:
        raise EvaluationError(str(failed))
    return True
