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
from typing import Final, NamedTuple

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
