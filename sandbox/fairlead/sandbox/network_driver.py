"""A stand-in for DRANET on one node: the NICs beside the GPUs of a profile, in that driver's form, and what kubelet asks of it.

Each GPU has a NIC with RDMA under its PCIe root, as the servers of the profiles do, and the node has one without RDMA. DRANET sorts them by name,
which is the PCI address: here the NIC of the last GPU comes first, so that only attributes say which belongs to which.
DRANET attaches interfaces by the runtime's NRI, so that its answer to kubelet names no CDI device; it takes a claim of one pod only.
Source: kubernetes-sigs/dranet f258477, pkg/driver/dra_hooks.go, pkg/apis/attributes.go, pkg/inventory/db.go, examples/distributed_training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from fairlead.sandbox.stand_in import Json, StandIn, simulated

DRANET: Final = "dra.net"
_ROOT, _NUMA = "resource.kubernetes.io/pcieRoot", "resource.kubernetes.io/numaNode"
_DOMAIN: Final = 0xFFFF  # PCI domains of the NICs, downwards, where the profiles' GPUs have none


class NetworkDriver(StandIn):
    driver = DRANET

    def devices(self) -> list[list[Json]]:
        gpus = [device for devices in simulated(self.profile, self.node) for device in devices]
        beside = [each["attributes"] for each in gpus if each.get("attributes", {}).get("type") == {"string": "gpu"}]
        nics = [_rdma(number, gpu, address=_DOMAIN - number) for number, gpu in enumerate(beside)]
        return [sorted([*nics, _nic("0000:00:02.0", "eth1", rdma=False)], key=lambda nic: str(nic["name"]))]

    async def prepare(self, claim: Json, results: Sequence[Mapping[str, Any]]) -> list[Json]:
        consumers = claim["status"].get("reservedFor") or []
        if len(consumers) != 1 or consumers[0]["resource"] != "pods":
            raise ValueError(f"driver only supports one pod per claim, got {len(consumers)} consumers")
        return []

    def unprepare(self, uid: str) -> None:
        """The runtime takes the interfaces back when the pod's sandbox ends."""


def _rdma(number: int, gpu: Json, *, address: int) -> Json:
    """The NIC beside that GPU; `address`: its PCI domain."""
    attributes: Json = {"rdmaDevice": {"string": f"mlx5_{number}"}, "mtu": {"int": 9000}}
    if _NUMA in gpu:
        attributes["numaNode"] = gpu[_NUMA]
    device = _nic(f"{address:04x}:00:00.0", f"rdma{number}", rdma=True, **attributes)
    device["attributes"] |= {name: gpu[name] for name in (_ROOT, _NUMA) if name in gpu}
    return device


def _nic(address: str, interface: str, *, rdma: bool, **more: Json) -> Json:
    attributes: Json = {
        "ifName": {"string": interface},
        "pciAddress": {"string": address},
        "rdma": {"bool": rdma},
        "state": {"string": "up"},
        "type": {"string": "device"},
        "virtual": {"bool": False},
        **more,
    }
    name = "pci-" + address.replace(":", "-").replace(".", "-")
    return {"name": name, "attributes": {f"{DRANET}/{key}": value for key, value in attributes.items()}}
