"""What is judged: the kinds of subjects, and what the two tables, of policies' rules and of refusals, read of each."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import msgspec

from fairlead.api.flavor import Flavor
from fairlead.api.intent import Intent
from fairlead.api.policy import TenancyPolicy
from fairlead.api.queue import Queue
from fairlead.cel.devices.requests import Request
from fairlead.kube.resource import OpaqueDeviceConfiguration, ResourceClaimSpec
from fairlead.webhook.legacy import LegacyLimits
from fairlead.webhook.objects.fields import Json, Path, map_at
from fairlead.webhook.review.envelope import Review
from fairlead.webhook.review.pod_claims import Managed, PodClaim


class Kind(Enum):
    """What is judged, as the documentation calls it."""

    NEW_POD = "new pods"
    LEGACY = "legacy limits"
    MANAGED_POD = "pods with managed devices"
    POD = "other pods"
    STORED_POD = "stored pods"
    UPDATED_POD = "changed pods"
    EPHEMERAL = "ephemeral containers"
    NEW_TEMPLATES = "new pod templates"
    CHANGED_JOB = "changed Jobs and TrainJobs"
    MANAGED_TEMPLATE = "pod templates with managed devices"
    TEMPLATE = "every pod template"
    TRAIN_JOB = "TrainJobs"
    WORKLOAD = "jobs and other workloads"
    GANGS = "gangs of workloads"
    NEW_CLAIM = "new claims and claim templates"
    CLAIM = "claims and claim templates"
    CLASS = "DeviceClasses"
    QUEUE = "Queues"
    FLAVOR = "Flavors"
    POLICY = "TenancyPolicies"


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """What the tables read of one pod, one pod template, one workload or one claim; a handler fills in what its kind has.

    `stored`: as it would be stored, after every mutating webhook. `where` goes before paths: "" or a path with a dot at its end. `pod`:
    a pod, or the template of one. `job`: the path of the JobSpec in `object`, where the template is that of a gang Job. `pods` of a
    workload run at once without a gang and hold `devices`. `managed`: whether it surely uses managed devices. `contradictions` were found
    while annotations were copied to a template or gangs were counted, `unread` while what a pod says of its gang was read.
    """

    kind: Kind
    review: Review
    stored: bool = False
    where: str = ""
    pod: Json = {}
    legacy: LegacyLimits = LegacyLimits()
    translated: bool = False
    claims: Sequence[PodClaim] = ()
    managed: bool = False
    intent: Intent | None = None
    contradictions: Sequence[str] = ()
    unread: Sequence[str] = ()
    size: int | None = None
    pod_group: str | None = None
    object: Json = {}
    job: Path | None = None
    pods: int = 0
    devices: int = 0
    claim: ResourceClaimSpec | None = None
    requests: Sequence[tuple[str, Request]] = ()
    configs: Sequence[tuple[str, tuple[str, ...], OpaqueDeviceConfiguration]] = ()
    own: Queue | Flavor | TenancyPolicy | None = None

    @property
    def spec(self) -> Json:
        return map_at(self.pod, "spec", self.where.removesuffix("."))

    @property
    def metadata(self) -> Json:
        return map_at(self.pod, "metadata", self.where.removesuffix("."))


def surely_managed(claims: Sequence[PodClaim]) -> bool:
    """A claim that does not exist yet may be another driver's."""
    return any(claim.managed is Managed.YES for claim in claims)
