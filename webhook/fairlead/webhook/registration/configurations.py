"""The content of the two webhook configurations: which objects the apiserver sends, and what happens while the webhook is down.

Two failure policies, since a webhook that is down must never block what it does not manage:
- Fail where the object itself shows that it is managed, in CEL as narrow as it can be said (`_marked`): a pod, or pod template, by an
  annotation, gate or queue label of ours or a legacy limit; a claim by a class or driver of ours;
- Ignore where only a claim's template could show it. Such a pod is then created without a gate; the allocation fence keeps it from
  getting devices out of turn, with the reason. Ignore, too, for JobSets, Deployments and the like: their pods are reviewed in any case.
A marked pod that the mutating half missed is refused by the validating one. So each half has one webhook that looks at everybody's
pods by CEL.

An apiserver converts an object for each webhook with CEL that its rules and selectors let see it, and for nothing that they keep away:
most of what admission costs (docs/performance.md). So labels choose before CEL does: pods of templates that were reviewed
(`names.REVIEWED`) are sent without it, updates of pods are not sent (the policy `fairlead-controller-pods` decides them; only whether a
pod may become idle, where a TenancyPolicy refuses it, does this webhook), and claims that the controller labels as its own have a webhook to themselves. A label that somebody forges chooses
another webhook with the same handler and the policy Fail: every new pod and claim is seen by one or the other.
A policy with `deviceBypass: Reject` has webhooks of its own, for every pod of its namespaces: Fail if it is enforced. Beyond
BYPASSES_MAX of them, policies share webhooks for the pods of all namespaces, with Ignore: those that are not enforced first.

Where the cluster has no TenancyPolicy, what the mutating half has settled is not asked about again: pods with our gate, and claims
that controllers make of templates. With one, policies judge both (CEL rules see an object as it will be stored; a template may be
older than the policy).
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fairlead.api import names
from fairlead.api.drivers import classes_of
from fairlead.api.policy import TenancyPolicy
from fairlead.webhook.gangs.marks import RESERVED
from fairlead.webhook.objects.pod_templates import WORKLOADS

NAME = "fairlead"
BYPASSES_MAX = 50
"""Policies that have webhooks of their own; the apiserver calls them one after the other. The others share webhooks."""
FAIL_TIMEOUT_S = 5
IGNORE_TIMEOUT_S = 2
"""Shorter: such an object is most likely not managed, and a webhook that hangs must not delay it for long."""
Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where the apiserver reaches the webhook: a URL, or a Service as namespace/name."""

    bundle: str
    url: str | None = None
    service: str = f"{names.NAMESPACE}/fairlead-webhook"
    drivers: tuple[str, ...] = (names.DRIVER,)
    policies: tuple[TenancyPolicy, ...] = ()

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes that each managed driver ships: gpu.fairlead.dev has mig.gpu.fairlead.dev, gpu.nvidia.com mig.nvidia.com."""
        return tuple(name for driver in self.drivers for name in classes_of(driver))

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
            _webhook("reviewed.pods", target, "/mutate", pods, "Fail", "", common | _OF_TEMPLATES),
            _webhook("pods", target, "/mutate", pods, "Ignore", _MANAGED_POD, common | _NOT_OF_TEMPLATES),
            _webhook("jobs", target, "/mutate", _JOBS, "Fail", MARKED_JOB, common),
            _webhook("claims.jobs", target, "/mutate", _JOBS, "Ignore", UNMARKED_JOB_WITH_CLAIMS, common),
            _webhook("workloads", target, "/mutate", _workload_rules(), "Ignore", "", common),
            *_bypass_webhooks(target, "/mutate", common),
        ],
    )


def validating(target: Target) -> Json:
    """The ValidatingWebhookConfiguration, as the apiserver stores it."""
    create, update = [_rule("", "pods", ["CREATE"])], [_rule("", "pods", ["UPDATE"])]
    claims = [_rule("resource.k8s.io", ["resourceclaims", "resourceclaimtemplates"], ["CREATE"])]
    classes = [_rule("resource.k8s.io", ["deviceclasses"], ["CREATE", "UPDATE"])]
    own = [_rule(names.API_GROUP, ["queues", "flavors", "tenancypolicies"], ["CREATE", "UPDATE"], "v1alpha1")]
    marked = marked_claim(target.classes, target.drivers)
    unsettled = "" if target.policies else UNSETTLED_POD
    idle = any(policy.spec.keep_idle == "Reject" for policy in target.policies)
    by_others = NOT_OUR_TEMPLATES if target.policies else NOT_BY_CLAIM_MAKERS
    return _configuration(
        "ValidatingWebhookConfiguration",
        [
            _webhook("reviewed.pods", target, "/validate", create, "Fail", unsettled, _REVIEWED),
            _webhook("pods", target, "/validate", create, "Fail", MARKED_POD, _NOT_REVIEWED),
            *([_webhook("idle.pods", target, "/validate", update, "Fail", MADE_IDLE, _REVIEWED)] if idle else []),
            _webhook("jobs", target, "/validate", _JOBS, "Fail", MARKED_JOB),
            _webhook(
                "changed.jobs",
                target,
                "/validate",
                [_rule("batch", ["jobs"], ["UPDATE"])],
                "Fail",
                JOB_ANNOTATIONS_CHANGED,
            ),
            _webhook("claims.jobs", target, "/validate", _JOBS, "Ignore", UNMARKED_JOB_WITH_CLAIMS),
            _webhook("workloads", target, "/validate", _workload_rules(), "Ignore", ""),
            _webhook("rollouts", target, "/validate", _ROLLOUTS, "Ignore", ROLLED_WITH_DEVICES),
            _webhook("made.claims", target, "/validate", claims, "Fail", by_others, _MADE),
            _webhook("claims", target, "/validate", claims, "Fail", f"({by_others}) && ({marked})", _NOT_MADE),
            _webhook("other.claims", target, "/validate", claims, "Ignore", f"({by_others}) && !({marked})", _NOT_MADE),
            _webhook("classes", target, "/validate", classes, "Ignore", ""),
            _webhook("own", target, "/validate", own, "Fail", ""),
            *_bypass_webhooks(target, "/validate", {}),
        ],
    )


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
    condition: str,
    more: Json | None = None,
) -> Json:
    """One webhook with every default written out, so that a comparison with what is stored is exact.

    Of several conditions an apiserver would evaluate each, whatever another one says; so there is one, or none (empty).
    """
    webhook: Json = {
        "name": f"{name}.{names.API_GROUP}",
        "clientConfig": target.client_config(path),
        "rules": rules,
        "failurePolicy": failure_policy,
        "matchPolicy": "Equivalent",
        "namespaceSelector": {"matchExpressions": _judged_namespaces()},
        "objectSelector": {},
        "sideEffects": "None",
        "timeoutSeconds": FAIL_TIMEOUT_S if failure_policy == "Fail" else IGNORE_TIMEOUT_S,
        "admissionReviewVersions": ["v1"],
    } | (more or {})
    if condition:
        webhook["matchConditions"] = [{"name": "managed", "expression": condition}]
    return webhook


def _judged_namespaces() -> list[Json]:
    return [
        {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": list(names.EXEMPT_NAMESPACES)},
        {"key": names.IGNORE_LABEL, "operator": "DoesNotExist"},
    ]


def _bypass_webhooks(target: Target, path: str, more: Json) -> list[Json]:
    """The webhooks of each policy that judges every pod: for pods that are not marked, and for containers that are added later."""
    pods, debug = [_rule("", "pods", ["CREATE"])], [_rule("", "pods/ephemeralcontainers", ["UPDATE"])]
    unmarked, added = f"!({MARKED_POD})", "has(object.spec.ephemeralContainers)"
    found: list[Json] = []
    own, sharing = _bypass_policies(target)
    for policy in own:
        failure_policy = "Fail" if policy.spec.mode == "Enforce" else "Ignore"
        selected = more | {"namespaceSelector": _selector(policy)}
        found += [
            _webhook(f"{policy.name}.bypass.pods", target, path, pods, failure_policy, unmarked, selected),
            _webhook(f"{policy.name}.debug.pods", target, path, debug, failure_policy, added, selected),
        ]
    if sharing:
        found += [
            _webhook("shared.pods", target, path, pods, "Ignore", unmarked, more),
            _webhook("shared.debug", target, path, debug, "Ignore", added, more),
        ]
    return found


def sharing_policies(target: Target) -> list[str]:
    """Names of the policies on bypasses that have no webhooks of their own: while the webhook is down, they judge nothing."""
    return [policy.name for policy in _bypass_policies(target)[1]]


def _bypass_policies(target: Target) -> tuple[list[TenancyPolicy], list[TenancyPolicy]]:
    """Those with webhooks of their own, in the order of `policies`, and the others."""
    judging = [policy for policy in target.policies if policy.spec.device_bypass == "Reject"]
    first = sorted(judging, key=lambda policy: policy.spec.mode != "Enforce")[:BYPASSES_MAX]
    named = {policy.name for policy in first}
    return [policy for policy in judging if policy.name in named], [p for p in judging if p.name not in named]


def _selector(policy: TenancyPolicy) -> Json:
    """The policy's namespaces, without those that the webhook leaves alone; lists and order as the apiserver stores them."""
    selector = policy.spec.namespace_selector
    labels = {"matchLabels": dict(sorted(selector.match_labels.items()))} if selector.match_labels else {}
    rules = [rule.model_dump(by_alias=True, mode="json", exclude_defaults=True) for rule in selector.match_expressions]
    return labels | {"matchExpressions": [*_judged_namespaces(), *rules]}


