"""Generations of one workload's pods: which pods a rollout makes, and which it takes away once those are ready.

A Deployment whose template changed keeps pods of the old template until pods of the new one are ready, as its strategy says. By
`generation_of` a pod is told to be of a workload, and of which of its generations. Workloads that take a pod away before they make the
next one (StatefulSets) are in no table: their pods wait for no predecessor.

Example: llm-6d4f-x of ReplicaSet llm-6d4f has the label pod-template-hash: 6d4f, so it is of Deployment/llm in generation 6d4f.
Sources: k8s.io/api apps/v1; argoproj/argo-rollouts pkg/apis/rollouts/v1alpha1; leaderworkerset.x-k8s.io/v1; knative.dev/serving
pkg/apis/serving/register.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from fairlead.api import names


class Generation(NamedTuple):
    """`workload`: Kind/name."""

    workload: str
    generation: str


_LABELLED: Final = (
    ("Service", "serving.knative.dev/service", "serving.knative.dev/revision"),
    ("LeaderWorkerSet", names.LWS_NAME, "leaderworkerset.sigs.k8s.io/template-revision-hash"),
)
_OWNED: Final = (
    ("Rollout", "rollouts-pod-template-hash"),
    ("Deployment", "pod-template-hash"),
)
"""Of pods whose ReplicaSet is called after its owner and the hash."""


def generation_of(labels: Mapping[str, str], owner: tuple[str, str] | None) -> Generation | None:
    """`owner`: its controller's kind and name. None where its workload rolls nothing out beside what runs, or that is not known."""
    for kind, workload, generation in _LABELLED:
        if labels.get(workload) and labels.get(generation):
            return Generation(f"{kind}/{labels[workload]}", labels[generation])
    if owner is None:
        return None
    kind, name = owner
    if kind == "DaemonSet" and labels.get("controller-revision-hash"):
        return Generation(f"{kind}/{name}", labels["controller-revision-hash"])
    if kind == "ReplicaSet":
        for made_by, label in _OWNED:
            hashed = labels.get(label)
            if hashed and name.endswith(f"-{hashed}"):
                return Generation(f"{made_by}/{name.removesuffix(f'-{hashed}')}", hashed)
    return None


def waits_for_itself(kind: str, spec: Any) -> str | None:
    """A warning of a workload whose rollout may need devices for a new pod before it lets an old one go; None where it does not.

    `spec`: its own. Of a Deployment with 4 replicas and 25 % it lets one go at once; with 3 or fewer none.
    """
    field = {"Deployment": "strategy", "DaemonSet": "updateStrategy"}.get(kind)
    if field is None or not isinstance(spec, Mapping):
        return None
    strategy = _mapping(spec.get(field))
    if strategy.get("type", "RollingUpdate") != "RollingUpdate":
        return None
    rolling = _mapping(strategy.get("rollingUpdate"))
    replicas = (
        spec.get("replicas", 1) if kind == "Deployment" else 100
    )  # of a DaemonSet's nodes nothing is known: by its share
    if not isinstance(replicas, int) or replicas < 1:
        return None
    surge, unavailable = ("25%", "25%") if kind == "Deployment" else (0, 1)
    beyond = _share(rolling.get("maxSurge", surge), replicas, up=True)
    if not beyond or _share(rolling.get("maxUnavailable", unavailable), replicas, up=False) != 0:
        return None  # without a surge at least one goes first
    pods = "the old pod" if replicas == 1 else "an old pod"
    return (
        f"spec.{field}: a new pod needs its devices before {pods} is taken away (maxUnavailable is 0 of {replicas}): where no others are "
        "free the rollout waits for itself; write rollingUpdate: {maxSurge: 0, maxUnavailable: 1}"
        + (", or type: Recreate" if kind == "Deployment" else "")
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _share(value: Any, replicas: int, *, up: bool) -> int | None:
    """Pods, a share of them rounded; None for what is neither."""
    if isinstance(value, str) and value.endswith("%") and value[:-1].isdecimal() and len(value) < 8:
        exact = int(value[:-1]) * replicas
        return -(-exact // 100) if up else exact // 100
    return value if isinstance(value, int) and not isinstance(value, bool) else None
