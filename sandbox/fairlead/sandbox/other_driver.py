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

import contextlib
import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import grpc.aio
import msgspec

from fairlead.api.drivers import DRIVERS, NVIDIA, attributes_of
from fairlead.api.names import DRIVER
from fairlead.driver.backend import factory
from fairlead.driver.kubelet import protocol
from fairlead.driver.kubelet.protocol import dra_v1_pb2
from fairlead.driver.kubelet.server import RegistrationService, plugin_paths
from fairlead.driver.publish import slices
from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.resources import RESOURCE_CLAIMS, RESOURCE_SLICES, raw

_GRACE_S: Final = 1.0
_CONFIGS: Final = frozenset(("resource.nvidia.com/v1beta1", kind) for kind in ("GpuConfig", "MigDeviceConfig"))
_GATES: Final = {"TimeSlicing": "TimeSlicingSettings", "MPS": "MPSSupport"}


class OtherDriver:
    """`driver.running(...)` serves one node while the block lasts. A subclass is another driver: its devices, and what it checks."""

    driver = NVIDIA

    def __init__(self, client: Client, *, node: str, profile: str, cdi_dir: Path) -> None:
        self.client = client
        self.node = node
        self._profile = profile
        self._cdi_dir = cdi_dir
        self._prepared: dict[str, tuple[str, ...]] = {}  # claim UID: its devices

    @contextlib.asynccontextmanager
    async def running(self, *, plugins_dir: Path, registry_dir: Path) -> AsyncIterator[OtherDriver]:
        """Its slices are published and its sockets listen; kubelet registers it then."""
        paths = plugin_paths(driver=self.driver, plugins_dir=plugins_dir, registry_dir=registry_dir, pod_uid=None)
        paths.data.mkdir(parents=True, exist_ok=True)
        await self._publish()
        async with contextlib.AsyncExitStack() as stack:
            dra, registrar = grpc.aio.server(), grpc.aio.server()
            protocol.DRA[protocol.DRA_V1].serve(self, dra)
            protocol.REGISTRATION.serve(_Registration(driver=self.driver, endpoint=str(paths.dra)), registrar)
            for server, path in ((dra, paths.dra), (registrar, paths.registration)):
                server.add_insecure_port(f"unix:{path}")
                await server.start()
                stack.push_async_callback(server.stop, _GRACE_S)
                stack.callback(path.unlink, missing_ok=True)
            yield self

    def devices(self) -> list[list[Json]]:
        """Of each slice."""
        backend = factory.open_backend(f"simulated:{self._profile}", node=self.node, data=None)
        try:
            return [as_nvidia(msgspec.to_builtins(each.devices)) for each in slices.build(backend.inventory()).slices]
        finally:
            backend.close()

    def device_node(self, device: str) -> str:
        return f"/dev/nvidia{device.split('-')[1]}"

    async def check(self, allocation: Mapping[str, Any]) -> None:
        """Whether the devices of a claim's allocation can be prepared now. Raises ValueError, and errors of the API."""
        _check_configs(allocation.get("config") or ())

    async def _publish(self) -> None:
        made_of = self.devices()
        pool = {"name": self.node, "generation": 1, "resourceSliceCount": len(made_of)}
        for number, devices in enumerate(made_of):
            spec: Json = {"driver": self.driver, "nodeName": self.node, "pool": pool, "devices": devices}
            name = f"{self.node}-{self.driver}-{number}"
            made = {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceSlice",
                "metadata": {"name": name},
                "spec": spec,
            }
            await self.client.create(raw(RESOURCE_SLICES), made)

    # -- what kubelet calls ----------------------------------------------------------------------------------------

    async def NodePrepareResources(self, request: Any, context: object) -> Any:  # noqa: N802
        response: Any = dra_v1_pb2.NodePrepareResourcesResponse()
        for ref in request.claims:
            entry = response.claims[ref.uid]
            try:
                allocation = await self._allocation(ref)
                results = self._results(allocation)
                await self.check(allocation)
                self._prepare(ref.uid, results)
            except (errors.ApiError, ValueError) as error:
                entry.error = str(error)
                continue
            for result in results:
                entry.devices.add(
                    request_names=[result["request"]],
                    pool_name=result["pool"],
                    device_name=result["device"],
                    cdi_device_ids=[f"{self._kind}={ref.uid}-{result['device']}"],
                )
        return response

    async def NodeUnprepareResources(self, request: Any, context: object) -> Any:  # noqa: N802
        response: Any = dra_v1_pb2.NodeUnprepareResourcesResponse()
        for ref in request.claims:
            self._prepared.pop(ref.uid, None)
            self._spec_file(ref.uid).unlink(missing_ok=True)
            response.claims[ref.uid].SetInParent()
        return response

    async def _allocation(self, ref: Any) -> Mapping[str, Any]:
        """The devices and configs of the claim's allocation. Raises ValueError, and errors of the API."""
        claim = await self.client.get(raw(RESOURCE_CLAIMS), ref.name, ref.namespace)
        where = f"ResourceClaim {ref.namespace}/{ref.name}"
        if claim["metadata"]["uid"] != ref.uid:
            raise ValueError(f"{where}: was recreated; kubelet asks for UID {ref.uid}")
        allocation = (claim.get("status") or {}).get("allocation")
        if allocation is None:
            raise ValueError(f"{where}: is not allocated")
        found: Mapping[str, Any] = allocation["devices"]
        return found

    def _results(self, devices: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """What of them is this driver's, on this node."""
        return [each for each in devices["results"] if each["driver"] == self.driver and each["pool"] == self.node]

    def _prepare(self, uid: str, results: list[Mapping[str, Any]]) -> None:
        wanted = tuple(each["device"] for each in results if not each.get("adminAccess"))
        for other, devices in self._prepared.items():
            if other != uid and (both := sorted({*devices} & {*wanted})):
                raise ValueError(f"device {both[0]} is prepared for claim {other} already")
        self._prepared[uid] = wanted
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


class _Registration(RegistrationService):
    async def GetInfo(self, request: object, context: object) -> Any:  # noqa: N802
        """It serves no health stream and no older version."""
        info = await super().GetInfo(request, context)
        del info.supported_versions[:]
        info.supported_versions.append(protocol.DRA_V1)
        return info


Json = dict[str, Any]
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
