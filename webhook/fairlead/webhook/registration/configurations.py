"""The two webhook configurations: written when the webhook starts, repaired when someone changes them.

Exists so that an install has no order to keep and no bundle to copy. The apiserver asks us only about what we
may manage: match conditions, namespaces and operations are as narrow as they can be said.

Two failure policies, because the webhook that is down must never block what it does not manage:
- Fail where the object itself says that it is ours: a legacy limit, an annotation or gate of ours, our class or driver;
- Ignore where only a claim's template could say so. Such a pod then comes in without a gate; the allocation fence
  keeps it from getting devices out of turn, and says why. Ignore, too, for JobSets and the like: their pods are judged anyhow.
A policy with `deviceBypass: Reject` has webhooks of its own, for every pod of its namespaces: Fail if it is enforced.
Removes nothing when the webhook stops: a restart must not open the door. An uninstall removes them: the webhook's
ClusterRole owns them.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fairlead.api import legacy, names
from fairlead.api.policy import TenancyPolicy
from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.resources import CLUSTER_ROLES, MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, Resource
from fairlead.webhook.objects.pod_templates import SHAPES
from fairlead.webhook.registration.match_conditions import (
    NOT_CONTROLLER,
    changed,
    claim_says_ours,
    job_only_claims,
    job_says_ours,
    only_claims,
    ours,
    says_ours,
)
from fairlead.webhook.review.facts import EXEMPT_NAMESPACES

log = logging.getLogger(__name__)

NAME = "fairlead"
BYPASSES_MAX = 50
"""Policies that have webhooks of their own; the apiserver asks them one after the other."""
TIMEOUT_S = 5
TIMEOUT_OF_OTHERS_S = 2
"""Where the policy is Ignore, the object is most likely not ours: a webhook that hangs may not hold it up for long."""
Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Bypass:
    """A policy that judges every pod of its namespaces, as far as the registration is concerned."""

    policy: str
    enforced: bool
    match_labels: tuple[tuple[str, str], ...] = ()
    match_expressions: tuple[tuple[str, str, tuple[str, ...]], ...] = ()

    @staticmethod
    def of(policies: Iterable[TenancyPolicy]) -> tuple[Bypass, ...]:
        """Those of the policies that need webhooks of their own."""
        return tuple(
            Bypass(
                policy=policy.name,
                enforced=policy.spec.mode == "Enforce",
                match_labels=tuple(sorted(policy.spec.namespace_selector.match_labels.items())),
                match_expressions=tuple(
                    (rule.key, rule.operator, tuple(rule.values))
                    for rule in policy.spec.namespace_selector.match_expressions
                ),
            )
            for policy in policies
            if policy.spec.device_bypass == "Reject"
        )[:BYPASSES_MAX]

    @property
    def selector(self) -> Json:
        expressions = [
            {"key": key, "operator": operator} | ({"values": list(values)} if values else {})
            for key, operator, values in self.match_expressions
        ]
        labels = {"matchLabels": dict(self.match_labels)} if self.match_labels else {}
        return labels | {"matchExpressions": [*_namespaces(), *expressions]}


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where the apiserver finds us: a URL, or a Service as namespace/name."""

    bundle: str
    url: str | None = None
    service: str = f"{names.NAMESPACE}/fairlead-webhook"
    drivers: tuple[str, ...] = (names.DRIVER,)
    bypasses: tuple[Bypass, ...] = ()

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes that each managed driver ships: gpu.fairlead.dev has mig.gpu.fairlead.dev, gpu.nvidia.com mig.nvidia.com."""
        return tuple(name for driver in self.drivers for name in (driver, legacy.mig_class(driver)))

    def trusting(self, bundle: str) -> Target:
        """The same, with another caBundle."""
        return replace(self, bundle=bundle)

    def client_config(self, path: str) -> Json:
        bundle = {"caBundle": base64.b64encode(self.bundle.encode()).decode()} if self.bundle else {}
        if self.url is not None:
            return {"url": f"{self.url.rstrip('/')}{path}"} | bundle
        namespace, _, name = self.service.partition("/")
        return {"service": {"namespace": namespace, "name": name, "path": path, "port": 443}} | bundle


def mutating(target: Target) -> Json:
    """The MutatingWebhookConfiguration, as the apiserver stores it."""
    pods = [_rule("", "pods", ["CREATE"])]
    common = {"reinvocationPolicy": "IfNeeded"}
    return _configuration(
        "MutatingWebhookConfiguration",
        [
            _webhook("pods", target, "/mutate", pods, "Fail", says_ours("object"), common),
            _webhook("claims.pods", target, "/mutate", pods, "Ignore", only_claims("object"), common),
            _webhook("jobs", target, "/mutate", _jobs(), "Fail", job_says_ours(), common),
            _webhook("claims.jobs", target, "/mutate", _jobs(), "Ignore", job_only_claims(), common),
            _webhook("workloads", target, "/mutate", _workloads(), "Ignore", [], common),
            *_bypasses(target, "/mutate", common),
        ],
    )


def validating(target: Target) -> Json:
    """The ValidatingWebhookConfiguration, as the apiserver stores it."""
    create, update = [_rule("", "pods", ["CREATE"])], [_rule("", "pods", ["UPDATE"])]
    claims = [_rule("resource.k8s.io", ["resourceclaims", "resourceclaimtemplates"], ["CREATE"])]
    classes = [_rule("resource.k8s.io", ["deviceclasses"], ["CREATE", "UPDATE"])]
    own = [_rule(names.API_GROUP, ["queues", "flavors", "tenancypolicies"], ["CREATE", "UPDATE"], "v1alpha1")]
    says = claim_says_ours(target.classes, target.drivers)
    return _configuration(
        "ValidatingWebhookConfiguration",
        [
            _webhook("pods", target, "/validate", create, "Fail", says_ours("object")),
            _webhook("claims.pods", target, "/validate", create, "Ignore", only_claims("object")),
            _webhook("changed.pods", target, "/validate", update, "Fail", [NOT_CONTROLLER, changed()]),
            _webhook("jobs", target, "/validate", _jobs(), "Fail", job_says_ours()),
            _webhook("claims.jobs", target, "/validate", _jobs(), "Ignore", job_only_claims()),
            _webhook("workloads", target, "/validate", _workloads(), "Ignore", []),
            _webhook("claims", target, "/validate", claims, "Fail", [NOT_CONTROLLER, says]),
            _webhook("other.claims", target, "/validate", claims, "Ignore", [NOT_CONTROLLER, f"!({says})"]),
            _webhook("classes", target, "/validate", classes, "Ignore", []),
            _webhook("own", target, "/validate", own, "Fail", []),
            *_bypasses(target, "/validate", {}),
        ],
    )


async def ensure(client: Client, target: Target) -> bool:
    """Write both configurations where they are missing or differ. True if something was written. Raises ApiError."""
    owned_by = await owner(client)
    wrote = await _ensure(client, MUTATING_WEBHOOKS, mutating(target), owned_by)
    return await _ensure(client, VALIDATING_WEBHOOKS, validating(target), owned_by) or wrote


async def owner(client: Client) -> Json | None:
    """The ClusterRole that the webhook was installed with, as an owner; None where there is none. Raises ApiError.

    An uninstall that takes the role away takes the configurations with it (garbage collection), and a webhook that still
    runs then cannot write them again.
    """
    try:
        role = await client.get(CLUSTER_ROLES, names.WEBHOOK_ACCOUNT)
    except (errors.NotFound, errors.Forbidden):
        log.info("no ClusterRole %s to read: the configurations stay when it goes", names.WEBHOOK_ACCOUNT)
        return None
    uid = role["metadata"]["uid"]
    return {"apiVersion": CLUSTER_ROLES.api_version, "kind": "ClusterRole", "name": names.WEBHOOK_ACCOUNT, "uid": uid}


async def _ensure(client: Client, resource: Resource[Json], wanted: Json, owned_by: Json | None) -> bool:
    owners = [owned_by] if owned_by else []
    wanted["metadata"]["ownerReferences"] = owners
    try:
        found = await client.get(resource, NAME)
    except errors.NotFound:
        try:
            await client.create(resource, wanted)
        except errors.AlreadyExists:
            return False  # another replica was first; looked at again soon
        log.info("%s %s: written", resource.kind, NAME)
        return True
    _leave_bundles(wanted["webhooks"], found.get("webhooks") or [])
    if found.get("webhooks") == wanted["webhooks"] and (found["metadata"].get("ownerReferences") or []) == owners:
        return False
    metadata = {**found["metadata"], "ownerReferences": owners}
    try:
        await client.replace(resource, found | {"metadata": metadata, "webhooks": wanted["webhooks"]})
    except errors.Conflict:
        return False
    log.info("%s %s: repaired", resource.kind, NAME)
    return True


def _leave_bundles(wanted: list[Json], found: list[Json]) -> None:
    """Where we know no authority, the bundles are somebody else's (cert-manager's injector): keep what is there."""
    there = {webhook.get("name"): (webhook.get("clientConfig") or {}).get("caBundle") for webhook in found}
    for webhook in wanted:
        config = webhook["clientConfig"]
        if "caBundle" not in config and there.get(webhook["name"]):
            config["caBundle"] = there[webhook["name"]]


# -- the pieces ----------------------------------------------------------------------------------------------------


def _configuration(kind: str, webhooks: list[Json]) -> Json:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": NAME, "labels": {names.MANAGED_BY: names.MANAGED_BY_VALUE}},
        "webhooks": webhooks,
    }


def _webhook(
    name: str,
    target: Target,
    path: str,
    rules: list[Json],
    failure_policy: str,
    conditions: Sequence[str],
    more: Json | None = None,
) -> Json:
    """One webhook with every default written out, so that comparing with what is stored is exact."""
    webhook: Json = {
        "name": f"{name}.{names.API_GROUP}",
        "clientConfig": target.client_config(path),
        "rules": rules,
        "failurePolicy": failure_policy,
        "matchPolicy": "Equivalent",
        "namespaceSelector": {"matchExpressions": _namespaces()},
        "objectSelector": {},
        "sideEffects": "None",
        "timeoutSeconds": TIMEOUT_S if failure_policy == "Fail" else TIMEOUT_OF_OTHERS_S,
        "admissionReviewVersions": ["v1"],
    } | (more or {})
    if conditions:
        webhook["matchConditions"] = [
            {"name": f"managed-{index}", "expression": text} for index, text in enumerate(conditions)
        ]
    return webhook


def _namespaces() -> list[Json]:
    """The namespaces that are ours to judge."""
    return [
        {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": list(EXEMPT_NAMESPACES)},
        {"key": names.IGNORE_LABEL, "operator": "DoesNotExist"},
    ]


def _bypasses(target: Target, path: str, more: Json) -> list[Json]:
    """For each policy that judges every pod: those that do not say that they are ours, and containers added later."""
    pods, debug = [_rule("", "pods", ["CREATE"])], [_rule("", "pods/ephemeralcontainers", ["UPDATE"])]
    others, added = f"!({ours('object.metadata', 'object.spec')})", "has(object.spec.ephemeralContainers)"
    found: list[Json] = []
    for bypass in target.bypasses:
        failure_policy = "Fail" if bypass.enforced else "Ignore"
        selected = more | {"namespaceSelector": bypass.selector}
        found += [
            _webhook(f"{bypass.policy}.bypass.pods", target, path, pods, failure_policy, [others], selected),
            _webhook(f"{bypass.policy}.debug.pods", target, path, debug, failure_policy, [added], selected),
        ]
    return found


_VERSIONS = {
    "jobset.x-k8s.io": ["v1alpha2"],
    "leaderworkerset.x-k8s.io": ["v1"],
    "kubeflow.org": ["v1", "v2beta1"],
    "trainer.kubeflow.org": ["v1alpha1"],
    "ray.io": ["v1"],
}


def _workloads() -> list[Json]:
    """The kinds of others that make pods. A cluster that lacks one never asks about it."""
    named = (of.partition(".") for of in SHAPES)
    return [
        _rule(group, resource, ["CREATE", "UPDATE"]) | {"apiVersions": _VERSIONS[group]}
        for resource, _, group in named
        if group in _VERSIONS
    ]


def _rule(group: str, resources: str | list[str], operations: list[str], version: str = "v1") -> Json:
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "operations": operations,
        "resources": [resources] if isinstance(resources, str) else resources,
        "scope": "*",
    }


def _jobs() -> list[Json]:
    """A Job's template is immutable; a CronJob's is not."""
    return [_rule("batch", ["jobs", "cronjobs"], ["CREATE"]), _rule("batch", ["cronjobs"], ["UPDATE"])]
