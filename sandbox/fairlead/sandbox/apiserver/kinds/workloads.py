"""Jobs, CronJobs and apps/v1: defaults, the selector that a Job's uid generates, what may change.

The sandbox has controllers for Jobs, Deployments and ReplicaSets, none for CronJobs, DaemonSets and StatefulSets.
Source: pkg/registry/batch/job/strategy.go, pkg/apis/{apps,batch}/{v1/defaults,validation} (1.36).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

from fairlead.sandbox.apiserver.kinds import checks
from fairlead.sandbox.apiserver.kinds.base import Context
from fairlead.sandbox.apiserver.kinds.builtin import BuiltIn
from fairlead.sandbox.apiserver.kinds.errors import FieldError, invalid, not_supported, required
from fairlead.sandbox.apiserver.kinds.podspec import default_pod_spec, name_warning, template_warnings
from fairlead.sandbox.apiserver.kinds.podvalidation import pod_spec
from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.apiserver.names import label_complaints

UID_LABEL = "batch.kubernetes.io/controller-uid"
NAME_LABEL = "batch.kubernetes.io/job-name"
OLD_UID_LABEL = "controller-uid"
OLD_NAME_LABEL = "job-name"
_MODES = ("NonIndexed", "Indexed")


def default_job_spec(spec: Json) -> None:
    """The defaults of a Job's spec that depend on one another."""
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = spec["parallelism"] = 1
    if spec.get("parallelism") is None:
        spec["parallelism"] = 1
    if spec.get("backoffLimit") is None:
        spec["backoffLimit"] = 2**31 - 1 if spec.get("backoffLimitPerIndex") is not None else 6
    if "podReplacementPolicy" not in spec:
        spec["podReplacementPolicy"] = "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed"
    default_pod_spec(spec["template"]["spec"])


class JobStrategy(BuiltIn):
    def default(self, obj: Json) -> None:
        super().default(obj)
        spec = obj["spec"]
        default_job_spec(spec)
        # A Job's pods' labels are the Job's own where it has none (SetDefaults_Job copies them).
        labels = spec["template"].get("metadata", {}).get("labels")
        if labels and not obj.get("metadata", {}).get("labels"):
            obj.setdefault("metadata", {})["labels"] = {
                key: value
                for key, value in labels.items()
                if key not in {UID_LABEL, NAME_LABEL, OLD_UID_LABEL, OLD_NAME_LABEL}
            } or None
            if obj["metadata"]["labels"] is None:
                del obj["metadata"]["labels"]

    def prepare_create(self, obj: Json, context: Context) -> None:
        super().prepare_create(obj, context)
        spec = obj["spec"]
        if spec.get("manualSelector"):
            return
        uid, name = obj["metadata"].get("uid", ""), obj["metadata"].get("name", "")
        labels = spec["template"].setdefault("metadata", {}).setdefault("labels", {})
        labels |= {UID_LABEL: uid, OLD_UID_LABEL: uid, NAME_LABEL: name, OLD_NAME_LABEL: name}
        selector = spec.setdefault("selector", {}).setdefault("matchLabels", {})
        selector.setdefault(UID_LABEL, uid)

    def validate_create(self, obj: Json, context: Context) -> list[FieldError]:
        spec = obj["spec"]
        errors = []
        name = obj["metadata"].get("name", "")
        if spec.get("completionMode") == "Indexed" and spec.get("completions"):
            shown = f"{name}-{spec['completions'] - 1}"
            errors += [
                invalid("metadata.name", name, f"will not able to create pod with invalid DNS label {shown!r}: {one}")
                for one in label_complaints(shown)
            ]
        return [*errors, *job_spec(spec)]

    def warnings(self, new: Json, old: Json | None, context: Context) -> list[str]:
        if old is not None:
            return []
        return [
            *name_warning(new["metadata"].get("name", ""), "Pod names and hostnames"),
            *template_warnings(new["spec"]["template"].get("spec", {}), "spec.template.spec"),
        ]

    def validate(self, obj: Json, context: Context) -> Iterator[FieldError]:
        yield from job_spec(obj["spec"])

    def validate_change(self, new: Json, old: Json, context: Context) -> Iterator[FieldError]:
        after, before = new["spec"], old["spec"]
        if before.get("completionMode") != "Indexed" or after.get("completions") != after.get("parallelism"):
            yield from checks.unchanged(after.get("completions"), before.get("completions"), "spec.completions")
        yield from checks.unchanged(after.get("selector"), before.get("selector"), "spec.selector")
        yield from checks.unchanged(after.get("completionMode"), before.get("completionMode"), "spec.completionMode")
        for key in ("podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"):
            yield from checks.unchanged(after.get(key), before.get(key), f"spec.{key}")
        template = copy.deepcopy(after["template"])
        if before.get("suspend") and not old.get("status", {}).get("startTime"):
            # A suspended Job that has not started may still change where its pods run.
            was = before["template"].get("spec", {})
            for key in ("nodeSelector", "affinity", "tolerations", "schedulingGates"):
                if key in was:
                    template["spec"][key] = was[key]
                else:
                    template["spec"].pop(key, None)
            for key in ("labels", "annotations"):
                kept = before["template"].get("metadata", {}).get(key)
                if kept is None:
                    template.get("metadata", {}).pop(key, None)
                else:
                    template.setdefault("metadata", {})[key] = kept
        if template != before["template"]:
            yield invalid("spec.template", after["template"], checks.IMMUTABLE)

    def default_propagation(self, obj: Json) -> str:
        return "Orphan"

    def selectable_fields(self, obj: Json) -> dict[str, str]:
        return {"status.successful": str((obj.get("status") or {}).get("succeeded", 0))}


