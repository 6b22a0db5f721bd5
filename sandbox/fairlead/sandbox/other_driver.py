"""A stand-in for NVIDIA's DRA driver on one node: slices in that driver's form, and what kubelet asks of a driver.

Fairlead leaves devices of other drivers to them, so a cluster of theirs needs one that answers kubelet. This one publishes the simulated
GPUs of a profile (`as_nvidia`) and prepares what the claim's allocation names: a CDI spec per claim, as that driver writes it, with the
GPUs' device nodes. It refuses a device that another claim has prepared. It knows the kinds of configs, and no sharing, which is behind
feature gates that are off by default; no health, nothing survives it.

What Fairlead decides must not depend on which driver publishes. Names and capacities of GPUs and MIG devices are the same in both
drivers; what only ours has is left out, and NVLink shows as that driver shows it: with its gate FabricManagerPartitioning each GPU names
the fabric partitions of 2, 4 and 8 GPUs that it belongs to. An HGX of eight GPUs in one NVLink island has partition8 1; partition4 2 and
3; partition2 4 to 7.
Source: kubernetes-sigs/dra-driver-nvidia-gpu 0.5, cmd/gpu-kubelet-plugin (driver.go, cdi.go, deviceinfo.go, mig.go).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from fairlead.api.drivers import DRIVERS, NVIDIA, attributes_of
from fairlead.api.names import DRIVER
from fairlead.kube.client import Client
from fairlead.sandbox.stand_in import Json, StandIn, simulated

_CONFIGS: Final = frozenset(("resource.nvidia.com/v1beta1", kind) for kind in ("GpuConfig", "MigDeviceConfig"))
_GATES: Final = {"TimeSlicing": "TimeSlicingSettings", "MPS": "MPSSupport"}


class OtherDriver(StandIn):
    """A subclass is another driver that gives containers device nodes by CDI: its devices, and what it checks."""

    driver = NVIDIA

    def __init__(self, client: Client, *, node: str, profile: str, cdi_dir: Path) -> None:
        super().__init__(client, node=node, profile=profile)
        self._cdi_dir = cdi_dir

    def devices(self) -> list[list[Json]]:
        return [as_nvidia(devices) for devices in simulated(self.profile, self.node)]

    def device_node(self, device: str) -> str:
        return f"/dev/nvidia{device.split('-')[1]}"

    async def check(self, allocation: Mapping[str, Any]) -> None:
        """Whether the devices of a claim's allocation can be prepared now. Raises ValueError, and errors of the API."""
        _check_configs(allocation.get("config") or ())

    async def prepare(self, claim: Json, results: Sequence[Mapping[str, Any]]) -> list[Json]:
        await self.check(claim["status"]["allocation"]["devices"])
        uid = claim["metadata"]["uid"]
        self._write(uid, results)
        return [
            {
                "request_names": [each["request"]],
                "pool_name": each["pool"],
                "device_name": each["device"],
                "cdi_device_ids": [f"{self._kind}={uid}-{each['device']}"],
            }
            for each in results
        ]

    def unprepare(self, uid: str) -> None:
        self._spec_file(uid).unlink(missing_ok=True)

    def _write(self, uid: str, results: Iterable[Mapping[str, Any]]) -> None:
        spec = {
            "cdiVersion": "0.6.0",
            "kind": self._kind,
            "containerEdits": {"env": ["NVIDIA_VISIBLE_DEVICES=void"]},
            "devices": [
                {
                    "name": f"{uid}-{each['device']}",
                    "containerEdits": {
                        "deviceNodes": [{"path": self.device_node(each["device"]), "hostPath": "/dev/null"}]
                    },
                }
                for each in results
            ],
        }
        path = self._spec_file(uid)
        draft = path.with_suffix(".tmp")
        draft.write_text(json.dumps(spec))
        draft.replace(path)

    @property
    def _kind(self) -> str:
        return f"k8s.{self.driver}/claim"

    def _spec_file(self, uid: str) -> Path:
        return self._cdi_dir / f"k8s.{self.driver}-claim_{uid}.json"


def _check_configs(configs: Iterable[Mapping[str, Any]]) -> None:
    """Kinds that the driver knows, and of ways to share those that its feature gates leave on. Raises ValueError."""
    for each in configs:
        opaque = each.get("opaque") or {}
        if opaque.get("driver") != NVIDIA:
            continue
        parameters = opaque.get("parameters") or {}
        if (parameters.get("apiVersion"), parameters.get("kind")) not in _CONFIGS:
            raise ValueError(f"config of {parameters.get('apiVersion')}, kind {parameters.get('kind')}: is unknown")
        strategy = (parameters.get("sharing") or {}).get("strategy")
        if strategy is not None:
            raise ValueError(f"sharing strategy {strategy}: feature gate {_GATES.get(strategy)} is off")


_OURS: Final = frozenset(
    [
        "nvlinkDomain",
        "nvlinkLinks",
        "nvlinkVersion",
        "nvlinkPeers",
        "nvlinkClique",
        "migCapable",
        "parentIndex",
        "resourceName",
    ]
)
_CLASSES: Final = (("gpu.nvidia.com", "gpu"), ("mig.nvidia.com", "mig"))


def as_nvidia(devices: Iterable[Mapping[str, Any]]) -> list[Json]:
    """A node's devices, in the form of gpu.nvidia.com. Devices as in ResourceSlices, of our driver."""
    made = [{**device, "attributes": dict(device.get("attributes") or {})} for device in devices]
    islands: dict[str, list[Json]] = {}
    for device in made:
        island = device["attributes"].get("nvlinkDomain")
        if island is not None:
            islands.setdefault(str(island), []).append(device)
    for device in made:
        device["attributes"] = {name: value for name, value in device["attributes"].items() if name not in _OURS}
    for size, name in attributes_of(NVIDIA).islands:
        _partition(islands.values(), size, name)
    return made


def _partition(islands: Iterable[Sequence[Json]], size: int, name: str) -> None:
    """Give each GPU the number of its fabric partition of so many GPUs. Numbers are the node's, over all sizes."""
    number = 8 // size  # larger partitions have lower numbers: 1; 2 and 3; 4 to 7
    for devices in islands:
        for start in range(0, len(devices) - size + 1, size):
            for device in devices[start : start + size]:
                device["attributes"][name] = {"int": number}
            number += 1


def classes() -> list[Json]:
    """The DeviceClasses that NVIDIA's chart installs, as far as pods use them."""
    found = []
    for name, kind in _CLASSES:
        expression = f"device.driver == '{NVIDIA}' && device.attributes['{NVIDIA}'].type == '{kind}'"
        head = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}}
        found.append(head | {"spec": {"selectors": [{"cel": {"expression": expression}}]}})
    return found


def for_driver(text: str, driver: str, *, gpus: int) -> str:
    """A manifest of ours for another driver: its classes, its domain, and the attribute by which so many GPUs are joined.

    A clique is what GPU feature discovery writes on the node: NVIDIA's driver publishes no attribute of it.

    What a user who follows docs/migration.md writes. Raises KeyError for a driver that is not known.
    """
    known = DRIVERS[driver]
    for ours, theirs in (
        (f"{DRIVER}/nvlinkDomain", known.island(gpus)),
        (f"{DRIVER}/nvlinkClique", "nvidia.com/gpu.clique"),
        (f"mig.{DRIVER}", known.part_class),
        (DRIVER, known.driver),
    ):
        text = text.replace(ours, theirs)
    return text
