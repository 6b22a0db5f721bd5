"""Whether kubelet takes a pod that was bound to its node, and the status that it reports, from the states of its containers.

kube-scheduler decides from its own cache: a pod that does not fit beside the others when it arrives is refused here, for good. Only
pods, cpu and memory are looked at: nothing here changes labels, taints and ports between binding and arrival. Pure.
Source: kubernetes pkg/kubelet/lifecycle/predicate.go, kubelet_pods.go (getPhase), status/generate.go, 1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fairlead.kube import timestamps
from fairlead.sandbox.kubelet.runtime import Container
from fairlead.sandbox.node_fit import amounts, pod_requests
from fairlead.sandbox.objects import Obj, containers_of, is_true, spec_of, status_of, with_condition


def phase(pod: Obj, containers: Mapping[str, Container | None]) -> str:
    """Pending, Running, Succeeded or Failed. A container that will be restarted counts as running."""
    found = list(containers.values())
    if any(each is None for each in found):
        return "Pending"
    policy = str(spec_of(pod).get("restartPolicy") or "Always")
    ended = [each.exit_code for each in found if each is not None and each.ended_s is not None]
    if len(ended) < len(found):
        return "Running"
    if policy == "Always" or (policy == "OnFailure" and any(ended)):
        return "Running"
    return "Failed" if any(ended) else "Succeeded"


def restarts(pod: Obj, container: Container) -> bool:
    policy = str(spec_of(pod).get("restartPolicy") or "Always")
    return container.ended_s is not None and (
        policy == "Always" or (policy == "OnFailure" and bool(container.exit_code))
    )


def status(
    pod: Obj,
    containers: Mapping[str, Container | None],
    *,
    now_s: float,
    host_ip: str,
    pod_ip: str,
    final: str = "",
    waiting: str = "ContainerCreating",
    message: str = "",
) -> Obj:
    """The status to write. `final`: the phase of a pod that was stopped; `waiting`, `message`: why a container waits."""
    now = timestamps.seconds(now_s)
    where = final or phase(pod, containers)
    listed = [
        _container(each, containers.get(str(each["name"])), waiting=waiting, message=message)
        for each in containers_of(pod)
    ]
    ready = where == "Running" and all(each["ready"] for each in listed)
    conditions: Sequence[Mapping[str, Any]] = status_of(pod).get("conditions") or ()
    done = where in {"Succeeded", "Failed"}
    reason = {"reason": "PodCompleted"} if where == "Succeeded" else {}
    unready = reason or ({} if ready else {"reason": "PodFailed" if done else "ContainersNotReady"})
    for new in (
        {"type": "PodReadyToStartContainers", "status": _truth(where == "Running")},
        {"type": "Initialized", "status": "True", **reason},
        {"type": "Ready", "status": _truth(ready), **unready},
        {"type": "ContainersReady", "status": _truth(ready), **unready},
    ):
        conditions = with_condition(_without_reason(conditions, new), new, now=now)
    made: Obj = {
        "phase": where,
        "conditions": list(conditions),
        "containerStatuses": listed,
        "startTime": status_of(pod).get("startTime") or now,
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}],
        "qosClass": status_of(pod).get("qosClass") or "Burstable",
    }
    if where != "Pending":
        made |= {"podIP": pod_ip, "podIPs": [{"ip": pod_ip}]}
    return made


def refused(pod: Obj, refusal: Refusal, *, now_s: float) -> Obj:
    """The status of a pod that kubelet does not take: it has failed, and says nothing of containers."""
    now = timestamps.seconds(now_s)
    conditions: Sequence[Mapping[str, Any]] = status_of(pod).get("conditions") or ()
    for kind in (
        "Ready",
        "ContainersReady",
    ):  # of a pod that was refused when kubelet started again; else it has neither
        if is_true(pod, kind):
            conditions = with_condition(conditions, {"type": kind, "status": "False", "reason": "PodFailed"}, now=now)
    return {
        "phase": "Failed",
        "conditions": list(conditions),
        "reason": refusal.reason,
        "message": f"Pod was rejected: {refusal.message}",
        "startTime": status_of(pod).get("startTime") or now,
        "qosClass": status_of(pod).get("qosClass") or "Burstable",
    }


def _truth(value: bool) -> str:
    return "True" if value else "False"


def _without_reason(conditions: Sequence[Mapping[str, Any]], new: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """A reason belongs to the status it explains: it is dropped when the condition is written without one."""
    return [
        {key: value for key, value in each.items() if key not in {"reason", "message"}}
        if each.get("type") == new["type"]
        else each
        for each in conditions
    ]


def _container(spec: Mapping[str, Any], container: Container | None, *, waiting: str, message: str) -> Obj:
    image = str(spec.get("image") or "")
    listed: Obj = {"name": spec["name"], "image": image, "imageID": image, "restartCount": 0}
    if container is None:
        why = {"reason": waiting, **({"message": message} if message else {})}
        return {**listed, "ready": False, "started": False, "state": {"waiting": why}}
    listed["restartCount"] = container.restarts
    began = timestamps.seconds(container.started_s)
    if container.ended_s is None:
        return {**listed, "ready": True, "started": True, "state": {"running": {"startedAt": began}}}
    ended = {
        "exitCode": container.exit_code or 0,
        "reason": "Error" if container.exit_code else "Completed",
        "startedAt": began,
        "finishedAt": timestamps.seconds(container.ended_s),
    }
    if message := _termination_message(container):
        ended["message"] = message
    return {**listed, "ready": False, "started": False, "state": {"terminated": ended}}


def _termination_message(container: Container) -> str:
    prefix = container.program.reports
    if container.message:
        return container.message[:4096]
    lines = [f"{name}={value}" for name, value in sorted(container.env.items()) if prefix and name.startswith(prefix)]
    return "\n".join(lines)[:4096]


_REASONS: Final = ("pods", "cpu", "memory")  # in the order in which they are looked at


@dataclass(frozen=True)
class Refusal:
    reason: str
    message: str


def refusal(
    pod: Obj, others: Iterable[Obj], *, allocatable: Mapping[str, str], unseen: Mapping[str, str]
) -> Refusal | None:
    """Why the pod is refused, None where it fits. `others`: the pods that are active on the node.

    `unseen` is in use by what the API does not show. Quantities are Kubernetes'; the message counts cpu in thousandths.
    """
    used = amounts(unseen)
    for each in others:
        used["pods"] = used.get("pods", 0) + 1
        for resource, value in pod_requests(each).items():
            used[resource] = used.get(resource, 0) + value
    capacity = amounts(allocatable)
    wanted = pod_requests(pod) | {"pods": 1}
    for resource in _REASONS:
        asked, taken, most = wanted.get(resource, 0), used.get(resource, 0), capacity.get(resource, 0)
        if asked > 0 and asked > most - taken:
            return Refusal(
                f"OutOf{resource}",
                f"Node didn't have enough resource: {resource}, requested: {asked}, used: {taken}, capacity: {most}",
            )
    return None
