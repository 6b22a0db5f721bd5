"""apps/v1 as far as manifests and kubectl need it: shapes, visible defaults, selectors that must match.

The sandbox has controllers for Deployments and ReplicaSets, none for DaemonSets and StatefulSets. Source: pkg/apis/apps (1.36).
"""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.sandbox.apiserver.kinds import checks
from fairlead.sandbox.apiserver.kinds.base import Context
from fairlead.sandbox.apiserver.kinds.builtin import BuiltIn
from fairlead.sandbox.apiserver.kinds.errors import FieldError, invalid, not_supported, required
from fairlead.sandbox.apiserver.kinds.podspec import default_pod_spec
from fairlead.sandbox.apiserver.kinds.podvalidation import pod_spec
from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.apiserver.tables import workloads


class _Workload(BuiltIn):
    generation = True

    def default(self, obj: Json) -> None:
        spec = obj.setdefault("spec", {})
        self.default_spec(spec)
        default_pod_spec(spec.setdefault("template", {}).setdefault("spec", {}))

    def default_spec(self, spec: Json) -> None:
        spec.setdefault("replicas", 1)

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


class DeploymentStrategy(_Workload):
    model = "V1Deployment"
    table = workloads.DEPLOYMENTS

    def default_spec(self, spec: Json) -> None:
        super().default_spec(spec)
        strategy = spec.setdefault("strategy", {})
        strategy.setdefault("type", "RollingUpdate")
        if strategy["type"] == "RollingUpdate":
            rolling = strategy.setdefault("rollingUpdate", {})
            rolling.setdefault("maxUnavailable", "25%")
            rolling.setdefault("maxSurge", "25%")
        spec.setdefault("revisionHistoryLimit", 10)
        spec.setdefault("progressDeadlineSeconds", 600)


class ReplicaSetStrategy(_Workload):
    model = "V1ReplicaSet"

    def default(self, obj: Json) -> None:
        super().default(obj)
        obj.setdefault("status", {}).setdefault("replicas", 0)


class DaemonSetStrategy(_Workload):
    model = "V1DaemonSet"
    table = workloads.DAEMON_SETS

    def default_spec(self, spec: Json) -> None:
        strategy = spec.setdefault("updateStrategy", {})
        strategy.setdefault("type", "RollingUpdate")
        if strategy["type"] == "RollingUpdate":
            rolling = strategy.setdefault("rollingUpdate", {})
            rolling.setdefault("maxUnavailable", 1)
            rolling.setdefault("maxSurge", 0)
        spec.setdefault("revisionHistoryLimit", 10)


class StatefulSetStrategy(_Workload):
    model = "V1StatefulSet"

    def default_spec(self, spec: Json) -> None:
        super().default_spec(spec)
        spec.setdefault("podManagementPolicy", "OrderedReady")
        strategy = spec.setdefault("updateStrategy", {})
        strategy.setdefault("type", "RollingUpdate")
        if strategy["type"] == "RollingUpdate":
            strategy.setdefault("rollingUpdate", {}).setdefault("partition", 0)
        spec.setdefault("revisionHistoryLimit", 10)
        spec.setdefault("persistentVolumeClaimRetentionPolicy", {"whenDeleted": "Retain", "whenScaled": "Retain"})
