"""GPUs, slices, claims and gangs as raw JSON or as the core's requests, for tests, benchmarks and docs.

A test states what matters to it and nothing else. Devices have the attributes that our driver publishes, as far as
decisions read them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from fairlead.api import names
from fairlead.engine.types.gangs import ClaimRequest, GangRequest, PendingMember
from fairlead.engine.types.pods import PodNeeds
from fairlead.engine.types.values import PodRef
from fairlead.kube import core, resource

Json = dict[str, Any]
GPU = names.GPU_CLASS
MIG = names.MIG_CLASS
# (profile, memory slices it takes of 8, compute slices of 7, starts), as an 80 GB A100 or H100 has them.
MIG_PROFILES: Sequence[tuple[str, int, int, tuple[int, ...]]] = (
    ("1g.10gb", 1, 1, (0, 1, 2, 3, 4, 5, 6)),
    ("2g.20gb", 2, 2, (0, 2, 4)),
    ("3g.40gb", 4, 3, (0, 4)),
    ("4g.40gb", 4, 4, (0,)),
    ("7g.80gb", 8, 7, (0,)),
)


def gpu(
    minor: int, *, product: str = "NVIDIA H100 80GB HBM3", island: int | None = 0, memory: str = "80Gi", **more: Any
) -> Json:
    """A whole GPU."""
    attributes: Json = {
        "type": {"string": "gpu"},
        "uuid": {"string": f"GPU-{minor}"},
        "productName": {"string": product},
        names.NUMA_NODE: {"int": minor // 4},
    }
    if island is not None:
        attributes["nvlinkDomain"] = {"int": island}
    return {"name": f"gpu-{minor}", "attributes": attributes, "capacity": {"memory": {"value": memory}}, **more}


def mig_gpu(minor: int, *, product: str = "NVIDIA A100-SXM4-80GB") -> tuple[list[Json], Json]:
    """A MIG-capable GPU: the whole and every placement of every profile, and the counter set that they draw from."""
    slices = {f"memory-slice-{number}": {"value": "1"} for number in range(8)}
    counters: Json = {"name": f"gpu-{minor}-counters", "counters": {"multiprocessors": {"value": "98"}, **slices}}

    def draw(start: int, memory: int, compute: int) -> list[Json]:
        taken = {f"memory-slice-{number}": {"value": "1"} for number in range(start, start + memory)}
        return [
            {
                "counterSet": counters["name"],
                "counters": {"multiprocessors": {"value": str(14 * compute)}, **taken},
            }
        ]

    devices = [gpu(minor, product=product, consumesCounters=draw(0, 8, 7))]
    devices += [
        {
            "name": f"gpu-{minor}-mig-{profile.replace('.', '-')}-{start}",
            "attributes": {
                "type": {"string": "mig"},
                "profile": {"string": profile},
                "parentIndex": {"int": minor},
                "parentUUID": {"string": f"GPU-{minor}"},
                "productName": {"string": product},
            },
            "capacity": {"memory": {"value": f"{10 * memory}Gi"}},
            "consumesCounters": draw(start, memory, compute),
        }
        for profile, memory, compute, starts in MIG_PROFILES
        for start in starts
    ]
    return devices, counters


def slice_of(
    node: str, devices: Sequence[Json], *, counters: Sequence[Json] = (), driver: str = names.DRIVER
) -> list[Json]:
    """The slices of a node's pool: devices 64 at a time, counters 8 sets at a time."""
    parts: list[Json] = [{"devices": list(devices[start : start + 64])} for start in range(0, len(devices), 64)]
    parts += [{"sharedCounters": list(counters[start : start + 8])} for start in range(0, len(counters), 8)]
    return [
        {
            "metadata": {"name": f"{node}-{driver}-{number}"},
            "spec": {
                "driver": driver,
                "nodeName": node,
                "pool": {"name": node, "generation": 1, "resourceSliceCount": len(parts)},
                **part,
            },
        }
        for number, part in enumerate(parts)
    ]


def device_request(count: int = 1, *, device_class: str = GPU, cel: str | Sequence[str] = (), **more: Any) -> Json:
    """One ExactDeviceRequest (or, with `name`, a sub-request)."""
    texts = [text for text in ([cel] if isinstance(cel, str) else cel) if text]
    return {
        "deviceClassName": device_class,
        "count": count,
        **({"selectors": [{"cel": {"expression": text}} for text in texts]} if texts else {}),
        **more,
    }


def claim_spec(*requests: Json, constraints: Sequence[Json] = (), config: Sequence[Json] = ()) -> Json:
    """A claim's spec with requests r0, r1, …; one with `firstAvailable` is a request of its own."""
    named = [
        {"name": f"r{number}", **(entry if "firstAvailable" in entry else {"exactly": entry})}
        for number, entry in enumerate(requests)
    ]
    return {"devices": {"requests": named, "constraints": list(constraints), "config": list(config)}}


def gang(
    name: str,
    size: int,
    spec: Json | None,
    *,
    cpu: str = "1",
    shared: bool = False,
    pod: Json | None = None,
    namespace: str = "ml",
    labels: dict[str, str] | None = None,
    **more: Any,
) -> GangRequest:
    """A gang of alike pods, one claim each, or (shared) one claim for all."""
    body: Json = {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}], **(pod or {})}
    needs = PodNeeds.of(msgspec.convert({"metadata": _metadata(name, namespace, labels), "spec": body}, core.Pod))
    keys = [] if spec is None else [f"{name}-shared"] if shared else [f"{name}-{number}-gpu" for number in range(size)]
    converted = msgspec.convert(spec or {}, resource.ResourceClaimSpec)
    return GangRequest(
        namespace=namespace,
        name=name,
        uid=f"uid-{name}",
        size=size,
        members=tuple(
            PendingMember(
                pod=PodRef(namespace, f"{name}-{number}", f"uid-{name}-{number}"),
                needs=needs,
                claims=() if not keys else (keys[0],) if shared else (keys[number],),
                labels=labels or {},
            )
            for number in range(size)
        ),
        claims=tuple(ClaimRequest(key=key, namespace=namespace, name=key, spec=converted) for key in keys),
        **more,
    )


def with_heads(made: GangRequest, count: int, *, cpu: str = "1", on: dict[str, str] | None = None) -> GangRequest:
    """With as many members without devices, on nodes with the labels `on`; its size is all members'."""
    heads = gang(f"{made.name}-head", count, None, cpu=cpu, pod={"nodeSelector": on or {}}, namespace=made.namespace)
    members = (*heads.members, *made.members)
    return replace(made, size=len(members), members=members)


def one_claim_each(
    namespace: str, pods: Sequence[str], needs: PodNeeds, spec: resource.ResourceClaimSpec
) -> tuple[tuple[PendingMember, ...], tuple[ClaimRequest, ...]]:
    """Pods of these names with a claim each; the UID of a claim is not its pod's, as in a cluster."""
    keys = [f"{pod}-gpu" for pod in pods]
    members = (
        PendingMember(pod=PodRef(namespace, pod, pod), needs=needs, claims=(key,))
        for pod, key in zip(pods, keys, strict=True)
    )
    return tuple(members), tuple(ClaimRequest(key=key, namespace=namespace, name=key, spec=spec) for key in keys)


def _metadata(name: str, namespace: str, labels: dict[str, str] | None) -> Json:
    return {"name": name, "namespace": namespace, "labels": labels or {}}


def plain_json(value: msgspec.Struct) -> Any:
    """A struct as JSON has it: dicts and lists, no tuples."""
    return msgspec.json.decode(msgspec.json.encode(value))
