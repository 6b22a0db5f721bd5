"""Authorization by RBAC, evaluated from the stored roles and bindings, and the check against privilege escalation.

A program or an installer that lacks a permission in its manifests fails here, not first in a real cluster; system:masters may do
everything. Aggregated ClusterRoles are assembled by their selectors at use. There is no node authorizer: nodes have the rules of
`system:node` by a binding to their group (roles.py). A user may write only roles and bindings whose permissions the user holds; the verbs
`escalate` (on the role) and `bind` (on the role that a binding refers to) permit more.
Source: plugin/pkg/auth/authorizer/rbac, pkg/registry/rbac/{escalation_check.go,clusterrole,rolebinding}/policybased (1.36).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fairlead.sandbox.apiserver import statuses
from fairlead.sandbox.apiserver.call import Call
from fairlead.sandbox.apiserver.kinds.errors import quote
from fairlead.sandbox.apiserver.kinds.request import Access, Json, UserInfo

if TYPE_CHECKING:
    from fairlead.sandbox.apiserver.state import State

GROUP = "rbac.authorization.k8s.io"
MASTERS = "system:masters"
_TABLES = ("clusterroles", "clusterrolebindings", "roles", "rolebindings")


@dataclass(frozen=True)
class Grant:
    """One rule that a user has, the namespace where it holds ("" = all), and the binding that gives it."""

    rule: Json
    namespace: str
    because: str


class Rbac:
    """Answers from the stored RBAC objects; grants are cached per user until one of them changes."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._grants: dict[tuple[str, tuple[str, ...]], list[Grant]] = {}
        for table in _TABLES:
            state.store.subscribe(f"{GROUP}/{table}", lambda _change: self._grants.clear())

    def allows(self, user: UserInfo, access: Access) -> bool:
        return MASTERS in user.groups or self._granting(user, access) is not None

    def explain(self, user: UserInfo, access: Access) -> tuple[bool, str]:
        """The verdict, and the binding that gives it."""
        if MASTERS in user.groups:
            return True, ""
        grant = self._granting(user, access)
        return (True, f"RBAC: allowed by {grant.because}") if grant else (False, "")

    def rules_of(self, user: UserInfo, namespace: str) -> list[Json]:
        """All rules that hold for a user in a namespace."""
        everything: list[Json] = []
        if MASTERS in user.groups:
            everything = [
                {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
                {"verbs": ["*"], "nonResourceURLs": ["*"]},
            ]
        return everything + [g.rule for g in self._grants_of(user) if g.namespace in {"", namespace}]

    def _granting(self, user: UserInfo, access: Access) -> Grant | None:
        for grant in self._grants_of(user):
            if (not grant.namespace or grant.namespace == access.namespace) and covers(grant.rule, access):
                return grant
        return None

    def _grants_of(self, user: UserInfo) -> list[Grant]:
        key = (user.name, user.groups)
        if key not in self._grants:
            self._grants[key] = list(self._collect(user))
        return self._grants[key]

    def _collect(self, user: UserInfo) -> Iterator[Grant]:
        for table, kind in (("clusterrolebindings", "ClusterRoleBinding"), ("rolebindings", "RoleBinding")):
            for binding in self._state.list(GROUP, table):
                namespace = binding["metadata"].get("namespace", "")
                subject = next((one for one in binding.get("subjects") or [] if _is(one, user, namespace)), None)
                if subject is None:
                    continue
                role = binding.get("roleRef") or {}
                shown = f"{namespace}/{binding['metadata']['name']}" if namespace else binding["metadata"]["name"]
                because = f"{kind} {quote(shown)} of {role.get('kind')} {quote(role.get('name', ''))} to {_shown(subject, namespace)}"
                for rule in self._rules(role, namespace):
                    yield Grant(rule, namespace, because)

    def _rules(self, reference: Json, namespace: str) -> list[Json]:
        """The rules of a Role or ClusterRole; none when it does not exist."""
        if reference.get("kind") == "Role":
            role = self._state.get(GROUP, "roles", reference.get("name", ""), namespace)
        else:
            role = self._state.get(GROUP, "clusterroles", reference.get("name", ""))
        if role is None:
            return []
        selectors = (role.get("aggregationRule") or {}).get("clusterRoleSelectors") or []
        if not selectors:
            return role.get("rules") or []
        return [
            rule
            for other in self._state.list(GROUP, "clusterroles")
            if any(_has_labels(other, one.get("matchLabels") or {}) for one in selectors)
            for rule in other.get("rules") or []
        ]


def _has_labels(role: Json, wanted: dict[str, str]) -> bool:
    labels = role["metadata"].get("labels") or {}
    return bool(wanted) and all(labels.get(key) == value for key, value in wanted.items())


def _is(subject: Json, user: UserInfo, namespace: str) -> bool:
    name = subject.get("name", "")
    match subject.get("kind"):
        case "User":
            return bool(name == user.name)
        case "Group":
            return name in user.groups
        case "ServiceAccount":
            return user.name == f"system:serviceaccount:{subject.get('namespace') or namespace}:{name}"
        case _:
            return False


def _shown(subject: Json, namespace: str) -> str:
    name = subject.get("name", "")
    if subject.get("kind") == "ServiceAccount":
        return f"ServiceAccount {quote(name + '/' + (subject.get('namespace') or namespace))}"
    return f"{subject.get('kind')} {quote(name)}"


def covers(rule: Json, access: Access) -> bool:
    """Whether a PolicyRule allows the access."""
    verbs = rule.get("verbs") or []
    if "*" not in verbs and access.verb not in verbs:
        return False
    if access.path:
        return any(
            url in {"*", access.path} or (url.endswith("*") and access.path.startswith(url[:-1]))
            for url in rule.get("nonResourceURLs") or []
        )
    groups, resources = rule.get("apiGroups") or [], rule.get("resources") or []
    if "*" not in groups and access.group not in groups:
        return False
    wanted = f"{access.resource}/{access.subresource}" if access.subresource else access.resource
    if not ("*" in resources or wanted in resources or (access.subresource and f"*/{access.subresource}" in resources)):
        return False
    names = rule.get("resourceNames") or []
    return not names or access.name in names


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
    shown = "\n".join(_shown_rule(rule) for rule in missing)
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


def _shown_rule(rule: Json) -> str:
    parts = [
        ("APIGroups", "apiGroups"),
        ("Resources", "resources"),
        ("ResourceNames", "resourceNames"),
        ("NonResourceURLs", "nonResourceURLs"),
        ("Verbs", "verbs"),
    ]
    shown = [f"{name}:[{' '.join(quote(one) for one in rule[field])}]" for name, field in parts if rule.get(field)]
    return "{" + ", ".join(shown) + "}"
