"""What an account reaches with its rights, read from manifests: whose token, in one step and in more.

A *step* is a right that RBAC grants and that leads to the tokens of others: a Secret read, or created as a token; a pod made, or a
program put into one; a role bound; a webhook through which all objects pass; a policy taken away. A right that a policy of the
same manifests confines for that account is none, where the policy is one of `CONFINES`, whose effect tests try with the token.
`EVERYTHING` stands for whoever reaches the whole cluster. Pure; knows RBAC's wildcards, resourceNames and namespaces.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
EVERYTHING = "every account of the cluster"
CONFINES = {
    "fairlead-controller-pods": "tests/webhook/test_least_privilege.py",
    "fairlead-placeholders": "tests/manifests/test_reach.py",
    "fairlead-webhook-configurations": "tests/webhook/test_least_privilege.py, test_stolen_webhook_token.py",
    "fairlead-driver-node": "tests/manifests/test_mig_layouts.py",
}
"""Policies that let their account do nothing of a step, and where that is tried."""

WRITE = ("create", "update", "patch")
CHANGE = ("update", "patch")
WORKLOADS = ("deployments", "daemonsets", "statefulsets", "replicasets")
ADMISSION = (
    "mutatingwebhookconfigurations", "validatingwebhookconfigurations", "validatingadmissionpolicies",
    "validatingadmissionpolicybindings", "mutatingadmissionpolicies", "mutatingadmissionpolicybindings",
)  # fmt: skip
_RBAC = "rbac.authorization.k8s.io"
NAMESPACED = ("roles", "rolebindings", "serviceaccounts")
"""Of the kinds by which everything is reached."""


@dataclass(frozen=True)
class Danger:
    """`everything`: it reaches the whole cluster; else the accounts of the namespaces in which it is granted."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    why: str
    everything: bool = False
    named_is_safe: bool = False  # with resourceNames it reaches none: what is there keeps its type


DANGERS: tuple[Danger, ...] = (
    Danger("", "secrets", ("create",), "creates a token of any account there"),
    Danger("", "secrets", ("get", "list", "watch"), "reads tokens", named_is_safe=True),
    Danger("", "configmaps", ("create",), "creates the configuration of any program there"),
    Danger("", "serviceaccounts/token", ("create",), "asks for a token"),
    Danger("", "pods", ("create",), "runs a program as any account there"),
    Danger("", "pods", CHANGE, "changes the image of a pod"),
    Danger("", "replicationcontrollers", WRITE, "runs a program as any account there"),
    *(Danger("apps", each, WRITE, "runs a program as any account there") for each in WORKLOADS),
    *(Danger("batch", each, WRITE, "runs a program as any account there") for each in ("jobs", "cronjobs")),
    *(
        Danger("", f"pods/{each}", ("get", *WRITE), "runs a program in a pod")
        for each in ("exec", "attach", "portforward", "ephemeralcontainers", "proxy")
    ),
    Danger("", "nodes/proxy", ("get", *WRITE), "runs a program in any pod of a node", everything=True),
    Danger("", "nodes", (*WRITE, "delete"), "draws pods to a node, or away", everything=True),
    Danger("", "namespaces", CHANGE, "lifts a namespace's Pod Security", everything=True),
    Danger("", "persistentvolumes", WRITE, "mounts a directory of a node", everything=True),
    *(Danger("", each, ("impersonate",), "acts as another", everything=True) for each in ("users", "groups", "serviceaccounts")),
    Danger("authentication.k8s.io", "userextras", ("impersonate",), "acts as another", everything=True),
    *(
        Danger(_RBAC, each, (*WRITE, "bind", "escalate", "delete"), "grants itself rights", everything=True)
        for each in ("roles", "clusterroles", "rolebindings", "clusterrolebindings")
    ),
    *(
        Danger("admissionregistration.k8s.io", each, (*WRITE, "delete"), "changes all objects, or takes a policy away", everything=True)
        for each in ADMISSION
    ),
    Danger("certificates.k8s.io", "certificatesigningrequests/approval", CHANGE, "becomes any user", everything=True),
    Danger("certificates.k8s.io", "signers", ("approve", "sign", "attest"), "becomes any user", everything=True),
    Danger("apiextensions.k8s.io", "customresourcedefinitions", (*WRITE, "delete"), "converts objects", everything=True),
    Danger("apiregistration.k8s.io", "apiservices", (*WRITE, "delete"), "answers for the apiserver", everything=True),
)  # fmt: skip


@dataclass(frozen=True)
class Right:
    """One rule, of one binding. `namespace` None: of all."""

    namespace: str | None
    groups: tuple[str, ...]
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    names: tuple[str, ...]

    def allows(self, danger: Danger, verb: str) -> bool:
        main, _, sub = danger.resource.partition("/")
        patterns = {danger.resource, "*", f"*/{sub}" if sub else main}
        return (
            bool({danger.group, "*"} & set(self.groups))
            and bool(patterns & set(self.resources))
            and bool({verb, "*"} & set(self.verbs))
        )