def _rule(group: str, resources: str | list[str], operations: list[str], version: str = "v1") -> Json:
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "operations": operations,
        "resources": [resources] if isinstance(resources, str) else resources,
        "scope": "*",
    }


def _labelled(key: str, operator: str, *values: str) -> Json:
    """The field of a webhook that selects objects by one label, as the apiserver stores it."""
    rule = {"key": key, "operator": operator} | ({"values": list(values)} if values else {})
    return {"objectSelector": {"matchExpressions": [rule]}}


_REVIEWED, _NOT_REVIEWED = _labelled(names.REVIEWED, "Exists"), _labelled(names.REVIEWED, "DoesNotExist")
_OF_TEMPLATES, _NOT_OF_TEMPLATES = (
    _labelled(names.REVIEWED, operator, names.REVIEWED_TEMPLATE) for operator in ("In", "NotIn")
)
"""What the mutating half labels itself stays with the webhook that it came to, which may have to see it again."""
_MADE, _NOT_MADE = (_labelled(names.MANAGED_BY, operator, names.MANAGED_BY_VALUE) for operator in ("In", "NotIn"))

_JOBS = [_rule("batch", ["jobs", "cronjobs"], ["CREATE"]), _rule("batch", ["cronjobs"], ["UPDATE"])]
"""A Job's template is immutable; a CronJob's is not."""

