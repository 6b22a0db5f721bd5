"""Helpers for tests of the driver, and of what talks to it: claims, a node without kubelet, kubelet without a node.

Exists so that a crash can be written as `node.crash_at("CDI written")`. Not imported by the programs.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc.aio

from fairlead.api import names
from fairlead.driver.backend.interface import Backend
from fairlead.driver.kubelet import protocol
from fairlead.driver.prepare import cdi
from fairlead.driver.prepare.checkpoint import Checkpoint
from fairlead.driver.prepare.metadata import Metadata
from fairlead.driver.prepare.mps.daemons import Daemons
from fairlead.driver.prepare.preparer import Preparer
from fairlead.kube import objects
from fairlead.kube.resource import Device, ResourceClaim


class Killed(BaseException):
    """The process died here: nothing after it runs, no handler sees it."""


def claim(
    uid: str,
    *devices: str | dict[str, Any],
    pool: str = "n1",
    config: Sequence[dict[str, Any]] = (),
    name: str | None = None,
    namespace: str = "ml",
    driver: str = names.DRIVER,
) -> ResourceClaim:
    """A claim allocated these devices: a device's name (request "gpu"), or a whole result."""
    results = [
        {"request": "gpu", "driver": driver, "pool": pool}
        | (device if isinstance(device, dict) else {"device": device})
        for device in devices
    ]
    return objects.from_dict(ResourceClaim, raw_claim(uid, results, config=config, name=name, namespace=namespace))


def raw_claim(
    uid: str,
    results: Sequence[dict[str, Any]],
    *,
    config: Sequence[dict[str, Any]] = (),
    name: str | None = None,
    namespace: str = "ml",
) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name or f"claim-{uid}", "namespace": namespace, "uid": uid},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": names.GPU_CLASS}}]}},
        "status": {"allocation": {"devices": {"results": list(results), "config": list(config)}}},
    }


def gpu_config(kind: str = "GpuConfig", **fields: object) -> dict[str, Any]:
    """An allocation's config for our driver, from the claim, for all requests."""
    parameters = {"apiVersion": names.CONFIG_API_VERSION, "kind": kind, **fields}
    return {"source": "FromClaim", "opaque": {"driver": names.DRIVER, "parameters": parameters}}


def time_slicing(interval: str) -> dict[str, Any]:
    return gpu_config(sharing={"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": interval}})


def mps(kind: str = "GpuConfig", **limits: object) -> dict[str, Any]:
    return gpu_config(kind, sharing={"strategy": "MPS", **({"mpsConfig": limits} if limits else {})})