@dataclass(frozen=True)
class Step:
    account: str
    reaches: str
    verb: str
    resource: str
    why: str

    def __str__(self) -> str:
        return f"{self.account} reaches {self.reaches}: it may {self.verb} {self.resource}, so it {self.why}"


def user(namespace: str, name: str) -> str:
    return f"system:serviceaccount:{namespace}:{name}"


def accounts(objects: Iterable[Json]) -> set[str]:
    return {
        user(each["metadata"]["namespace"], each["metadata"]["name"])
        for each in objects
        if each["kind"] == "ServiceAccount"
    }


def rights(objects: list[Json], account: str) -> list[Right]:
    """What bindings of the manifests grant it."""
    rules = {
        (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]): each.get("rules") or ()
        for each in objects
        if each["kind"] in {"Role", "ClusterRole"}
    }
    found = []
    for binding in objects:
        if binding["kind"] not in {"RoleBinding", "ClusterRoleBinding"} or not any(
            subject["kind"] == "ServiceAccount" and user(subject["namespace"], subject["name"]) == account
            for subject in binding.get("subjects") or ()
        ):
            continue
        where = binding["metadata"].get("namespace")
        reference = binding["roleRef"]
        key = (reference["kind"], where if reference["kind"] == "Role" else None, reference["name"])
        found += [right(rule, where) for rule in rules[key]]
    return found


def right(rule: Json, namespace: str | None) -> Right:
    return Right(
        namespace,
        *(tuple(rule.get(key) or ()) for key in ("apiGroups", "resources", "verbs", "resourceNames")),
    )


def steps(objects: list[Json], account: str, granted: Iterable[Right], known: set[str]) -> Iterator[Step]:
    """Each right with which it reaches another of the `known` accounts."""
    for each in granted:
        for danger in DANGERS:
            for verb in danger.verbs:
                if not each.allows(danger, verb) or confined(objects, account, danger, verb, each.namespace):
                    continue
                if each.names and danger.named_is_safe:
                    continue
                for other in _reached(danger, each, known):
                    if other != account:
                        yield Step(account, other, verb, f"{danger.resource} in {each.namespace or 'all'}", danger.why)


def closure(first: dict[str, set[str]], account: str, *, most: int = 2) -> set[str]:
    """Whom it reaches in so many steps."""
    found = set(first.get(account, ()))
    for _ in range(most - 1):
        found |= {other for each in tuple(found) for other in first.get(each, ())}
    return found - {account}


def _reached(danger: Danger, granted: Right, known: set[str]) -> set[str]:
    if granted.namespace is None:
        return {EVERYTHING, *known}
    if danger.everything and danger.resource not in NAMESPACED:
        return set()  # a Role grants nothing of a kind that is the cluster's
    there = {each for each in known if each.split(":")[2] == granted.namespace}
    if danger.resource == "serviceaccounts/token" and granted.names:
        return {each for each in there if each.split(":")[3] in granted.names}
    return there


def confined(objects: list[Json], account: str, danger: Danger, verb: str, namespace: str | None) -> bool:
    """Whether a policy that denies keeps the account from what this right would let it do there. `namespace` None: in all."""
    operation = {"create": "CREATE", "update": "UPDATE", "patch": "UPDATE", "delete": "DELETE"}.get(verb)
    denying = {
        each["spec"]["policyName"]
        for each in objects
        if each["kind"] == "ValidatingAdmissionPolicyBinding"
        and each["spec"]["validationActions"] == ["Deny"]
        and "matchResources" not in each["spec"]
    }
    for policy in objects:
        if policy["kind"] != "ValidatingAdmissionPolicy" or policy["metadata"]["name"] not in CONFINES.keys() & denying:
            continue
        spec = policy["spec"]
        conditions = [each["expression"] for each in spec.get("matchConditions") or ()]
        covered = any(
            danger.group in rule["apiGroups"]
            and danger.resource in rule["resources"]
            and operation in rule["operations"]
            for rule in spec["matchConstraints"]["resourceRules"]
        )
        narrowed = {key: value for key, value in spec["matchConstraints"].items() if key != "resourceRules"}
        there = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
        if (
            covered
            and narrowed in ({}, there)
            and spec["failurePolicy"] == "Fail"
            and len(conditions) == 1
            and _matches_all_of(account, conditions[0].removesuffix(f" && {_broken(spec['validations'])}"))
        ):
            return True
    return False


def _broken(validations: list[Json]) -> str:
    """The match condition that holds where one of these does not."""
    rules = " && ".join(f"({each['expression'].strip()})" for each in validations)
    return f"!({rules})"


def _matches_all_of(account: str, condition: str) -> bool:
    """Whether a match condition holds for every write of the account: its name is one of the alternatives."""
    alternatives = [each.strip() for each in condition.removeprefix("(").removesuffix(")").split("||")]
    return f"request.userInfo.username == '{account}'" in alternatives
