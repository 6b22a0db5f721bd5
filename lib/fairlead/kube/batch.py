"""batch/v1 Job, as far as the controller reads it: when it began, and how long it may run.

Without its pod template a Job is small, whatever its pods hold.
"""

from fairlead.kube.objects import Object, Struct


class JobDeadlineSpec(Struct, frozen=True, kw_only=True):
    active_deadline_seconds: int | None = None


class JobDeadlineStatus(Struct, frozen=True, kw_only=True):
    start_time: str | None = None


class JobDeadline(Object, frozen=True, kw_only=True):
    """A Job of which only its end matters."""

    spec: JobDeadlineSpec = JobDeadlineSpec()
    status: JobDeadlineStatus = JobDeadlineStatus()
