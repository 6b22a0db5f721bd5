"""The lists of an apiserver, made up.

Nodes have eight GPUs in two NVLink islands; every fifth node has MIG-capable GPUs, one of them cut; some GPUs are tainted, idle,
or starting. Gangs run on what is held, and `waiting` more wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairlead.api import names, repair
from fairlead.engine.explain.explainer import explanation
from fairlead.engine.types.reasons import Code, Holder, Reason
from fairlead.kube import timestamps
from fairlead.kube.device_usage import DeviceUsage
from fairlead.kube.resources import Raw
from tests.support.engine.objects import claim_spec, device_request, gpu, mig_gpu, slice_of

NOW = 1_800_000_000.0
GPUS = 8
Lists = dict[str, list[Raw]]
REASON = Reason(
    code=Code.NO_DEVICES,
    message="8 wanted, 3 free",
    advice="wait until gangs end",
    could_ever_fit=True,
    holders=(Holder(gang="team-0/run-0", queue="queue-0", devices=8), Holder(gang="", queue="", devices=2)),
)


def empty() -> Lists:
    kinds = (
        "events",
        "gangs",
        "pods",
        "queues",
        "resourceclaims",
        "nodes",
        "resourceslices",
        "deviceclasses",
        "devicetaintrules",
    )
    return {kind: [] for kind in kinds}


def a_cluster(nodes: int = 6, *, waiting: int = 4, queues: int = 5, mig_every: int = 5) -> Lists:
    found = empty()
    found["deviceclasses"] = [{"metadata": {"name": names.GPU_CLASS}, "spec": {}}]
    found["queues"] = [
        queue("all", deserved=nodes * GPUS),
        *(queue(f"queue-{at}", parent="all") for at in range(queues)),
    ]
    for number in range(nodes):
        _add_node(found, number, queues=queues, mig=mig_every > 0 and number % mig_every == mig_every - 1)
    for number in range(waiting):
        found["gangs"].append(
            gang(
                f"wait-{number:05}",
                f"team-{number % queues}",
                queue=f"queue-{number % queues}",
                position=number + 1,
                why=explanation(REASON),
                forecast={
                    "p50": timestamps.seconds(NOW + 600),
                    "p90": timestamps.seconds(NOW + 3600),
                    "because": "32 samples",
                    "asOf": timestamps.seconds(NOW - 30),
                },
            )
        )
    return found


def _add_node(found: Lists, number: int, *, queues: int, mig: bool) -> None:
    name = f"node-{number:03}"
    found["nodes"].append(node(name, ready=number % 97 != 13))
    tainted: dict[str, Any] = {"taints": [{"key": f"{names.DRIVER}/xid", "value": "79", "effect": "NoExecute"}]}
    if mig:
        made = [mig_gpu(at) for at in range(GPUS)]
        found["resourceslices"] += slice_of(
            name, [each for devices, _ in made for each in devices], counters=[sets for _, sets in made]
        )
    else:
        devices = [
            gpu(at, island=at // 4, **(tainted if (number, at) in {(1, 7), (61, 3)} else {})) for at in range(GPUS)
        ]
        found["resourceslices"] += slice_of(name, devices)
    team = number % queues
    if mig:
        hold(found, f"mig-{number}", team, name, ["gpu-0-mig-3g-40gb-4", "gpu-0-mig-1g-10gb-0", "gpu-1"])
    elif number % 7 == 3:
        hold(found, f"run-{number}", team, name, [f"gpu-{at}" for at in range(4)], phase="Pending")
    elif number % 7 != 5:
        hold(
            found,
            f"run-{number}",
            team,
            name,
            [f"gpu-{at}" for at in range(8 if number % 3 == 0 else 6)],
            idle=number % 7 == 2,
        )


def hold(
    found: Lists, name: str, team: int, on: str, devices: Sequence[str], *, phase: str = "Running", idle: bool = False
) -> None:
    """A gang whose pods hold a device each."""
    namespace = f"team-{team}"
    running = phase == "Running"
    found["gangs"].append(
        gang(
            name,
            namespace,
            queue=f"queue-{team}",
            size=len(devices),
            phase="Running" if running else "Admitted",
            nodes=[on],
            ready=len(devices) if running else 0,
        )
    )
    for at, device in enumerate(devices):
        made = pod(f"{name}-{at}", namespace, gang=name, node=on, phase=phase, claim=f"{name}-{at}-gpu")
        found["pods"].append(made)
        found["resourceclaims"].append(claim(f"{name}-{at}-gpu", namespace, made, on, device, idle=idle))


def node(name: str, *, ready: bool = True) -> Raw:
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {},
        "status": {
            "allocatable": {"cpu": "64", "memory": "512Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }


def pod(name: str, namespace: str, *, gang: str, node: str, phase: str, claim: str) -> Raw:
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"{namespace}-{name}",
            "annotations": {names.GANG: gang},
        },
        "spec": {
            "nodeName": node,
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "4"}}}],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": claim}],
        },
        "status": {"phase": phase},
    }


def claim(name: str, namespace: str, holder: Raw, node: str, device: str, *, idle: bool = False) -> Raw:
    result = {"request": "r0", "driver": names.DRIVER, "pool": node, "device": device}
    usage = DeviceUsage(
        state="Idle" if idle else "Busy",
        since_s=NOW - 3600,
        sampled_at_s=NOW - 10,
        utilization_percent=0 if idle else 90,
    )
    said = [{"driver": names.DRIVER, "pool": node, "device": device, "data": usage.to_json()}]
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}"},
        "spec": claim_spec(device_request()),
        "status": {
            "allocation": {
                "devices": {"results": [result]},
                "allocationTimestamp": timestamps.seconds(NOW - 800),
            },
            "reservedFor": [{"resource": "pods", "name": holder["metadata"]["name"], "uid": holder["metadata"]["uid"]}],
            "devices": said,
        },
    }


def gang(name: str, namespace: str, *, phase: str = "Waiting", size: int = 8, ready: int = 0, **status: Any) -> Raw:
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"{namespace}-{name}",
            "creationTimestamp": timestamps.seconds(NOW - 900),
        },
        "spec": {"size": size},
        "status": {
            "phase": phase,
            "reason": "NoDevices" if phase == "Waiting" else "MembersRun",
            "members": size,
            "ready": ready,
            **status,
        },
    }


def drained(node: str, device: str) -> Raw:
    """The rule that `fairlead device drain` makes of a device."""
    selector = {"driver": names.DRIVER, "pool": node, "device": device}
    taint = {"key": repair.DRAIN_TAINT, "effect": "NoSchedule"}
    return {"metadata": {"name": f"drained-{node}-{device}"}, "spec": {"deviceSelector": selector, "taint": taint}}


def event(gang: Raw, reason: str, message: str, *, ago_s: float = 60.0, count: int = 1, warning: bool = False) -> Raw:
    meta = gang["metadata"]
    return {
        "metadata": {"name": f"{meta['name']}.{reason}", "namespace": meta["namespace"]},
        "involvedObject": {"kind": "Gang", "namespace": meta["namespace"], "name": meta["name"]},
        "type": "Warning" if warning else "Normal",
        "reason": reason,
        "message": message,
        "count": count,
        "lastTimestamp": timestamps.seconds(NOW - ago_s),
    }


def queue(name: str, *, parent: str | None = None, deserved: int = 8, used: int = 10) -> Raw:
    return {
        "metadata": {"name": name},
        "spec": {"flavors": [{"flavor": "h100", "deserved": deserved, "limit": 4 * deserved}]}
        | ({"parent": parent} if parent else {}),
        "status": {
            "running": 2,
            "waiting": 1,
            "usage": [{"flavor": "h100", "allocated": used, "demand": used + 6, "fairShare": deserved + 1}],
        },
    }
