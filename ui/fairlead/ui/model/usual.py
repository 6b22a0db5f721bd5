"""The usual requests, of the pods that exist: what each asks of devices by one claim, and of its node; pure.

The controller learns them from the gangs that arrive (`engine.placement.value.workload`); what is there now is the nearest that a reader of
the cluster knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fairlead.engine.types.pods import Demand, PodNeeds, Workload
from fairlead.kube.core import Pod
from fairlead.kube.resource import ResourceClaim, ResourceClaimSpec
from fairlead.kube.spec_key import spec_key

LEAST = 8  # pods seen before something is called usual
DEMANDS_MAX = 16
Key = tuple[str, str]


def usual_requests(pods: Iterable[Pod], claims: Mapping[tuple[str, str], ResourceClaim]) -> Workload | None:
    """`claims` by namespace and name. None: too few pods to tell."""
    counted = UsualRequests()
    for claim in claims.values():
        counted.set_claim(claim)
    for pod in pods:
        counted.set_pod(pod)
    return counted.workload()


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
