"""Whether a webhook or a policy applies to a request: rules, selectors, match conditions.

Pure but for the namespace's labels, which come from the Services. `matchPolicy: Equivalent` is followed between versions
of one custom kind, whose objects differ in apiVersion only (no conversion); not between core and events.k8s.io Events.
Source: k8s.io/apiserver/pkg/admission/plugin/webhook/predicates (1.36).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fairlead.sandbox.apiserver.kinds.attributes import Attributes
from fairlead.sandbox.apiserver.kinds.base import Services
from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.apiserver.selectors import matches_labels
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