_ROLLOUTS = [_rule("apps", ["deployments", "daemonsets"], ["CREATE", "UPDATE"])]
"""For warnings alone."""

_VERSIONS = {
    "jobset.x-k8s.io": ["v1alpha2"],
    "leaderworkerset.x-k8s.io": ["v1"],
    "kubeflow.org": ["v1", "v2beta1"],
    "trainer.kubeflow.org": ["v1alpha1"],
    "ray.io": ["v1"],
}


def _workload_rules() -> list[Json]:
    """Other projects' kinds that create pods. A cluster that lacks one never sends it."""
    named = (group_resource.partition(".") for group_resource in WORKLOADS)
    return [
        _rule(group, resource, ["CREATE", "UPDATE"]) | {"apiVersions": _VERSIONS[group]}
        for resource, _, group in named
        if group in _VERSIONS
    ]


_OURS = f"k.startsWith('{names.ANNOTATION_PREFIX}')"
_LEGACY = f"k in ['{names.LEGACY_GPU}', '{names.LEGACY_GPU}{names.LEGACY_SHARED}'] || k.startsWith('{names.LEGACY_MIG_PREFIX}')"
_JOB_POD = "(request.kind.kind == 'CronJob' ? object.spec.jobTemplate.spec.template : object.spec.template)"

CLAIM_MAKERS = (
    names.CONTROLLER_USER,
    "system:serviceaccount:kube-system:resource-claim-controller",
    "system:kube-controller-manager",
)
"""What makes claims of templates: our controller, and the claim controller, with an account of its own or without one."""
NOT_BY_CLAIM_MAKERS = f"!(request.userInfo.username in [{', '.join(map(repr, CLAIM_MAKERS))}])"
"""Their claims are copies of what was reviewed as a template; only a policy may say something else of them by now."""
NOT_OUR_TEMPLATES = (
    f"request.userInfo.username != '{names.CONTROLLER_USER}' || request.kind.kind != 'ResourceClaimTemplate'"
)
"""The controller's templates say what a limit says that was judged with its pod."""


