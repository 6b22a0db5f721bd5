"""Accessors of Kubernetes objects as plain dicts, for the parts that stand for stock Kubernetes.

Plain dicts, because those parts see every field of every kind, also the ones that our own programs' structs leave out.
Pure: no client, no clock, no cache.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

Obj = dict[str, Any]

TERMINAL_PHASES: Final = frozenset({"Succeeded", "Failed"})
RESERVED_FOR_MAX: Final = 256  # consumers of one claim (resource.k8s.io/v1)


def meta(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    found = obj.get("metadata")
    return found if isinstance(found, dict) else {}


def name_of(obj: Mapping[str, Any]) -> str:
    return str(meta(obj).get("name", ""))


def namespace_of(obj: Mapping[str, Any]) -> str:
    return str(meta(obj).get("namespace", ""))


def uid_of(obj: Mapping[str, Any]) -> str:
    return str(meta(obj).get("uid", ""))


def key_of(obj: Mapping[str, Any]) -> str:
    """`namespace/name`, or `name` for a cluster-scoped object: the key of every cache and queue."""
    namespace = namespace_of(obj)
    return f"{namespace}/{name_of(obj)}" if namespace else name_of(obj)


def split_key(key: str) -> tuple[str | None, str]:
    namespace, slash, name = key.rpartition("/")
    return (namespace if slash else None), name


def is_deleting(obj: Mapping[str, Any]) -> bool:
    return meta(obj).get("deletionTimestamp") is not None


def spec_of(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    return obj.get("spec") or {}


def status_of(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    return obj.get("status") or {}


def labels_of(obj: Mapping[str, Any]) -> Mapping[str, str]:
    return meta(obj).get("labels") or {}


def annotations_of(obj: Mapping[str, Any]) -> Mapping[str, str]:
    return meta(obj).get("annotations") or {}


def finalizers_of(obj: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(meta(obj).get("finalizers") or ())


def owners_of(obj: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    return tuple(meta(obj).get("ownerReferences") or ())


def controller_of(obj: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return next((owner for owner in owners_of(obj) if owner.get("controller")), None)


def owner_reference(owner: Obj, *, api_version: str, kind: str) -> Obj:
    """The reference that a controller puts on an object it creates: controlling, and blocking the owner's deletion."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": name_of(owner),
        "uid": uid_of(owner),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def phase_of(pod: Mapping[str, Any]) -> str:
    return str(status_of(pod).get("phase") or "Pending")


def node_name_of(pod: Mapping[str, Any]) -> str:
    return str(spec_of(pod).get("nodeName") or "")


def is_done(pod: Mapping[str, Any]) -> bool:
    """The claim controller's `isPodDone`: finished, or deleted before it was bound to a node."""
    return phase_of(pod) in TERMINAL_PHASES or (is_deleting(pod) and not node_name_of(pod))


def condition(obj: Mapping[str, Any], kind: str) -> Mapping[str, Any] | None:
    found: Iterable[Mapping[str, Any]] = status_of(obj).get("conditions") or ()
    return next((each for each in found if each.get("type") == kind), None)


def is_true(obj: Mapping[str, Any], kind: str) -> bool:
    found = condition(obj, kind)
    return found is not None and found.get("status") == "True"


def with_condition(conditions: Iterable[Mapping[str, Any]], new: Mapping[str, Any], *, now: str) -> list[Obj]:
    """The list with `new` in place of its type; the transition time moves only when the status does."""
    result: list[Obj] = []
    done = False
    for each in conditions:
        if each.get("type") != new["type"]:
            result.append(dict(each))
            continue
        same = each.get("status") == new["status"]
        since = each.get("lastTransitionTime") if same else None
        result.append({**each, **new, "lastTransitionTime": since or now})
        done = True
    if not done:
        result.append({**new, "lastTransitionTime": now})
    return result


def containers_of(pod: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from spec_of(pod).get("containers") or ()


def pod_claims(pod: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], str | None]]:
    """Each entry of `spec.resourceClaims` with the name of its ResourceClaim, None while it has none.

    An entry whose status says that no claim is needed (a status without a name) is left out.
    """
    statuses = {each.get("name"): each for each in status_of(pod).get("resourceClaimStatuses") or ()}
    for entry in spec_of(pod).get("resourceClaims") or ():
        direct = entry.get("resourceClaimName")
        if direct is not None:
            yield entry, str(direct)
            continue
        status = statuses.get(entry.get("name"))
        if status is None:
            yield entry, None
        elif status.get("resourceClaimName"):
            yield entry, str(status["resourceClaimName"])


def is_claim_for(claim: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    """Whether this claim was generated for this pod from a template (controlled by it, by UID)."""
    owner = controller_of(claim)
    return owner is not None and owner.get("uid") == uid_of(pod) and namespace_of(claim) == namespace_of(pod)


def reserved_for(claim: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    return tuple(status_of(claim).get("reservedFor") or ())


def is_reserved_for(claim: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    return any(each.get("uid") == uid_of(pod) for each in reserved_for(claim))


def allocation_of(claim: Mapping[str, Any]) -> Mapping[str, Any] | None:
    found = status_of(claim).get("allocation")
    return found if isinstance(found, dict) else None


def results_of(claim: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """The devices that are allocated to a claim."""
    allocation = allocation_of(claim)
    return tuple(((allocation or {}).get("devices") or {}).get("results") or ())
