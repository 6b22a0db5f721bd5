"""The MIG trace's nodes as the controller's tables, and its requests as gangs of one pod, decided one after the other.

Measures the product: tables, `decide` and the learnt mix are the controller's own; only the writes are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from benchmarks.mig.requests import MigRequest
from fairlead.api import names
from fairlead.driver.publish.slices import SliceBody
from fairlead.engine.inventory.inventory import Inventory
from fairlead.engine.inventory.node_table import NodeTable
from fairlead.engine.placement.value.workload import WorkloadCounter
from fairlead.engine.plan.decide import Engine
from fairlead.engine.snapshot import Snapshot
from fairlead.engine.types.gangs import ClaimRequest, GangRequest, PendingMember
from fairlead.engine.types.pods import PodNeeds
from fairlead.engine.types.values import Amount, PodRef
from fairlead.kube import core, resource
from fairlead.kube.objects import ObjectMeta

NAMESPACE = "trace"
_CLASSES = {names.GPU_CLASS: "gpu", names.MIG_CLASS: "mig"}
_ATTRIBUTES = f"device.attributes['{names.DRIVER}']"
_CAPACITY = f"device.capacity['{names.DRIVER}']"


class EngineFleet:
    """Starts empty. `place` returns what `release` takes, or None where the request was refused."""

    def __init__(self, nodes: Sequence[Sequence[SliceBody]], least: Mapping[str, tuple[Amount, Amount]] | None) -> None:
        """`nodes`: what each publishes. `least`: memory and multiprocessors by profile, of static requests; None: dynamic."""
        self._inventory = Inventory()
        self._nodes = NodeTable()
        self._workload = WorkloadCounter()
        self._least = least
        self._classes = {name: _device_class(name, type_) for name, type_ in _CLASSES.items()}
        self._specs: dict[MigRequest, resource.ResourceClaimSpec] = {}
        self._number = 0
        self._engine = Engine()
        for place, bodies in enumerate(nodes):
            name = f"node-{place:06d}"
            self._inventory.set_slices(_slices(name, bodies))
            self._nodes.set_node(core.Node(metadata=ObjectMeta(name=name)))

    def place(self, request: MigRequest) -> int | None:
        spec = self._specs.get(request)
        if spec is None:
            spec = self._specs[request] = self._spec(request)
        self._number += 1
        gang, pod = _gang(f"pod-{self._number:06d}", spec)
        self._workload.note(gang)
        snapshot = Snapshot(
            inventory=self._inventory,
            nodes=self._nodes,
            classes=self._classes,
            gangs=(gang,),
            workload=self._workload.workload(),
        )
        plan = self._engine.decide(snapshot, 0.0)
        if not plan.admissions:
            return None
        admission = plan.admissions[0]
        claim = admission.claims[0]
        self._inventory.set_claim(
            resource.ResourceClaim(
                metadata=ObjectMeta(name=claim.name, namespace=NAMESPACE, uid=claim.key),
                spec=spec,
                status=resource.ResourceClaimStatus(allocation=claim.allocation),
            )
        )
        self._nodes.set_pod(pod, admission.assignments[0].node)
        return self._number

    def release(self, number: int) -> None:
        """The pod ended, its claim is gone."""
        name = f"pod-{number:06d}"
        self._inventory.drop_claim(f"{name}-gpu")
        self._nodes.drop_pod(name)

    def held(self) -> list[tuple[int, tuple[str, ...]]]:
        """The node and the names of the devices of each request that runs."""
        return [
            (int(claim.devices[0].ref.pool.removeprefix("node-")), tuple(each.ref.device for each in claim.devices))
            for claim in self._inventory.claims()
        ]

    def _spec(self, request: MigRequest) -> resource.ResourceClaimSpec:
        exactly: dict[str, object] = {"deviceClassName": names.GPU_CLASS, "count": request.gpus}
        expression = f"{_ATTRIBUTES}.productName == '{request.product}'"
        if request.profile:
            exactly["deviceClassName"] = names.MIG_CLASS
            expression = f"{_ATTRIBUTES}.profile == '{request.profile}'"
            if self._least is not None:
                memory, multiprocessors = self._least[request.profile]
                expression = (
                    f"{_CAPACITY}.memory.compareTo(quantity('{memory}')) >= 0 && "
                    f"{_CAPACITY}.multiprocessors.compareTo(quantity('{multiprocessors}')) >= 0"
                )
        exactly["selectors"] = [{"cel": {"expression": expression}}]
        return msgspec.convert(
            {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}, resource.ResourceClaimSpec
        )


def _device_class(name: str, type_: str) -> resource.DeviceClass:
    expression = f"device.driver == '{names.DRIVER}' && {_ATTRIBUTES}.type == '{type_}'"
    return msgspec.convert(
        {"metadata": {"name": name}, "spec": {"selectors": [{"cel": {"expression": expression}}]}}, resource.DeviceClass
    )


def _slices(name: str, bodies: Sequence[SliceBody]) -> list[resource.ResourceSlice]:
    return [
        resource.ResourceSlice(
            metadata=ObjectMeta(name=f"{name}-{place}"),
            spec=resource.ResourceSliceSpec(
                driver=names.DRIVER,
                node_name=name,
                pool=resource.ResourcePool(name=name, generation=1, resource_slice_count=len(bodies)),
                devices=body.devices,
                shared_counters=body.shared_counters,
            ),
        )
        for place, body in enumerate(bodies)
    ]


def _gang(name: str, spec: resource.ResourceClaimSpec) -> tuple[GangRequest, core.Pod]:
    pod = core.Pod(metadata=ObjectMeta(name=name, namespace=NAMESPACE, uid=name))
    key = f"{name}-gpu"
    member = PendingMember(pod=PodRef(NAMESPACE, name, name), needs=PodNeeds.of(pod), claims=(key,))
    claim = ClaimRequest(key=key, namespace=NAMESPACE, name=key, spec=spec)
    return GangRequest(namespace=NAMESPACE, name=name, uid=name, size=1, members=(member,), claims=(claim,)), pod
