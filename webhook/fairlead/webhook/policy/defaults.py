"""What Enforce policies add to an object. A second pass adds nothing, and what is added is not found missing (`rules`)."""

from __future__ import annotations

from typing import Any

from fairlead.api.base import SelectorRequirement
from fairlead.api.policy import NodeAffinity, Toleration
from fairlead.webhook.objects.fields import Json, Path, dotted, int_at, list_at, map_at, object_at, text_at
from fairlead.webhook.objects.pods import REQUIRED_NODE_AFFINITY, containers, required_node_terms
from fairlead.webhook.policy.device_bypass import ALL_CONTAINERS, VISIBLE
from fairlead.webhook.policy.jobs import BACKOFF_LIMIT, DISRUPTION, obstacle
from fairlead.webhook.policy.pods import missing_requirements, missing_tolerations
from fairlead.webhook.policy.policies import Policies
from fairlead.webhook.review.verdict import PatchBuilder


def of_managed_pod(policies: Policies, patch: PatchBuilder) -> None:
    """The tolerations and node affinity of Enforce policies that the pod lacks, and NVIDIA_VISIBLE_DEVICES. Raises MalformedError."""
    for policy in policies:
        rules = policy.spec
        if rules.mode != "Enforce":
            continue
        if rules.tolerations is not None and rules.tolerations.missing == "Default":
            for toleration in missing_tolerations(map_at(patch.patched, "spec"), rules.tolerations.tolerations):
                patch.append(("spec", "tolerations"), _json(toleration))
        if rules.node_affinity is not None and rules.node_affinity.missing == "Default":
            _require(patch, rules.node_affinity)
    of_other_pod(policies, patch)


def of_other_pod(policies: Policies, patch: PatchBuilder, *, before: Json | None = None) -> bool:
    """NVIDIA_VISIBLE_DEVICES is set to void where the pod does not set it. Whether anything changed.

    `before`: the pod before ephemeral containers came, whose containers cannot be changed any more. Raises MalformedError.
    """
    if not any(policy.spec.device_bypass == "Reject" and policy.spec.mode == "Enforce" for policy in policies):
        return False
    changed = False
    spec, old_spec = map_at(patch.patched, "spec"), map_at(before or {}, "spec")
    fixed = [(name, old.get("name")) for name, _, old in containers(old_spec, lists=ALL_CONTAINERS)]
    for list_name, index, container in containers(spec, lists=ALL_CONTAINERS):
        if (list_name, container.get("name")) in fixed or _sets_visible_devices(container):
            continue
        patch.append(("spec", list_name, index, "env"), {"name": VISIBLE, "value": "void"})
        changed = True
    return changed


def _sets_visible_devices(container: Json) -> bool:
    return any(entry.get("name") == VISIBLE for entry in list_at(container, "env", "spec"))


def of_gang_job(policies: Policies, patch: PatchBuilder, job: Path) -> None:
    """Let a gang Job ignore evictions and be back soon after one, where an Enforce policy asks for it.

    An Indexed Job gets back-off by index, with its backoffLimit as the limit of each: so it fails when it would have failed
    without. What the JobSpec at path `job` says itself stays.
    """
    wanted = any(p.spec.pod_failure_policy == "Default" and p.spec.mode == "Enforce" for p in policies)
    spec, where = object_at(patch.patched, job), dotted(job)
    if not wanted or obstacle(spec, where) is not None:
        return
    if spec.get("podFailurePolicy") is None:
        condition: dict[str, Any] = {"type": DISRUPTION, "status": "True"}
        patch.set((*job, "podFailurePolicy"), {"rules": [{"action": "Ignore", "onPodConditions": [condition]}]})
        if spec.get("podReplacementPolicy") not in (None, "Failed"):
            # The apiserver has set its default by now, TerminatingOrFailed; beside a podFailurePolicy only Failed is valid.
            patch.set((*job, "podReplacementPolicy"), "Failed")
    if text_at(spec, "completionMode", where) == "Indexed" and spec.get("backoffLimitPerIndex") is None:
        limit = int_at(spec, "backoffLimit", where)
        if limit is None:  # else the apiserver's default would be another one beside backoffLimitPerIndex
            patch.set((*job, "backoffLimit"), BACKOFF_LIMIT)
        patch.set((*job, "backoffLimitPerIndex"), BACKOFF_LIMIT if limit is None else limit)


def _json(toleration: Toleration) -> Json:
    written = {
        "key": toleration.key,
        "operator": toleration.operator,
        "value": toleration.value,
        "effect": toleration.effect,
        "tolerationSeconds": toleration.toleration_seconds,
    }
    return {name: value for name, value in written.items() if value is not None}


def _require(patch: PatchBuilder, affinity: NodeAffinity) -> None:
    spec = map_at(patch.patched, "spec")
    missing = [_expression(wanted) for wanted in missing_requirements(spec, affinity)]
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
