"""The index that each controller writes on its pods, by which they get ranks and subgroups: known before a pod exists.

So a workload whose pods would be in no subgroup is refused when it is written, not pod by pod.
Sources: batch/v1, apps/v1, jobset.x-k8s.io/v1alpha2, leaderworkerset.x-k8s.io/v1, kubeflow.org/v1 and v2beta1.
"""

from __future__ import annotations

from typing import Final

from fairlead.api import names
from fairlead.webhook.objects.fields import Json, map_at, object_at
from fairlead.webhook.objects.pod_templates import PodTemplate

KUBEFLOW: Final = frozenset({"MPIJob", "PyTorchJob"})


def indexed(template: PodTemplate, object_: Json, *, kind: str, owner: str) -> Json:
    """The template's metadata, with the index of its first pod. The launcher of an MPIJob has none."""
    metadata = map_at(object_at(object_, template.path), "metadata", template.where)
    job_spec = None if template.job_spec is None else object_at(object_, template.job_spec)
    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}
    if kind == "JobSet" or (job_spec is not None and job_spec.get("completionMode") == "Indexed"):
        annotations = {names.COMPLETION_INDEX: "0"}
    elif kind == "StatefulSet":
        labels = {names.STATEFULSET_INDEX: "0"}
    elif kind == "LeaderWorkerSet":
        labels = {names.LWS_NAME: owner, names.LWS_GROUP_INDEX: "0", names.LWS_WORKER_INDEX: "0"}
    elif kind in KUBEFLOW and template.path[-2] != "Launcher":
        labels = {names.KUBEFLOW_INDEX: "0"}
    return {
        **metadata,
        "annotations": {**map_at(metadata, "annotations"), **annotations},
        "labels": {**map_at(metadata, "labels"), **labels},
    }
