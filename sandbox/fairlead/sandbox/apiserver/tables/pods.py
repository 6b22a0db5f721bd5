"""The table of pods, whose status column depends on conditions, containers and init containers.

Source: printPod in pkg/printers/internalversion/printers.go (1.36).
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.apiserver.tables import AGE, NAME, NONE, Col, Table, age_of, name_of, parse_time, since

READINESS_GATES_DOC = (
    "If specified, all readiness gates will be evaluated for pod readiness. A pod is ready when all its containers are "
    'ready AND all conditions specified in the readiness gates have status equal to "True" More info: '
    "https://git.k8s.io/enhancements/keps/sig-network/580-pod-readiness-gates"
)


def _cells(pod: Json, now: datetime) -> list[Any]:
    spec, status, meta = pod.get("spec", {}), pod.get("status", {}), pod.get("metadata", {})
    total = len(spec.get("containers") or [])
    restarts, last_restart, ready = 0, None, 0
    reason = status.get("reason") or status.get("phase", "")
    if any(
        c.get("type") == "PodScheduled" and c.get("reason") == "SchedulingGated" for c in status.get("conditions") or []
    ):
        reason = "SchedulingGated"

    initializing, reason, sidecar_restarts = _init_reason(spec, status, reason)
    if not initializing:
        restarts = sidecar_restarts
        has_running = False
        for one in reversed(status.get("containerStatuses") or []):
            restarts += one.get("restartCount", 0)
            finished = (one.get("lastState") or {}).get("terminated", {}).get("finishedAt")
            if finished and (last_restart is None or parse_time(finished) > parse_time(last_restart)):
                last_restart = finished
            state = one.get("state") or {}
            waiting, terminated = state.get("waiting"), state.get("terminated")
            if waiting is not None and waiting.get("reason"):
                reason = waiting["reason"]
            elif terminated is not None and terminated.get("reason"):
                reason = terminated["reason"]
            elif terminated is not None:
                signal = terminated.get("signal")
                reason = f"Signal:{signal}" if signal else f"ExitCode:{terminated.get('exitCode', 0)}"
            elif one.get("ready") and state.get("running") is not None:
                has_running = True
                ready += 1
        if reason == "Completed" and has_running:
            reason = "Running" if _has_condition(status, "Ready") else "NotReady"
    if meta.get("deletionTimestamp"):
        reason = "Unknown" if status.get("reason") == "NodeLost" else "Terminating"

    shown = str(restarts)
    if restarts and last_restart:
        shown = f"{restarts} ({since(last_restart, now)} ago)"
    gates = spec.get("readinessGates") or []
    met = sum(1 for gate in gates if _has_condition(status, gate.get("conditionType", "")))
    ips = status.get("podIPs") or []
    return [
        name_of(pod),
        f"{ready}/{total}",
        reason,
        shown,
        age_of(pod, now),
        ips[0].get("ip", NONE) if ips else status.get("podIP") or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        f"{met}/{len(gates)}" if gates else NONE,
    ]


def _init_reason(spec: Json, status: Json, reason: str) -> tuple[bool, str, int]:
    """Whether an init container is not done, the status that it shows, and restarts."""
    inits = spec.get("initContainers") or []
    sidecars = {c.get("name") for c in inits if c.get("restartPolicy") == "Always"}
    restarts = 0
    for index, one in enumerate(status.get("initContainerStatuses") or []):
        state = one.get("state") or {}
        terminated, waiting = state.get("terminated"), state.get("waiting")
        if one.get("name") in sidecars:
            restarts += one.get("restartCount", 0)
            if one.get("started"):
                continue
        if terminated is not None:
            if terminated.get("exitCode", 0) == 0:
                continue
            said = terminated.get("reason") or (
                f"Signal:{terminated['signal']}" if terminated.get("signal") else f"ExitCode:{terminated['exitCode']}"
            )
            return True, f"Init:{said}", restarts
        if waiting is not None and waiting.get("reason") and waiting["reason"] != "PodInitializing":
            return True, f"Init:{waiting['reason']}", restarts
        return True, f"Init:{index}/{len(inits)}", restarts
    return False, reason, restarts


def _has_condition(status: Json, type_: str) -> bool:
    return any(c.get("type") == type_ and c.get("status") == "True" for c in status.get("conditions") or [])


PODS = Table(
    (
        NAME,
        Col("Ready", "The aggregate readiness state of this pod for accepting traffic."),
        Col("Status", "The aggregate status of the containers in this pod."),
        Col(
            "Restarts",
            "The number of times the containers in this pod have been restarted and when the last container in this "
            "pod has restarted.",
        ),
        AGE,
        Col("IP", "V1PodStatus.podIP", wide=True),
        Col("Node", "V1PodSpec.nodeName", wide=True),
        Col("Nominated Node", "V1PodStatus.nominatedNodeName", wide=True),
        Col("Readiness Gates", READINESS_GATES_DOC, wide=True),
    ),
    _cells,
)
