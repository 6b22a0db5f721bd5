"""batch/v1 Job, as far as the controller reads it: how many pods it still makes, when it began, and how long it may run.

Of its pod template only the metadata that names a gang is kept, so a Job is small whatever its pods hold.
"""

from collections.abc import Mapping

from msgspec import field

from fairlead.kube.objects import Condition, Object, Struct


class TemplateMeta(Struct, frozen=True, kw_only=True):
    annotations: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


class JobTemplate(Struct, frozen=True, kw_only=True):
    metadata: TemplateMeta = TemplateMeta()


class JobSpec(Struct, frozen=True, kw_only=True):
    active_deadline_seconds: int | None = None
    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str = "NonIndexed"
    suspend: bool | None = None
    template: JobTemplate = JobTemplate()


class UncountedTerminatedPods(Struct, frozen=True, kw_only=True):
    """UIDs of finished pods that are not yet in the status' numbers."""

    succeeded: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


class JobStatus(Struct, frozen=True, kw_only=True):
    start_time: str | None = None
    succeeded: int | None = None
    completed_indexes: str = ""
    failed_indexes: str | None = None
    uncounted_terminated_pods: UncountedTerminatedPods | None = None
    conditions: tuple[Condition, ...] = ()


class Job(Object, frozen=True, kw_only=True):
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()

    def condition(self, kind: str) -> Condition | None:
        """Where its status is True."""
        found = (each for each in self.status.conditions if each.type == kind and each.status == "True")
        return next(found, None)
