"""What holds each allocated claim, how busy its devices are, and what pods usually request; pure.

A claim is held by the gang of the pods that it is reserved for. The controller learns usual requests from the gangs that arrive
(`engine.placement.value.workload`); those of the pods that exist are the nearest that a reader of the cluster knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

import msgspec

from fairlead.controller.gangs.claims.allocations import allocated_at, known_allocation_time
from fairlead.engine.types.pods import Demand, PodNeeds, Workload
from fairlead.kube import nulls
from fairlead.kube.containment import computed
from fairlead.kube.core import Pod
from fairlead.kube.device_usage import FRESH_S, DeviceId, DeviceUsage
from fairlead.kube.resource import ResourceClaim, ResourceClaimSpec
from fairlead.kube.resources import Raw
from fairlead.kube.spec_key import spec_key
from fairlead.ui.model import plain_pods
from fairlead.ui.model.devices import share_text
from fairlead.ui.model.facts import Holder, Usage
from fairlead.ui.model.plain_pods import gang_of


def holders(claims: Iterable[ResourceClaim], pods: Iterable[Raw], gangs: Iterable[Raw]) -> dict[str, Holder]:
    """The holder of each allocated claim, by claim UID. Where the pods are not known it says no more than that."""
    by_uid = {pod["metadata"].get("uid", ""): pod for pod in pods}
    queues = {(raw["metadata"].get("namespace", ""), raw["metadata"]["name"]): queue_of(raw) for raw in gangs}
    return {
        claim.metadata.uid: computed(partial(holder, claim, by_uid, queues), lambda _: Holder())
        for claim in claims
        if claim.status.allocation is not None
    }


def holder(claim: ResourceClaim, pods: Mapping[str, Raw], queues: Mapping[tuple[str, str], str]) -> Holder:
    """`pods` by UID; those of another namespace cannot use the claim. `queues` of gangs, by namespace and name."""
    namespace = claim.metadata.namespace
    named = (pods.get(each.uid) for each in claim.status.reserved_for)
    own = [pod for pod in named if pod is not None and pod["metadata"].get("namespace", "") == namespace]
    if not own:
        return Holder()
    name = gang_of(own[0])
    starting = not any((pod.get("status") or {}).get("phase") in {"Running", "Succeeded", "Failed"} for pod in own)
    return Holder(
        gang=f"{namespace}/{name}",
        queue=queues.get((namespace, name)) or plain_pods.queue_of(own[0]),
        starting=starting,
        since=_since(claim, own),
    )


def _since(claim: ResourceClaim, pods: Iterable[Raw]) -> float | None:
    try:
        known = known_allocation_time(claim, ())
        return allocated_at(claim, (nulls.convert(pod, Pod) for pod in pods)) if known is None else known
    except (ValueError, msgspec.ValidationError):  # of a snapshot that somebody wrote
        return None


def lately(written: Iterable[tuple[str, Mapping[DeviceId, DeviceUsage]]], *, now: float) -> dict[DeviceId, Usage]:
    """How busy devices are, of which their driver wrote lately. `written`: by claim UID. `now`: unix seconds."""
    return {
        device: Usage(
            idle_since=usage.since_s if usage.state == "Idle" else None,
            percent=None if usage.state == "Unknown" else usage.utilization_percent,
            claim=uid if device.share_id else "",
            share=share_text(usage) if device.share_id else "",
        )
        for uid, found in written
        for device, usage in found.items()
        if usage.sampled_at_s >= now - FRESH_S
    }


def queue_of(raw: Raw) -> str:
    """The queue that a gang is in; "" where the controller has not said so yet. What its spec names may be a user's."""
    return str((raw.get("status") or {}).get("queue") or "")


def evicting(status: Raw) -> bool:
    """Whether a gang's eviction is set."""
    return any(
        each.get("type") == "Evicting" and each.get("status") == "True" for each in status.get("conditions") or ()
    )


LEAST = 8  # pods seen before something is called usual
DEMANDS_MAX = 16
Key = tuple[str, str]


class UsualRequests:
    """How many pods make each request, kept pod by pod and claim by claim."""

    def __init__(self) -> None:
        self._pods: dict[str, tuple[Key, PodNeeds]] = {}  # by UID: the key of its claim, and its needs
        self._pods_of: dict[Key, set[str]] = {}
        self._specs: dict[Key, bytes] = {}  # of claims
        self._written: dict[bytes, tuple[ResourceClaimSpec, int]] = {}  # and of how many claims it is
        self._counts: dict[tuple[bytes, PodNeeds], int] = {}

    def set_claim(self, claim: ResourceClaim) -> None:
        key = (claim.metadata.namespace, claim.metadata.name)
        spec = spec_key(claim.spec)
        if self._specs.get(key) == spec:
            return
        self.drop_claim(*key)
        self._specs[key] = spec
        written, claims = self._written.get(spec, (claim.spec, 0))
        self._written[spec] = written, claims + 1
        for uid in self._pods_of.get(key, ()):
            self._count(spec, self._pods[uid][1], 1)

    def drop_claim(self, namespace: str, name: str) -> None:
        spec = self._specs.pop((namespace, name), None)
        if spec is None:
            return
        for uid in self._pods_of.get((namespace, name), ()):
            self._count(spec, self._pods[uid][1], -1)
        written, claims = self._written[spec]
        if claims > 1:
            self._written[spec] = written, claims - 1
        else:
            del self._written[spec]

    def set_pod(self, pod: Pod) -> None:
        """One with several claims, or that has ended, says nothing of what is usual."""
        self.drop_pod(pod.metadata.uid)
        if len(pod.spec.resource_claims) != 1 or pod.finished or not (name := claim_name(pod)):
            return
        key, needs = (pod.metadata.namespace, name), PodNeeds.of(pod)
        self._pods[pod.metadata.uid] = key, needs
        self._pods_of.setdefault(key, set()).add(pod.metadata.uid)
        if key in self._specs:
            self._count(self._specs[key], needs, 1)

    def drop_pod(self, uid: str) -> None:
        key, needs = self._pods.pop(uid, (None, None))
        if key is None or needs is None:
            return
        self._pods_of[key].discard(uid)
        if not self._pods_of[key]:
            del self._pods_of[key]
        if key in self._specs:
            self._count(self._specs[key], needs, -1)

    def workload(self) -> Workload | None:
        """None: too few pods to tell."""
        if sum(self._counts.values()) < LEAST:
            return None
        ranked = sorted(self._counts.items(), key=lambda entry: -entry[1])[:DEMANDS_MAX]
        return Workload(tuple(Demand(self._written[spec][0], needs, count) for (spec, needs), count in ranked))

    def _count(self, spec: bytes, needs: PodNeeds, by: int) -> None:
        key = (spec, needs)
        left = self._counts.get(key, 0) + by
        if left:
            self._counts[key] = left
        else:
            self._counts.pop(key, None)


def claim_name(pod: Pod) -> str:
    """The name of the pod's first claim; "" while it is not made."""
    entry = pod.spec.resource_claims[0]
    if entry.resource_claim_name:
        return entry.resource_claim_name
    made = {each.name: each.resource_claim_name for each in pod.status.resource_claim_statuses}
    return made.get(entry.name) or ""
