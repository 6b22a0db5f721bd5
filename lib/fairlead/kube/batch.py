"""batch/v1 Job, as far as the programs read it.

Exists for the sandbox's Job controller and the webhook's view of pod templates. Holds data only.
"""

from fairlead.kube.core import PodSpec
from fairlead.kube.objects import Condition, LabelSelector, Object, ObjectMeta, Struct


class PodTemplateSpec(Struct, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()


class JobSpec(Struct, frozen=True, kw_only=True):
    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str = "NonIndexed"
    backoff_limit: int | None = None
    active_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None
    suspend: bool = False
    selector: LabelSelector | None = None
    template: PodTemplateSpec = PodTemplateSpec()


class UncountedTerminatedPods(Struct, frozen=True, kw_only=True):
    succeeded: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


class JobStatus(Struct, frozen=True, kw_only=True):
    active: int = 0
    ready: int | None = None
    succeeded: int = 0
    failed: int = 0
    terminating: int | None = None
    start_time: str | None = None
    completion_time: str | None = None
    completed_indexes: str = ""
    conditions: tuple[Condition, ...] = ()
    uncounted_terminated_pods: UncountedTerminatedPods | None = None


class Job(Object, frozen=True, kw_only=True):
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


class JobDeadlineSpec(Struct, frozen=True, kw_only=True):
    active_deadline_seconds: int | None = None


class JobDeadlineStatus(Struct, frozen=True, kw_only=True):
    start_time: str | None = None


class JobDeadline(Object, frozen=True, kw_only=True):
    """A Job without its pod template: all that is kept of it where only its end matters."""

    spec: JobDeadlineSpec = JobDeadlineSpec()
    status: JobDeadlineStatus = JobDeadlineStatus()