def _gated(spec: str) -> str:
    return f"{spec}.?schedulingGates.orValue([]).exists(g, g.name == '{names.ADMISSION_GATE}')"


def _with_legacy_limits(spec: str) -> list[str]:
    parts: list[str] = []
    for containers in (f"{spec}.?containers.orValue([])", f"{spec}.?initContainers.orValue([])"):
        parts += [
            f"{containers}.exists(c, c.?resources.?{side}.orValue({{}}).exists(k, {_LEGACY}))"
            for side in ("limits", "requests")
        ]
    return parts


def _marked(metadata: str, spec: str) -> str:
    """A pod, or pod template, with these metadata and spec."""
    return " || ".join(
        (
            f"{metadata}.?annotations.orValue({{}}).exists(k, {_OURS})",
            f"'{names.QUEUE}' in {metadata}.?labels.orValue({{}})",
            _gated(spec),
            *_with_legacy_limits(spec),
        )
    )


MARKED_POD = _marked("object.metadata", "object.spec")
UNSETTLED_POD = f"!({_gated('object.spec')}) || {' || '.join(_with_legacy_limits('object.spec'))}"
"""Needs a second look: another webhook may have taken our gate off, or added a legacy limit."""
POD_WITH_CLAIMS = "object.spec.?resourceClaims.orValue([]).size() > 0"
_MANAGED_POD = f"{POD_WITH_CLAIMS} || {MARKED_POD}"

_KEEPS_IDLE = f".metadata.?annotations[?'{names.KEEP_IDLE}'].orValue('') == 'true'"
MADE_IDLE = f"object{_KEEPS_IDLE} && !(oldObject{_KEEPS_IDLE})"
"""An update of a pod that says from now on that it needs idle devices."""

MARKED_JOB = (
    f"object.metadata.?annotations.orValue({{}}).exists(k, {_OURS})"
    f" || '{names.QUEUE}' in object.metadata.?labels.orValue({{}})"
    f" || {_marked(f'{_JOB_POD}.?metadata', f'{_JOB_POD}.spec')}"
)
UNMARKED_JOB_WITH_CLAIMS = f"{_JOB_POD}.spec.?resourceClaims.orValue([]).size() > 0 && !({MARKED_JOB})"


_ROLLED = "object.spec.template"
ROLLED_WITH_DEVICES = (
    "(request.operation == 'CREATE' || object.spec != oldObject.spec) && "
    f"({_ROLLED}.spec.?resourceClaims.orValue([]).size() > 0 || {_marked(f'{_ROLLED}.?metadata', f'{_ROLLED}.spec')})"
)
"""A Deployment or DaemonSet of pods that may be managed, whenever its spec changes."""

_OF_TEMPLATE = ".spec.template.?metadata.?annotations[?k].orValue('')"
JOB_ANNOTATIONS_CHANGED = (
    f"[{', '.join(map(repr, (*RESERVED, names.USER)))}].exists(k, object{_OF_TEMPLATE} != oldObject{_OF_TEMPLATE})"
)
"""An update of a Job that says what only Fairlead writes; of a suspended one the template's annotations may change."""


def marked_claim(class_names: Sequence[str], drivers: Sequence[str]) -> str:
    """A claim or template that names one of the classes, or configures one of the drivers."""
    spec = "(request.kind.kind == 'ResourceClaimTemplate' ? object.spec.spec : object.spec)"
    classes, configured_drivers = (f"[{', '.join(map(repr, listed))}]" for listed in (class_names, drivers))
    one_of = f"deviceClassName.orValue('') in {classes}"
    listed = f"{spec}.?devices.?requests.orValue([])"
    configs = f"{spec}.?devices.?config.orValue([])"
    configured = f"{configs}.exists(c, c.?opaque.?driver.orValue('') in {configured_drivers})"
    alternatives = f"r.?firstAvailable.orValue([]).exists(s, s.?{one_of})"
    return f"{configured} || {listed}.exists(r, r.?exactly.?{one_of} || {alternatives})"
