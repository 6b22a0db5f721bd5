"""What is kept of a watched pod: the few fields that pages read, of those that have to do with devices; pure.

A cluster has many pods that no page names. They count against their node (`watched_tables`), and of them only the name is kept.
"""

from __future__ import annotations

from collections.abc import Iterable

from fairlead.api import foreign, names
from fairlead.kube.resources import Raw

_LONG = "kubectl.kubernetes.io/last-applied-configuration"
_SPEC = ("nodeName", "schedulingGates", "schedulingGroup", "resourceClaims")
_STATUS = ("phase", "reason", "message", "conditions", "resourceClaimStatuses", "extendedResourceClaimStatus")


def lean(pod: Raw) -> Raw:
    """The metadata alone of a pod that no page names, without what writers note of themselves."""
    meta = {key: value for key, value in pod["metadata"].items() if key != "managedFields"}
    if not concerns(pod):
        kept = ("name", "namespace", "uid", "resourceVersion")
        return {"metadata": {key: meta[key] for key in kept if key in meta}}
    if _LONG in (meta.get("annotations") or {}):
        meta["annotations"] = {key: value for key, value in meta["annotations"].items() if key != _LONG}
    return {
        "metadata": meta,
        "spec": _some(pod.get("spec") or {}, _SPEC),
        "status": _some(pod.get("status") or {}, _STATUS),
    }


def concerns(pod: Raw) -> bool:
    """Whether it is in a gang, has claims, or waits for Fairlead."""
    spec, meta = pod.get("spec") or {}, pod["metadata"]
    annotations, labels = meta.get("annotations") or {}, meta.get("labels") or {}
    return bool(
        spec.get("resourceClaims")
        or names.CLAIM_SOURCES in annotations
        or (pod.get("status") or {}).get("extendedResourceClaimStatus")
        or any(gate.get("name") == names.ADMISSION_GATE for gate in spec.get("schedulingGates") or ())
        or foreign.gang_name(annotations, labels, (spec.get("schedulingGroup") or {}).get("podGroupName")) is not None
    )


def _some(found: Raw, keys: Iterable[str]) -> Raw:
    return {key: found[key] for key in keys if key in found}