def job_spec(spec: Json, path: str = "spec") -> Iterator[FieldError]:
    for key in ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"):
        yield from checks.not_negative(spec.get(key), f"{path}.{key}")
    mode = spec.get("completionMode")
    if mode not in _MODES:
        yield not_supported(f"{path}.completionMode", mode, ("Indexed", "NonIndexed"))
    if mode == "Indexed":
        if spec.get("completions") is None:
            yield required(f"{path}.completions", "when completion mode is Indexed")
        if (spec.get("parallelism") or 0) > 100_000:
            yield invalid(
                f"{path}.parallelism",
                spec["parallelism"],
                "must be less than or equal to 100000 when completion mode is Indexed",
            )
    yield from checks.label_selector(spec.get("selector"), f"{path}.selector")
    template = spec.get("template", {})
    yield from checks.labels(template.get("metadata", {}).get("labels"), f"{path}.template.metadata.labels")
    yield from pod_spec(template.get("spec", {}), f"{path}.template.spec")
    policy = template.get("spec", {}).get("restartPolicy")
    if policy == "Always":
        yield required(f"{path}.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"')
    elif policy not in {"OnFailure", "Never"}:
        yield not_supported(f"{path}.template.spec.restartPolicy", policy, ("OnFailure", "Never"))


class CronJobStrategy(BuiltIn):
    def default(self, obj: Json) -> None:
        super().default(obj)
        default_pod_spec(obj["spec"]["jobTemplate"]["spec"]["template"]["spec"])

    def validate(self, obj: Json, context: Context) -> Iterator[FieldError]:
        spec = obj["spec"]
        if not spec.get("schedule"):
            yield required("spec.schedule")
        yield from checks.unsupported(
            spec.get("concurrencyPolicy"), ("Allow", "Forbid", "Replace"), "spec.concurrencyPolicy"
        )
        template = spec["jobTemplate"]["spec"]["template"].get("spec", {})
        yield from pod_spec(template, "spec.jobTemplate.spec.template.spec")


class WorkloadStrategy(BuiltIn):
    """Deployments, ReplicaSets, DaemonSets and StatefulSets."""

    def default(self, obj: Json) -> None:
        super().default(obj)
        default_pod_spec(obj["spec"]["template"]["spec"])

    def validate(self, obj: Json, context: Context) -> Iterator[FieldError]:
        spec = obj["spec"]
        yield from checks.not_negative(spec.get("replicas"), "spec.replicas")
        selector = spec.get("selector")
        if selector is None:
            yield required("spec.selector")
        else:
            yield from checks.label_selector(selector, "spec.selector")
            if not selector.get("matchLabels") and not selector.get("matchExpressions"):
                yield invalid("spec.selector", selector, "empty selector is invalid for deployment")
        labels = spec["template"].get("metadata", {}).get("labels") or {}
        wanted = (selector or {}).get("matchLabels") or {}
        if any(labels.get(key) != value for key, value in wanted.items()):
            yield invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
        yield from pod_spec(spec["template"].get("spec", {}), "spec.template.spec")
        policy = spec["template"]["spec"].get("restartPolicy")
        if policy != "Always":
            yield not_supported("spec.template.spec.restartPolicy", policy, ("Always",))

    def validate_change(self, new: Json, old: Json, context: Context) -> Iterator[FieldError]:
        yield from checks.unchanged(new["spec"].get("selector"), old["spec"].get("selector"), "spec.selector")
