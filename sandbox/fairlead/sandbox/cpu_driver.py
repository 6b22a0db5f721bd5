"""A stand-in for dra-driver-cpu on one node: the node's CPUs as that driver publishes them, and what kubelet asks of it.

`grouped`, its default: a device for each NUMA node, of which claims consume CPUs (`dra.cpu/cpu`); which CPUs, it chooses when it
prepares the claim, the lowest free ones of the group. `individual`: a device for each CPU, the two threads of a core one after the other.
A claim's container gets the numbers by CDI, in an environment variable. That driver pins the container's threads by the runtime's NRI, and
the others' too; here nothing is pinned. No reserved CPUs, and no lists of PCIe roots, which need the gate DRAListTypeAttributes.
Worked example: 8 CPUs on two NUMA nodes are cores 0, 1 (node 0) and 2, 3 (node 1), whose second threads are 4 to 7; `individual` names
them cpudev000 (CPU 0), cpudev001 (CPU 4), cpudev002 (CPU 1), and so on.
Source: kubernetes-sigs/dra-driver-cpu de98098 (pkg/device, pkg/driver/dra_hooks.go, cdi.go, docs/user/device-attributes.md).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from fairlead.kube.client import Client
from fairlead.kube.quantity import Quantity
from fairlead.sandbox.stand_in import Json, StandIn, simulated

CPUS: Final = "dra.cpu"
_CAPACITY, _NUMA = f"{CPUS}/cpu", "resource.kubernetes.io/numaNode"
_KIND: Final = "dra.k8s.io/cpu"
_SLICE_MAX: Final = 128  # devices

Mode = Literal["grouped", "individual"]


class CpuDriver(StandIn):
    """`cpus`: of the node, an even number for each NUMA node that the profile's GPUs name."""

    driver = CPUS

    def __init__(
        self, client: Client, *, node: str, profile: str, cpus: int, cdi_dir: Path, mode: Mode = "grouped"
    ) -> None:
        super().__init__(client, node=node, profile=profile)
        self._mode, self._cdi_dir = mode, cdi_dir
        self._groups = _groups(cpus, _numa_nodes(profile, node))
        self._taken: dict[str, frozenset[int]] = {}  # claim UID: its CPUs

    def devices(self) -> list[list[Json]]:
        if self._mode == "grouped":
            return [[_group(numa, len(cpus)) for numa, cpus in enumerate(self._groups)]]
        found = [_cpu(number, *where) for number, where in enumerate(self._cores())]
        return [found[start : start + _SLICE_MAX] for start in range(0, len(found), _SLICE_MAX)]

    async def prepare(self, claim: Json, results: Sequence[Mapping[str, Any]]) -> list[Json]:
        uid = claim["metadata"]["uid"]
        if uid not in self._taken:
            self._taken[uid] = self._chosen(results)
        self._write(uid)
        return [
            {
                "request_names": [each["request"]],
                "pool_name": each["pool"],
                "device_name": each["device"],
                "cdi_device_ids": [f"{_KIND}=claim-{uid}"],
            }
            for each in results
        ]

    def unprepare(self, uid: str) -> None:
        self._taken.pop(uid, None)
        self._spec_file(uid).unlink(missing_ok=True)

    def _free(self, uid: str, results: list[Mapping[str, Any]]) -> tuple[str, ...]:
        """Several claims consume of one group; no CPU is in two."""
        return () if self._mode == "grouped" else super()._free(uid, results)

    def _chosen(self, results: Sequence[Mapping[str, Any]]) -> frozenset[int]:
        """The CPUs of a claim that has none yet. Raises ValueError."""
        if self._mode == "individual":
            numbers = {f"cpudev{number:03d}": cpu for number, (cpu, _, _) in enumerate(self._cores())}
            return frozenset(numbers[each["device"]] for each in results)
        taken = {cpu for cpus in self._taken.values() for cpu in cpus}
        chosen: set[int] = set()
        for each in results:
            device, consumed = each["device"], (each.get("consumedCapacity") or {}).get(_CAPACITY)
            if consumed is None:
                raise ValueError(f'CPU capacity "{_CAPACITY}" for device "{device}" is missing')
            wanted = Quantity.of(consumed).exact_int
            if wanted is None or wanted < 1:
                raise ValueError(
                    f'CPU capacity for device "{device}" must be a whole number of 1 or more, got {consumed}'
                )
            group = self._groups[int(device.removeprefix("cpudevnuma"))]
            free = [cpu for cpu in sorted(group) if cpu not in taken | chosen]
            if wanted > len(free):
                raise ValueError(
                    f"not enough cpus available to satisfy request: requested={wanted}, available={len(free)}"
                )
            chosen |= {*free[:wanted]}
        return frozenset(chosen)

    def _cores(self) -> list[tuple[int, int, int]]:
        """Of each CPU its number, its core and its NUMA node, the threads of a core one after the other."""
        found = []
        for numa, cpus in enumerate(self._groups):
            half = len(cpus) // 2
            found += [(cpu, core, numa) for core in cpus[:half] for cpu in (core, core + half * len(self._groups))]
        return found

    def _write(self, uid: str) -> None:
        numbers = ",".join(map(str, sorted(self._taken[uid])))
        edits = {"env": [f"DRA_CPUSET_{uid}={numbers}"]}
        spec = {"cdiVersion": "0.8.0", "kind": _KIND, "devices": [{"name": f"claim-{uid}", "containerEdits": edits}]}
        draft = self._spec_file(uid).with_suffix(".tmp")
        draft.write_text(json.dumps(spec))
        draft.replace(self._spec_file(uid))

    def _spec_file(self, uid: str) -> Path:
        return self._cdi_dir / f"dra.k8s.io-cpu_claim-{uid}.json"


def _numa_nodes(profile: str, node: str) -> int:
    devices = [device for body in simulated(profile, node) for device in body]
    known = [each["attributes"][_NUMA]["int"] for each in devices if _NUMA in each.get("attributes", {})]
    return max(known, default=0) + 1


def _groups(cpus: int, numa_nodes: int) -> list[list[int]]:
    """Of each NUMA node its CPUs, as Linux numbers them: first a thread of each core, then the second ones."""
    cores = cpus // 2
    each = cores // numa_nodes
    return [
        [*range(numa * each, (numa + 1) * each), *range(cores + numa * each, cores + (numa + 1) * each)]
        for numa in range(numa_nodes)
    ]


def _group(numa: int, cpus: int) -> Json:
    return {
        "name": f"cpudevnuma{numa:03d}",
        "attributes": _where(numa) | {f"{CPUS}/numCPUs": {"int": cpus}},
        "capacity": {_CAPACITY: {"value": str(cpus)}},
        "allowMultipleAllocations": True,
    }


def _cpu(number: int, cpu: int, core: int, numa: int) -> Json:
    own: Json = {
        "cacheL3ID": {"int": numa},
        "coreType": {"string": "standard"},
        "coreID": {"int": core},
        "cpuID": {"int": cpu},
    }
    attributes = _where(numa) | {f"{CPUS}/{name}": value for name, value in own.items()}
    return {"name": f"cpudev{number:03d}", "attributes": attributes}


def _where(numa: int) -> Json:
    """One NUMA node a socket. The last two are what the driver still has of its former names."""
    return {
        _NUMA: {"int": numa},
        f"{CPUS}/socketID": {"int": numa},
        f"{CPUS}/smtEnabled": {"bool": True},
        "dra.net/numaNode": {"int": numa},
        f"{CPUS}/numaNodeID": {"int": numa},
    }