@dataclasses.dataclass
class Node:
    """Directories and hardware that outlive a driver process; `start` is a new process on them.

    `passed` is told each step of prepare and unprepare; `published` are the devices in the node's slices; `own_daemons`
    take the place of MPS daemons that are processes.
    """

    path: Path
    backend: Backend
    dynamic: bool = False
    boot_id: str = "boot-1"
    passed: Callable[[str], None] | None = None
    device_metadata: bool = True
    own_daemons: Daemons | None = None
    published: dict[str, Device] = dataclasses.field(default_factory=dict)
    _kill_at: str | None = None
    steps: list[str] = dataclasses.field(default_factory=list)

    def start(self) -> Preparer:
        """A driver that has taken up what the one before left."""
        preparer = self.fresh()
        self.recovery = preparer.recover()
        return preparer

    def fresh(self) -> Preparer:
        inventory = self.backend.inventory()
        cuttable = frozenset(gpu.uuid for gpu in inventory.gpus if gpu.mig_profiles) if self.dynamic else frozenset()
        return Preparer(
            driver=names.DRIVER,
            pool="n1",
            backend=self.backend,
            checkpoint=Checkpoint(self.path / "claims", boot_id=self.boot_id),
            store=self.store,
            inventory=self.backend.inventory,
            partitionable=lambda: cuttable,
            metadata=Metadata(self.path / "metadata", enabled=self.device_metadata, published=lambda: self.published),
            daemons=self.daemons,
            at=self._passed,
        )

    @property
    def daemons(self) -> Daemons:
        return self.own_daemons or Daemons(self.path / "mps", self.backend.mps_program)

    @property
    def store(self) -> cdi.Store:
        return cdi.Store(self.path / "cdi")

    def _passed(self, step: str) -> None:
        self.steps.append(step)
        if self.passed is not None:
            self.passed(step)
        if step == self._kill_at:
            raise Killed(step)

    @contextlib.contextmanager
    def killed_at(self, step: str) -> Iterator[None]:
        """What runs inside dies when it has passed `step`. Fails when it never got there."""
        self._kill_at = step
        try:
            yield
        except Killed:
            return
        finally:
            self._kill_at = None
        raise AssertionError(f"never passed {step!r}, but {self.steps}")

    def leftovers(self) -> dict[str, list[str]]:
        """Everything that a claim can leave: records, CDI files, temporaries, MIG devices made on demand, daemons."""
        state = getattr(self.backend, "state", None)  # simulated hardware has one
        slices, modes = (state.time_slices, state.compute_modes) if state is not None else ({}, {})
        found = {
            "claims": sorted(path.name for path in (self.path / "claims").glob("*")),
            "cdi": sorted(path.name for path in (self.path / "cdi").glob("*")),
            "migs": sorted(
                f"gpu-{gpu.minor}@{mig.start}" for gpu in self.backend.inventory().gpus for mig in gpu.mig_devices
            )
            if self.dynamic
            else [],
        }
        if set_ := sorted(f"gpu-{minor}: {interval}" for minor, interval in slices.items() if interval != "Default"):
            found["time slices"] = set_
        if changed := sorted(f"gpu-{minor}: {mode}" for minor, mode in modes.items() if mode != "Default"):
            found["compute modes"] = changed
        for what in ("mps", "metadata"):
            if there := sorted(path.name for path in (self.path / what).glob("*")):
                found[what] = there
        return found


class Kubelet:
    """The two sockets as kubelet uses them: generated stubs over unix channels."""

    def __init__(self, dra: grpc.aio.Channel, registration: grpc.aio.Channel) -> None:
        # The stubs' types are those of synchronous channels; over an aio channel calls are awaitable.
        self.v1: Any = protocol.dra_v1_pb2_grpc.DRAPluginStub(dra)
        self.v1beta1: Any = protocol.dra_v1beta1_pb2_grpc.DRAPluginStub(dra)
        self.health: Any = protocol.dra_health_v1alpha1_pb2_grpc.DRAResourceHealthStub(dra)
        self.registration: Any = protocol.pluginregistration_v1_pb2_grpc.RegistrationStub(registration)

    @classmethod
    @contextlib.asynccontextmanager
    async def connect(cls, registration_socket: Path) -> AsyncIterator[Kubelet]:
        """As kubelet finds a plugin: ask the registration socket who it is, dial the endpoint that it names."""
        async with grpc.aio.insecure_channel(f"unix:{registration_socket}") as registration:
            stub: Any = protocol.pluginregistration_v1_pb2_grpc.RegistrationStub(registration)
            info = await stub.GetInfo(protocol.pluginregistration_v1_pb2.InfoRequest())
            async with grpc.aio.insecure_channel(f"unix:{info.endpoint}") as dra:
                yield cls(dra, registration)

    async def prepare(self, *claims: ResourceClaim, version: str = "v1") -> dict[str, Any]:
        """The answers by UID."""
        pb2: Any = protocol.dra_v1_pb2 if version == "v1" else protocol.dra_v1beta1_pb2
        request = pb2.NodePrepareResourcesRequest(claims=[_wire(pb2, one) for one in claims])
        return dict((await getattr(self, version).NodePrepareResources(request)).claims)

    async def unprepare(self, *claims: ResourceClaim, version: str = "v1") -> dict[str, Any]:
        pb2: Any = protocol.dra_v1_pb2 if version == "v1" else protocol.dra_v1beta1_pb2
        request = pb2.NodeUnprepareResourcesRequest(claims=[_wire(pb2, one) for one in claims])
        return dict((await getattr(self, version).NodeUnprepareResources(request)).claims)


def _wire(pb2: Any, one: ResourceClaim) -> Any:
    return pb2.Claim(namespace=one.metadata.namespace, name=one.metadata.name, uid=one.metadata.uid)
