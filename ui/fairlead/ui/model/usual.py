"""The usual requests, of the pods that exist: what each asks of devices by one claim, and of its node; pure.

The controller learns them from the gangs that arrive (`engine.placement.workload`); what is there now is the nearest that a reader of
the cluster knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from fairlead.engine.types.pod_needs import PodNeeds
from fairlead.engine.types.workload import Demand, Workload
from fairlead.kube.core import Pod
from fairlead.kube.resource import ResourceClaim, ResourceClaimSpec

LEAST = 8  # pods seen before something is called usual
DEMANDS_MAX = 16


def usual_requests(pods: Iterable[Pod], claims: Mapping[tuple[str, str], ResourceClaim]) -> Workload | None:
    """`claims` by namespace and name. None: too few pods to tell."""
    counts: dict[tuple[bytes, PodNeeds], int] = {}
    specs: dict[bytes, ResourceClaimSpec] = {}
    encoded: dict[str, bytes] = {}
    for pod in pods:
        if len(pod.spec.resource_claims) != 1 or pod.finished:
            continue
        claim = claims.get((pod.metadata.namespace, claim_name(pod)))
        if claim is None:
            continue
        uid = claim.metadata.uid
        if uid not in encoded:
            encoded[uid] = msgspec.json.encode(claim.spec)
        specs.setdefault(encoded[uid], claim.spec)
        key = (encoded[uid], PodNeeds.of(pod))
        counts[key] = counts.get(key, 0) + 1
    if sum(counts.values()) < LEAST:
        return None
    ranked = sorted(counts.items(), key=lambda entry: -entry[1])[:DEMANDS_MAX]
    return Workload(tuple(Demand(specs[text], needs, count) for (text, needs), count in ranked))


def claim_name(pod: Pod) -> str:
    """Of the pod's first claim; "" while it is not made."""
    entry = pod.spec.resource_claims[0]
    if entry.resource_claim_name:
        return entry.resource_claim_name
    made = {each.name: each.resource_claim_name for each in pod.status.resource_claim_statuses}
    return made.get(entry.name) or ""
