"""What a pod and a ResourceClaim count for in a ResourceQuota: amounts by the names that stand in `spec.hard`.

Admission adds them when an object is created, the quota controller counts them again after deletions. Counted are pods
(`pods`, `count/pods`, `requests.cpu`, `requests.memory`, `requests.<extended resource>`) and claims (`count/resourceclaims.resource.k8s.io`,
`<class>.deviceclass.resource.k8s.io/devices`, and the names of the extended resource that a class stands for). A quota with any
other name is refused when it is created (`apiserver.kinds.quotas`). Amounts are integers: thousandths of cpu, bytes, or counts. Pure.

A quota with a scope selector counts pods of the priority classes that it selects (`selects`); other scopes are refused.

A claim counts at its creation, allocated or not, as pkg/quota/v1/evaluator/core/resource_claims.go (1.36.2), `Usage`, has it:
- `exactly` with ExactCount: its count; with All: 32 (AllocationResultsMaxSize), whatever there is.
- `firstAvailable`: for each class the most that one of its alternatives asks for; classes add up.
- adminAccess makes no difference: such devices count like others.
- Every class counts for `requests.deviceclass.resource.kubernetes.io/<class>`, too, and one with `extendedResourceName:
  example.com/gpu` for `requests.example.com/gpu` (DRAExtendedResource: alpha and off in 1.34, beta and on in 1.36).
  Seen so on 1.36.2, where the first counts whether or not the class has an extendedResourceName.
  Left out here: that a claim which kube-scheduler made for a pod's extended resource does not count twice; no such claim is
  made in the sandbox.
Pods are as in pods.go of the same directory, `PodUsageFunc`, `podMatchesScopeFunc` and `Constraints`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fairlead.kube import timestamps
from fairlead.kube.quantity import Quantity
from fairlead.sandbox.node_fit import amount, pod_requests
from fairlead.sandbox.objects import TERMINAL_PHASES, Obj, containers_of, meta, phase_of, spec_of

PODS: Final = "pods"
CLAIMS: Final = "resourceclaims.resource.k8s.io"
REQUESTS: Final = "requests."
PER_CLASS: Final = ".deviceclass.resource.k8s.io/devices"
IMPLICIT: Final = "requests.deviceclass.resource.kubernetes.io/"
ALL_DEVICES: Final = 32
COMPUTE: Final = {"requests.cpu": "cpu", "requests.memory": "memory", "cpu": "cpu", "memory": "memory"}
SCOPE_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")

Extended = Mapping[str, str]
"""By DeviceClass the extended resource that it stands for, "" where it has none."""


def extended_resources(classes: list[Obj]) -> dict[str, str]:
    return {str(meta(each)["name"]): str(spec_of(each).get("extendedResourceName") or "") for each in classes}


def is_counted(name: str) -> bool:
    """Whether the sandbox keeps quotas of this name."""
    plain = name in {"pods", "count/pods", f"count/{CLAIMS}"} or name in COMPUTE
    return plain or name.endswith(PER_CLASS) or _is_extended(name)


def units(name: str, quantity: object) -> int:
    """A quantity in a quota of this name."""
    return amount(COMPUTE.get(name, name), str(quantity))


def shown(name: str, value: int) -> str:
    """The inverse of `units`, as the apiserver writes it."""
    match COMPUTE.get(name):
        case "cpu":
            return str(Quantity(value, -3))
        case "memory":
            return str(Quantity(value, 0, "BinarySI"))
        case _:
            return str(value)


def selects(quota: Obj, resource: str, obj: Obj) -> bool:
    """Whether the object is in the quota's scope."""
    rules = (spec_of(quota).get("scopeSelector") or {}).get("matchExpressions") or ()
    if not rules:
        return True
    return resource == PODS and all(_in_scope(rule, str(spec_of(obj).get("priorityClassName") or "")) for rule in rules)


def unspecified(names: list[str], pod: Obj) -> dict[str, list[str]]:
    """By quota name of cpu and memory, the containers that request none: a quota on it refuses such a pod."""
    found: dict[str, list[str]] = {}
    for name in (each for each in names if each in COMPUTE):
        containers = [*containers_of(pod), *(spec_of(pod).get("initContainers") or ())]
        silent = [each["name"] for each in containers if COMPUTE[name] not in _requested(each)]
        if silent:
            found[name] = sorted(silent)
    return found


