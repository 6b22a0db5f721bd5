"""Privilege escalation check: a user may write only roles and bindings whose permissions the user holds.

An installer with too few permissions fails here as it would in a real cluster. The verbs `escalate` (on the role) and
`bind` (on the role that a binding refers to) permit it, as there.
Source: k8s.io/kubernetes/pkg/registry/rbac/{escalation_check.go,clusterrole,rolebinding}/policybased (1.36).
"""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.sandbox.apiserver import statuses
from fairlead.sandbox.apiserver.auth.rbac import GROUP, MASTERS
from fairlead.sandbox.apiserver.call import Call
from fairlead.sandbox.apiserver.kinds.errors import quote
from fairlead.sandbox.apiserver.kinds.request import Access, Json

_ROLES = {"roles": "Role", "clusterroles": "ClusterRole"}
_BINDINGS = ("rolebindings", "clusterrolebindings")


def check(call: Call, new: Json, old: Json | None) -> None:
    """Raises 403 when this write grants more than the user holds."""
    if call.kind.group != GROUP or MASTERS in call.user.groups:
        return
    plural = call.kind.plural
    if plural in _ROLES:
        if old is not None and new.get("rules") == old.get("rules") and "aggregationRule" not in new:
            return
        granted = [*(new.get("rules") or []), *([_EVERYTHING] if "aggregationRule" in new else [])]
        if not _may(call, "escalate", plural, new["metadata"].get("name", "")):
            _refuse_more_than_held(call, new, granted)
    elif plural in _BINDINGS:
        if old is not None and (new.get("roleRef"), new.get("subjects")) == (old.get("roleRef"), old.get("subjects")):
            return
        reference = new.get("roleRef") or {}
        role_plural = "roles" if reference.get("kind") == "Role" else "clusterroles"
        if not _may(call, "bind", role_plural, reference.get("name", "")):
            _refuse_more_than_held(call, new, _rules_of(call, role_plural, reference.get("name", "")))


_EVERYTHING: Json = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}


def _may(call: Call, verb: str, plural: str, name: str) -> bool:
    return call.state.allows(call.user, Access(verb, GROUP, plural, namespace=call.namespace, name=name))


def _rules_of(call: Call, plural: str, name: str) -> list[Json]:
    role = call.state.get(GROUP, plural, name, call.namespace if plural == "roles" else "")
    if role is None:
        raise statuses.not_found_resource(GROUP, plural, name)
    return role.get("rules") or []


def _refuse_more_than_held(call: Call, new: Json, granted: list[Json]) -> None:
    missing = [
        rule for rule in granted if not all(call.state.allows(call.user, one) for one in _atoms(rule, call.namespace))
    ]
    if not missing:
        return
    groups = " ".join(quote(group) for group in call.user.groups)
    shown = "\n".join(_shown(rule) for rule in missing)
    raise statuses.forbidden(
        GROUP,
        call.kind.plural,
        new["metadata"].get("name", ""),
        f"user {quote(call.user.name)} (groups=[{groups}]) is attempting to grant RBAC permissions not currently held:\n{shown}",
    )


def _atoms(rule: Json, namespace: str) -> Iterator[Access]:
    """Every single access that a rule allows."""
    for verb in rule.get("verbs") or []:
        for path in rule.get("nonResourceURLs") or []:
            yield Access(verb, path=path)
        for group in rule.get("apiGroups") or []:
            for resource in rule.get("resources") or []:
                name, _, subresource = resource.partition("/")
                for one in rule.get("resourceNames") or [""]:
                    yield Access(verb, group, name, subresource, namespace, one)


def _shown(rule: Json) -> str:
    parts = [
        ("APIGroups", "apiGroups"),
        ("Resources", "resources"),
        ("ResourceNames", "resourceNames"),
        ("NonResourceURLs", "nonResourceURLs"),
        ("Verbs", "verbs"),
    ]
    shown = [f"{name}:[{' '.join(quote(one) for one in rule[field])}]" for name, field in parts if rule.get(field)]
    return "{" + ", ".join(shown) + "}"
