"""What Enforce policies add to an object. A second pass adds nothing, and what is added is not found missing (`rules`)."""

from __future__ import annotations

from collections.abc import Iterable

from fairlead.webhook.objects.fields import Json, Path
from fairlead.webhook.policy import device_bypass, jobs, pods
from fairlead.webhook.policy.policies import Policies
from fairlead.webhook.review.patch import PatchBuilder


def of_managed_pod(policies: Policies, patch: PatchBuilder) -> None:
    """Tolerations, node affinity, NVIDIA_VISIBLE_DEVICES. Raises MalformedError."""
    pods.set_defaults(policies, patch)
    device_bypass.void_visible_devices(policies, patch)


def of_other_pod(policies: Policies, patch: PatchBuilder, *, before: Json | None = None) -> bool:
    """NVIDIA_VISIBLE_DEVICES; whether anything changed. `before`: the pod before ephemeral containers came. Raises MalformedError."""
    return device_bypass.void_visible_devices(policies, patch, before=before)


def of_gang_jobs(policies: Policies, patch: PatchBuilder, job_specs: Iterable[Path]) -> None:
    """What lets gang Jobs ignore evictions."""
    for job in job_specs:
        jobs.set_failure_defaults(policies, patch, job)
