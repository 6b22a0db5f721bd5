"""What Kubeflow TrainJobs report of their progress, where the cluster serves them: for forecasts, never for a decision.

The Trainer writes `status.trainerStatus` from what a program posts to it (its feature gate TrainJobStatus, alpha). Of each TrainJob only
its name and that report are kept, not its metrics. A pod is of the TrainJob that its label `jobset.sigs.k8s.io/jobset-name` names: the
Trainer gives its JobSet the name of the TrainJob, and JobSet puts it on every pod. Anybody can write such a label on a pod of theirs;
it changes what is forecast of their own gang.
Source: kubeflow/trainer 8c0f505 `pkg/apis/trainer/v1alpha1/trainjob_types.go`, `pkg/runtime/framework/plugins/jobset/jobset.go`; jobset
08dfbdf `api/jobset/v1alpha2/jobset_types.go`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairlead.controller.watch.optional import OptionalInformer
from fairlead.engine.forecast.run_times import Progress
from fairlead.kube import timestamps
from fairlead.kube.resources import Raw, Resource

JOBSET_NAME = "jobset.sigs.k8s.io/jobset-name"
VERSIONS = ("v1alpha1",)
LEFT_MAX_S = 10 * 365 * 86_400  # of more than ten years nothing is believed
_REPORT = "report"
_KEPT = ("name", "namespace", "uid", "resourceVersion")

RESOURCE: Resource[Raw] = Resource(
    group="trainer.kubeflow.org",
    version=VERSIONS[0],
    plural="trainjobs",
    kind="TrainJob",
    namespaced=True,
    type=dict[str, Any],
)


def report(raw: Mapping[str, Any]) -> Progress | None:
    """What the TrainJob says is left, and when it said so; None where it says nothing that can be read.

    >>> report({"status": {"trainerStatus": {"estimatedRemainingSeconds": 60, "lastUpdatedTime": "1970-01-01T00:01:00Z"}}})
    Progress(left_s=60.0, at=60.0)
    """
    found: Any = raw
    for step in ("status", "trainerStatus"):
        found = found.get(step) if isinstance(found, Mapping) else None
    if not isinstance(found, Mapping):
        return None
    left_s, at = found.get("estimatedRemainingSeconds"), found.get("lastUpdatedTime")
    if type(left_s) is not int or not 0 <= left_s <= LEFT_MAX_S or not isinstance(at, str):
        return None
    try:
        return Progress(float(left_s), timestamps.parse(at))
    except ValueError:
        return None


def kept(raw: Raw) -> Raw:
    """What is stored of a TrainJob."""
    metadata = {key: value for key, value in raw["metadata"].items() if key in _KEPT}
    return {"metadata": metadata, _REPORT: report(raw)}


class TrainJobs:
    """`wanted` False: they are not watched."""

    def __init__(self, *, wanted: bool = True) -> None:
        self._informer: OptionalInformer[Raw] = OptionalInformer(RESOURCE, VERSIONS, required=False, transform=kept)
        self._wanted = wanted

    @property
    def informers(self) -> tuple[OptionalInformer[Raw], ...]:
        return (self._informer,) if self._wanted else ()

    def report(self, namespace: str, labels: Mapping[str, str]) -> Progress | None:
        """Of the TrainJob of a pod with these labels."""
        name, informer = labels.get(JOBSET_NAME), self._informer.informer
        raw = informer.get(f"{namespace}/{name}") if name and informer is not None else None
        return None if raw is None else raw[_REPORT]
