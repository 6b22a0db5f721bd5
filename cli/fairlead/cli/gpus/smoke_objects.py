"""The objects of `fairlead smoke`, a claim for certain devices and the pod that looks at them; and the verdict on what its container saw. Pure.

The check runs in the container's shell and writes what it sees as the container's termination message, which needs no right to
read logs: a line for each variable that the driver sets (FAIRLEAD_DEVICE_GPU_3=<UUID>), for each device node, for each GPU that
`nvidia-smi -L` lists, and the bus bandwidth where nccl-tests is in the image.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fairlead.api import names
from fairlead.kube.resources import Raw

LABEL: Final = "fairlead.dev/smoke"
"""On claims and pods: the run, as <node>.<number>; what an earlier run of the node left is found by it."""
NODE_LABEL: Final = "fairlead.dev/smoke-node"
IMAGE: Final = "docker.io/nvidia/cuda:12.8.1-base-ubuntu24.04"

_LOOK: Final = """\
env | grep ^FAIRLEAD_DEVICE_ >> /dev/termination-log
for node in /dev/nvidia[0-9]*; do [ -e "$node" ] && echo "node=$node" >> /dev/termination-log; done
if command -v nvidia-smi > /dev/null; then
  nvidia-smi -L > /tmp/smi 2>&1 || echo "smi-failed=$(head -c 200 /tmp/smi | tr '\\n' ' ')" >> /dev/termination-log
  sed -n 's/.*(UUID: \\([A-Za-z0-9-]*\\)).*/smi=\\1/p' /tmp/smi >> /dev/termination-log
fi
"""
_BANDWIDTH: Final = """\
for tool in "$(command -v all_reduce_perf)" /opt/nccl-tests/build/all_reduce_perf /opt/nccl_tests/build/all_reduce_perf; do
  if [ -x "$tool" ]; then
    "$tool" -b 256M -e 1G -f 4 -g COUNT > /tmp/nccl 2>&1 || echo "nccl-failed=$(tail -c 200 /tmp/nccl | tr '\\n' ' ')" >> /dev/termination-log
    sed -n 's/.*Avg bus bandwidth *: *\\([0-9.]*\\).*/busbw=\\1/p' /tmp/nccl >> /dev/termination-log
    break
  fi
done
"""


def script(count: int, also: str = "") -> str:
    """What the container runs; `also` is a command whose failure fails the check. It ends with 0: the verdict is the caller's."""
    text = _LOOK + (_BANDWIDTH.replace("COUNT", str(count)) if count > 1 else "")
    if also:
        text += f"if ( {also}\n) > /tmp/also 2>&1; then echo also=ok; else echo \"also-failed=$(tail -c 400 /tmp/also | tr '\\n' ' ')\"; fi"
        text += " >> /dev/termination-log\n"
    return text + "exit 0\n"


def claim(name: str, namespace: str, labels: Mapping[str, str], uuids: Sequence[str], *, mig: bool) -> Raw:
    """A claim for exactly the devices with these UUIDs."""
    listed = ", ".join(f'"{uuid}"' for uuid in uuids)
    request = {
        "deviceClassName": names.MIG_CLASS if mig else names.GPU_CLASS,
        "count": len(uuids),
        "selectors": [{"cel": {"expression": f'device.attributes["{names.DRIVER}"].uuid in [{listed}]'}}],
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": namespace, "labels": dict(labels)},
        "spec": {"devices": {"requests": [{"name": "devices", "exactly": request}]}},
    }


def pod(
    name: str,
    namespace: str,
    labels: Mapping[str, str],
    *,
    image: str,
    command: str,
    queue: str | None,
    deadline_s: int,
) -> Raw:
    """A pod with the claim of its name. It tolerates every taint of nodes, and ends at the deadline even if this command is killed."""
    metadata: dict[str, Any] = {"name": name, "namespace": namespace, "labels": dict(labels)}
    if queue is not None:
        metadata["annotations"] = {names.QUEUE: queue}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            "restartPolicy": "Never",
            "activeDeadlineSeconds": deadline_s,
            "terminationGracePeriodSeconds": 5,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "tolerations": [{"operator": "Exists"}],
            "resourceClaims": [{"name": "devices", "resourceClaimName": name}],
            "containers": [
                {
                    "name": "check",
                    "image": image,
                    "command": ["/bin/sh", "-c", command],
                    "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "claims": [{"name": "devices"}]},
                }
            ],
        },
    }


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """`ok`; `detail` says what was wrong, or what was checked. `bus_gb_s` is NCCL's mean bus bandwidth, in GB/s."""

    ok: bool
    detail: str
    bus_gb_s: float | None = None


def verdict(message: str, allocated: Mapping[str, str]) -> Verdict:
    """`message` is the container's termination message, `allocated` the UUIDs by device's name."""
    seen = [line.partition("=")[::2] for line in message.splitlines()]
    variables = {value for key, value in seen if key.startswith("FAIRLEAD_DEVICE_")}
    nodes = [value for key, value in seen if key == "node"]
    listed = {value for key, value in seen if key == "smi"}
    wanted = set(allocated.values())
    names = {uuid: name for name, uuid in allocated.items()}

    def named(uuids: set[str]) -> str:
        return ", ".join(sorted(names.get(uuid, uuid) for uuid in uuids))

    wrong = [f"{key.removesuffix('-failed')}: {value.strip()}" for key, value in seen if key.endswith("-failed")]
    if variables != wanted:
        wrong.append(_difference("its environment has", variables, wanted, named))
    if listed:
        # Of a MIG device nvidia-smi lists the GPU, too.
        mig = any(uuid.startswith("MIG-") for uuid in wanted)
        visible = {uuid for uuid in listed if uuid.startswith("MIG-")} if mig else listed
        if visible != wanted:
            wrong.append(_difference("nvidia-smi lists", visible, wanted, named))
    if wrong:
        return Verdict(ok=False, detail="; ".join(wrong))
    checked = ["environment"] + (["nvidia-smi"] if listed else []) + (["device nodes"] if nodes else [])
    checked += ["command"] if ("also", "ok") in seen else []
    return Verdict(ok=True, detail=f"as allocated: {', '.join(checked)}", bus_gb_s=_bandwidth(seen))


def _difference(what: str, seen: set[str], wanted: set[str], named: Callable[[set[str]], str]) -> str:
    parts = [f"not {named(wanted - seen)}"] if wanted - seen else []
    parts += [f"{named(seen - wanted)}, which is not allocated"] if seen - wanted else []
    return f"{what} {' and '.join(parts)}"


def _bandwidth(seen: list[tuple[str, str]]) -> float | None:
    for key, value in seen:
        if key == "busbw":
            try:
                return float(value)
            except ValueError:
                return None
    return None
