"""The strategy of pods: defaults, gates, QoS class, graceful deletion.

What may change is in podupdates, what must hold in podvalidation.
Source: pkg/registry/core/pod/strategy.go and storage (1.36).
"""

from __future__ import annotations

from typing import Any

from fairlead.sandbox.apiserver.kinds.base import Context
from fairlead.sandbox.apiserver.kinds.builtin import BuiltIn
from fairlead.sandbox.apiserver.kinds.errors import FieldError, forbidden, invalid
from fairlead.sandbox.apiserver.kinds.podspec import default_pod, qos_class
from fairlead.sandbox.apiserver.kinds.podupdates import container_states, pod_update
from fairlead.sandbox.apiserver.kinds.podvalidation import pod_spec
from fairlead.sandbox.apiserver.kinds.podwarnings import pod_warnings
from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.apiserver.tables.pods import PODS

GATED_MESSAGE = "Scheduling is blocked due to non-empty scheduling gates"


def _resized(given: list[Json], stored: list[Json]) -> list[Json]:
    by_name = {each.get("name"): each for each in given}
    resized = ("resources", "resizePolicy")
    return [
        {**{name: value for name, value in each.items() if name not in resized},
         **{name: value for name, value in by_name.get(each.get("name"), each).items() if name in resized}}
        for each in stored
    ]  # fmt: skip


class PodStrategy(BuiltIn):
    model = "V1Pod"
    table = PODS
    generation = True
    status_resets_owners = True
    short_status_on_delete = False
    fields = (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    )

    def default(self, obj: Json) -> None:
        default_pod(obj)

    def prepare_create(self, obj: Json, context: Context) -> None:
        spec = obj.get("spec", {})
        status: Json = {"phase": "Pending", "qosClass": qos_class(spec)}
        if spec.get("schedulingGates"):
            status["conditions"] = [_gated(context)]
        obj["status"] = status

    def prepare_status(self, new: Json, old: Json, context: Context) -> None:
        """A status write does not change finalizers, owners and a deletion in progress."""
        meta, before = new["metadata"], old["metadata"]
        for key in ("ownerReferences", "finalizers"):
            if key in before:
                meta[key] = before[key]
            else:
                meta.pop(key, None)
        status = new.setdefault("status", {})
        status["qosClass"] = old.get("status", {}).get("qosClass") or qos_class(new.get("spec", {}))

    def warnings(self, new: Json, old: Json | None, context: Context) -> list[str]:
        return [] if old is not None else list(pod_warnings(new))

    def validate_create(self, obj: Json, context: Context) -> list[FieldError]:
        errors = list(pod_spec(obj.get("spec", {})))
        if obj.get("spec", {}).get("schedulingGates") and obj["spec"].get("nodeName"):
            errors.append(forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared"))
        return errors

    def narrow(self, subresource: str, new: Json, old: Json) -> bool:
        """`ephemeralcontainers` and `resize` write those containers, or resources of containers, and no metadata."""
        if subresource not in {"ephemeralcontainers", "resize"}:
            return False
        given, spec = new.get("spec", {}), dict(old.get("spec", {}))
        if subresource == "ephemeralcontainers":
            spec.pop("ephemeralContainers", None)
            spec |= {name: value for name, value in given.items() if name == "ephemeralContainers"}
        else:
            spec["containers"] = _resized(given.get("containers") or [], spec.get("containers") or [])
        kept = {
            name: new["metadata"][name]
            for name in ("uid", "resourceVersion", "managedFields")
            if name in new["metadata"]
        }
        new |= {"spec": spec, "metadata": {**old["metadata"], **kept}}
        new.pop("status", None)
        if "status" in old:
            new["status"] = old["status"]
        return True

    def validate_update(self, new: Json, old: Json, context: Context) -> list[FieldError]:
        return [*pod_spec(new.get("spec", {})), *pod_update(new, old)]

    def validate_status(self, new: Json, old: Json, context: Context) -> list[FieldError]:
        errors = []
        after = new.get("status", {})
        if old.get("spec", {}).get("nodeName") != new.get("spec", {}).get("nodeName"):
            errors.append(forbidden("spec.nodeName", "may not be changed directly"))
        known = {claim.get("name") for claim in new.get("spec", {}).get("resourceClaims") or []}
        for index, one in enumerate(after.get("resourceClaimStatuses") or []):
            if one.get("name") not in known:
                errors.append(
                    invalid(
                        f"status.resourceClaimStatuses[{index}].name",
                        one.get("name", ""),
                        "must match the name of an entry in `spec.resourceClaims`",
                    )
                )
        errors += container_states(new, old)
        return errors

    def grace_period_s(self, obj: Json, requested: int | None) -> int | None:
        """The spec's period unless the request has another; none for pods that never ran or are finished."""
        spec, status = obj.get("spec", {}), obj.get("status", {})
        period = requested
        if period is None:
            period = spec.get("terminationGracePeriodSeconds")
            period = 0 if period is None else period
        if not spec.get("nodeName") or status.get("phase") in {"Failed", "Succeeded"}:
            return 0
        return 1 if period < 0 else int(period)


def _gated(context: Context) -> dict[str, Any]:
    return {
        "type": "PodScheduled",
        "status": "False",
        "lastProbeTime": None,
        "lastTransitionTime": context.timestamp(),
        "reason": "SchedulingGated",
        "message": GATED_MESSAGE,
    }
