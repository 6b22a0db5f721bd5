"""What kube-controller-manager's resourceclaim controller decides about one pod, and about one claim.

Pure: objects in, the writes to make out (claim_controller.py makes them).
Source: kubernetes pkg/controller/resourceclaim/controller.go, 1.36 (handleClaim, syncPod, syncClaim).

Rules: gated pods get their claims, too; a claim that another controller created for a pod is adopted by its annotation;
an allocation that was never reserved stays (only "had consumers, has none now" clears it, and only with the finalizer);
consumers of an unknown kind stay. Differs from 1.36 in one thing: a finished pod is not reserved again (1.38's fix of a hot
loop, kubernetes#141276).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from fairlead.api import names
from fairlead.sandbox.objects import (
    RESERVED_FOR_MAX,
    Obj,
    allocation_of,
    annotations_of,
    controller_of,
    finalizers_of,
    is_claim_for,
    is_deleting,
    is_done,
    is_reserved_for,
    name_of,
    node_name_of,
    owner_reference,
    pod_claims,
    reserved_for,
    spec_of,
    status_of,
    uid_of,
)

GENERATED_BASE_MAX: Final = 57  # leaves five random characters in a name of 63, and a hyphen


@dataclass(frozen=True, kw_only=True)
class PodWork:
    """What a pod lacks: claims to create (by entry name), claims to adopt (entry name -> claim name), errors."""

    creates: dict[str, Obj] = field(default_factory=dict)
    adopts: dict[str, str] = field(default_factory=dict)
    errors: tuple[str, ...] = ()


def generated_name(pod: str, entry: str) -> str:
    """`<pod>-<entry>-`, both shortened in proportion where that is too long for a name."""
    base = f"{pod}-{entry}-"
    if len(base) <= GENERATED_BASE_MAX:
        return base
    keep_pod = len(pod) * GENERATED_BASE_MAX // len(base)
    keep_entry = len(entry) * GENERATED_BASE_MAX // len(base)
    return f"{pod[:keep_pod]}-{entry[:keep_entry]}-"


def claim_from_template(pod: Obj, entry: str, template: Obj) -> Obj:
    wanted = spec_of(template)
    metadata = wanted.get("metadata") or {}
    made: Obj = {
        "generateName": generated_name(name_of(pod), entry),
        "ownerReferences": [owner_reference(pod, api_version="v1", kind="Pod")],
        "annotations": {**(metadata.get("annotations") or {}), names.POD_CLAIM_NAME: entry},
    }
    if metadata.get("labels"):
        made["labels"] = dict(metadata["labels"])
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": made,
        "spec": wanted.get("spec") or {},
    }


def pod_work(
    pod: Obj, *, claim: Callable[[str], Obj | None], owned: Iterable[Obj], template: Callable[[str], Obj | None]
) -> PodWork:
    """The claims to create or adopt for a pod. `owned` are the claims that name the pod as their controller."""
    if is_deleting(pod) or is_done(pod):
        return PodWork()
    own = sorted(owned, key=name_of)
    work = PodWork()
    errors: list[str] = []
    for entry, named in pod_claims(pod):
        label = str(entry.get("name"))
        if entry.get("resourceClaimTemplateName") is None:
            continue
        if named is not None:
            existing = claim(named)
            if existing is not None:
                if not is_claim_for(existing, pod):
                    errors.append(f"ResourceClaim {named!r} was not created for pod {name_of(pod)} (not its owner)")
                continue
        found = next((each for each in own if annotations_of(each).get(names.POD_CLAIM_NAME) == label), None)
        if found is not None:
            work.adopts[label] = name_of(found)
            continue
        source = template(str(entry["resourceClaimTemplateName"]))
        if source is None:
            errors.append(f'resource claim template "{entry["resourceClaimTemplateName"]}" not found')
            continue
        work.creates[label] = claim_from_template(pod, label, source)
    return PodWork(creates=work.creates, adopts=work.adopts, errors=tuple(errors))


def claim_statuses(pod: Obj, made: Mapping[str, str]) -> list[Obj]:
    """The new `status.resourceClaimStatuses`: the entries that are there, with `made` (entry -> claim) on top."""
    before = {str(each["name"]): dict(each) for each in status_of(pod).get("resourceClaimStatuses") or ()}
    for entry, name in made.items():
        before[entry] = {"name": entry, "resourceClaimName": name}
    return list(before.values())


def claims_to_reserve(pod: Obj, *, claim: Callable[[str], Obj | None]) -> list[Obj]:
    """Allocated claims that are not reserved for their pod: it was bound by another scheduler than kube-scheduler."""
    if not node_name_of(pod) or is_deleting(pod) or is_done(pod):
        return []
    result = []
    for entry, named in pod_claims(pod):
        found = claim(named) if named else None
        if found is None or allocation_of(found) is None or is_reserved_for(found, pod):
            continue
        if entry.get("resourceClaimTemplateName") is not None and not is_claim_for(found, pod):
            continue
        if len(reserved_for(found)) < RESERVED_FOR_MAX and not is_deleting(found):
            result.append(found)
    return result


class PodFact(Enum):
    """What the controller has of a pod that a claim is reserved for."""

    LIVE = "live"
    GONE = "gone"  # deleted, replaced, finished, or deleted before it had a node
    UNKNOWN = "unknown"  # not in the cache (yet): ask the API before any reservation is removed


def pod_fact(cached: Obj | None, uid: str) -> PodFact:
    if cached is None:
        return PodFact.UNKNOWN
    return PodFact.GONE if uid_of(cached) != uid or is_done(cached) else PodFact.LIVE


@dataclass(frozen=True, kw_only=True)
class ClaimWork:
    """The writes to a claim, in this order: the status, the finalizer, the deletion."""

    status: Obj | None = None
    drop_finalizer: bool = False
    delete: bool = False


def is_pod(consumer: Mapping[str, Any]) -> bool:
    return not consumer.get("apiGroup") and consumer.get("resource") == "pods"


def owning_pod(claim: Obj) -> tuple[str, str] | None:
    """Name and UID of the pod that a claim was generated for."""
    owner = controller_of(claim)
    if owner is None or owner.get("kind") != "Pod" or owner.get("apiVersion") != "v1":
        return None
    return str(owner["name"]), str(owner["uid"])


def claim_work(
    claim: Obj, *, consumer: Callable[[Mapping[str, Any]], PodFact], owner: Callable[[str, str], PodFact]
) -> ClaimWork:
    """The writes to a claim. `consumer` says what is known of an entry of reservedFor, never UNKNOWN; `owner` the same of a
    pod by name and UID.
    """
    before = reserved_for(claim)
    valid = [dict(each) for each in before if not is_pod(each) or consumer(each) is not PodFact.GONE]
    ours = names.CLAIM_FINALIZER in finalizers_of(claim)
    status: Obj | None = None
    drop = False
    if len(valid) < len(before):
        status = {**status_of(claim), "reservedFor": valid}
        if not valid:
            status.pop("reservedFor")
            if ours:
                _deallocate(status)
                drop = True
    elif ours and is_deleting(claim) and not valid:
        # Deleted before it was ever used. Allocated or not, the claim cannot end before its finalizer is removed.
        if allocation_of(claim) is not None:
            status = _deallocate(dict(status_of(claim)))
        drop = True
    delete = False
    if not valid and not is_deleting(claim):
        pod = owning_pod(claim)
        delete = pod is not None and owner(*pod) is PodFact.GONE
    return ClaimWork(status=status, drop_finalizer=drop, delete=delete)


def _deallocate(status: Obj) -> Obj:
    # The apiserver refuses `devices`, which describes allocated devices, without the allocation.
    status.pop("allocation", None)
    status.pop("devices", None)
    return status