def concerns(name: str, resource: str, extended: Extended) -> bool:
    """Whether objects of this kind (`pods`, `resourceclaims.resource.k8s.io`) count for quotas of this name."""
    if resource == PODS:
        return name in {"pods", "count/pods"} or name in COMPUTE or _is_extended(name)
    if resource != CLAIMS:
        return False
    if name == f"count/{CLAIMS}" or name.endswith(PER_CLASS):
        return True
    return (name.startswith(IMPLICIT) and name.removeprefix(IMPLICIT) in extended) or (
        name.startswith(REQUESTS) and name.removeprefix(REQUESTS) in extended.values()
    )


def usage(resource: str, obj: Obj, extended: Extended, *, now_s: float) -> dict[str, int]:
    """What one object counts for, by name; {} for kinds that are not counted."""
    if resource == PODS:
        return pod_usage(obj, now_s=now_s)
    return claim_usage(obj, extended) if resource == CLAIMS else {}


def pod_usage(pod: Obj, *, now_s: float) -> dict[str, int]:
    """A pod that has ended, or whose deletion is overdue, counts for `count/pods` alone."""
    used = {"count/pods": 1}
    if phase_of(pod) in TERMINAL_PHASES or _deletion_is_overdue(pod, now_s):
        return used
    wanted = pod_requests(pod)
    requests = {f"{REQUESTS}{name}": value for name, value in wanted.items() if "/" in name}
    compute = {name: wanted[resource] for name, resource in COMPUTE.items() if resource in wanted}
    return {**used, "pods": 1, **requests, **compute}


def claim_usage(claim: Obj, extended: Extended) -> dict[str, int]:
    used = {f"count/{CLAIMS}": 1}
    for request in (spec_of(claim).get("devices") or {}).get("requests") or ():
        most: dict[str, int] = {}
        for each in request.get("firstAvailable") or [request.get("exactly") or {}]:
            name = each.get("deviceClassName", "")
            most[name] = max(most.get(name, 0), _devices(each))
        for name, devices in most.items():
            if name:
                key = f"{name}{PER_CLASS}"
                used[key] = used.get(key, 0) + devices
    for key, devices in list(used.items()):
        name = key.removesuffix(PER_CLASS)
        if name == key:
            continue
        used[f"{IMPLICIT}{name}"] = devices
        if extended.get(name):
            used[f"{REQUESTS}{extended[name]}"] = devices
    return used


def _requested(container: Mapping[str, Any]) -> Mapping[str, Any]:
    resources = container.get("resources") or {}
    return {**(resources.get("limits") or {}), **(resources.get("requests") or {})}


def _in_scope(rule: Mapping[str, Any], priority_class: str) -> bool:
    """A pod without a class has no value: only NotIn and DoesNotExist select it."""
    match rule.get("operator"):
        case "In":
            return priority_class in (rule.get("values") or ()) and bool(priority_class)
        case "NotIn":
            return priority_class not in (rule.get("values") or ())
        case "Exists":
            return bool(priority_class)
        case _:
            return not priority_class


def _devices(request: Mapping[str, Any]) -> int:
    mode = request.get("allocationMode") or "ExactCount"
    if mode == "ExactCount":
        return int(request.get("count") or 1)
    return ALL_DEVICES if mode == "All" else 0


def _is_extended(name: str) -> bool:
    domain, slash, _ = name.removeprefix(REQUESTS).partition("/")
    native = domain.endswith("kubernetes.io") and not name.startswith(IMPLICIT)
    return name.startswith(REQUESTS) and bool(slash) and not native


def _deletion_is_overdue(pod: Obj, now_s: float) -> bool:
    deleted, grace = meta(pod).get("deletionTimestamp"), meta(pod).get("deletionGracePeriodSeconds")
    # deletionTimestamp is already the end of the grace period; pods.go adds it once more.
    return deleted is not None and grace is not None and now_s > timestamps.parse(str(deleted)) + float(grace)
