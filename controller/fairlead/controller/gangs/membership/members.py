"""What a gang consists of: members (pods), their claims, their stage. Types only; `pods` makes them, `build` joins them."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from fairlead.api import names
from fairlead.api.claim_sources import ClaimSource
from fairlead.engine.types.reasons import Code
from fairlead.kube import batch, core, resource, timestamps

INDEX_DIGITS_MAX = 10  # a user may have written the annotation


def index_of(text: str) -> int | None:
    """The index that an annotation or label has; None where it is none."""
    return int(text) if len(text) <= INDEX_DIGITS_MAX and text.isascii() and text.isdigit() else None


class Stage(enum.Enum):
    GATED = "gated"
    RELEASED = "released"  # without the admission gate, not finished
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    DELETED = "deleted"  # deleted while gated: never runs


@dataclass(frozen=True, slots=True, kw_only=True)
class GangProblem:
    """Why a gang is not given to the engine at all."""

    code: Code
    message: str


def tried(pod: core.Pod) -> bool:
    """Whether kube-scheduler has tried a released pod: its condition is no longer that of a gated one.

    A gated one for which nodes are asked for has a reason and message of ours (`autoscaling.visible`).
    """
    return not any(
        each.type == "PodScheduled"
        and (each.reason == "SchedulingGated" or each.message.startswith(names.AWAITING_NODES))
        for each in pod.status.conditions
    )


def reserved_for_pod(claim: resource.ResourceClaim, pod_uid: str, pod_group: str) -> bool:
    """Whether `reservedFor` has the pod, or its PodGroup (Kubernetes 1.36, behind DRAWorkloadResourceClaims)."""
    return any(
        consumer.uid == pod_uid or (bool(pod_group) and (*_PODGROUPS, pod_group) == _kind_and_name(consumer))
        for consumer in claim.status.reserved_for
    )


_PODGROUPS = ("scheduling.k8s.io", "podgroups")


def _kind_and_name(consumer: resource.ResourceClaimConsumerReference) -> tuple[str, str, str]:
    return (consumer.api_group, consumer.resource, consumer.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodClaim:
    """An entry of a pod's spec.resourceClaims that is managed here. `claim` is the claim in use, where it exists.

    `pod_group` is the native PodGroup that the pod belongs to: kubelet lets a pod use what is reserved for its group.
    """

    name: str
    key: str  # the claim's UID; "<pod uid>/<entry>" while there is none
    spec: resource.ResourceClaimSpec
    template: resource.ResourceClaimTemplate | None = None
    claim: resource.ResourceClaim | None = None
    pod_group: str = ""
    source: ClaimSource | None = None  # where the webhook named the claim: then only the controller makes it
    unreserved: bool = (
        False  # allocated for a released pod, whose reservation kube-scheduler took away when it failed to bind it
    )

    def usable_by(self, pod_uid: str) -> bool:
        """Whether kubelet lets the pod use the claim, or will: kube-scheduler reserves it again before it binds the pod."""
        return self.claim is not None and (self.unreserved or reserved_for_pod(self.claim, pod_uid, self.pod_group))

    def reserved_for(self, pod_uid: str) -> bool:
        """Whether the claim names the pod itself."""
        return self.claim is not None and any(r.uid == pod_uid for r in self.claim.status.reserved_for)

    @property
    def made(self) -> bool:
        """Whether the claim exists, and an admission made it: such a claim does not outlive a failed one.

        One that was made so that autoscalers can read it is as good as not made, until an admission writes to it.
        """
        if self.source is None or self.claim is None:
            return False
        written = self.claim.status.allocation is not None or bool(self.claim.status.reserved_for)
        return written or names.AWAITING_NODES not in self.claim.metadata.annotations

    @property
    def allocated(self) -> bool:
        return self.claim is not None and self.claim.status.allocation is not None

    @property
    def leaving(self) -> bool:
        """Whether the claim is being deleted: no pod that uses it is bound any more."""
        return self.claim is not None and bool(self.claim.metadata.deletion_timestamp)


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A pod that has the admission gate, or since it was released holds a managed claim or is a member without devices.

    `without_devices`: it asks for none, and waits and starts with the others all the same (`fairlead.dev/members: all`).
    """

    pod: core.Pod
    stage: Stage
    claims: tuple[PodClaim, ...] = ()
    problems: tuple[GangProblem, ...] = ()
    legacy_templates: tuple[str, ...] = ()  # names of templates that have to be created first
    unseen_templates: tuple[str, ...] = ()  # that named claims come from; the watch may only be behind
    without_devices: bool = False  # never of one that has ended
    volumes: tuple[core.NodeSelector, ...] = ()  # where those that it uses are; only of a gated pod
    leaving_claims: tuple[
        str, ...
    ] = ()  # that it uses and that are being deleted; only of a released pod that is not bound

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid

    @property
    def bound(self) -> bool:
        return bool(self.pod.spec.node_name)

    @property
    def tried(self) -> bool:
        """Whether kube-scheduler has tried the pod since its release."""
        return tried(self.pod)

    @property
    def terminating(self) -> bool:
        """Deleted or evicted."""
        return self.pod.metadata.deletion_timestamp is not None

    @property
    def admission_begun(self) -> bool:
        """Whether one of its claims was made by an admission, or is reserved for it: the trace of one in the cluster."""
        return any(claim.made or claim.reserved_for(self.uid) for claim in self.claims)

    @property
    def released_at(self) -> float | None:
        """When the pod says that it was released, unix seconds: always of a member without devices."""
        return timestamps.parsed(self.pod.metadata.annotations.get(names.RELEASED_AT))

    @property
    def fully_reserved(self) -> bool:
        """Whether all its claims are allocated and reserved for it, or for its PodGroup."""
        return bool(self.claims) and all(claim.allocated and claim.usable_by(self.uid) for claim in self.claims)

    @property
    def unmanaged(self) -> bool:
        """Gated, but without a managed claim: the webhook gates pods whose claims it cannot judge yet."""
        return self.stage is Stage.GATED and not (
            self.claims or self.problems or self.legacy_templates or self.without_devices
        )

    @property
    def index(self) -> int | None:
        """The completion index of an Indexed Job's pod."""
        return index_of(self.pod.metadata.annotations.get(names.COMPLETION_INDEX, ""))

    @property
    def runs(self) -> bool:
        """Released, and neither finished nor on the way out."""
        return self.stage is Stage.RELEASED and not self.terminating

    @property
    def owner(self) -> str:
        controller = self.pod.metadata.controller
        return controller.uid if controller else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupClaim:
    """A claim of a native PodGroup: a pod's entry of that name and template means the one claim of all the group's pods."""

    name: str
    template: str
    claim: str = ""  # its name; "" until the group's status says it


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTerms:
    """What a PodGroup object of another system states for the gang of its name."""

    size: int
    queue: str | None = None
    topology: str | None = None  # in the form of our annotation
    priority: int | None = None  # in place of the pods'
    preempts: bool = True  # False: `preemptionPolicy: Never`
    claims: tuple[GroupClaim, ...] = ()

    def claim_of(self, name: str, template: str) -> GroupClaim | None:
        """The group's claim that a pod's entry means."""
        return next((each for each in self.claims if (each.name, each.template) == (name, template)), None)


class Lookup(Protocol):
    """The objects that a pod refers to."""

    @property
    def drivers(self) -> tuple[str, ...]: ...
    @property
    def shared_drivers(self) -> tuple[str, ...]: ...
    @property
    def classes(self) -> Mapping[str, resource.DeviceClass]: ...
    def claim(self, namespace: str, name: str) -> resource.ResourceClaim | None: ...
    def claims_of(self, pod: core.Pod) -> Iterable[resource.ResourceClaim]: ...
    def template(self, namespace: str, name: str) -> resource.ResourceClaimTemplate | None: ...
    def jobs_of(self, gang: tuple[str, str]) -> Iterable[batch.Job]: ...
    def job_of(self, pod: core.Pod) -> batch.Job | None: ...
    def pod_group(self, api: str, namespace: str, name: str) -> GroupTerms | None: ...
    def workload_size(self, gang: tuple[str, str], source: str) -> int | None:
        """That the templates of `source`, such as `RayCluster/explore`, have now for the gang; None where they are not read."""

    def workload_priority(self, name: str) -> int | None: ...
    def namespace_labels(self, namespace: str) -> Mapping[str, str]: ...
    def volume_needs(self, pod: core.Pod) -> VolumeNeeds: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeNeeds:
    """What a pod's volumes ask for. `where`: the node satisfies all of these; `problem`: why no node takes the pod yet."""

    where: tuple[core.NodeSelector, ...] = ()
    problem: GangProblem | None = None


ANYWHERE = VolumeNeeds()
