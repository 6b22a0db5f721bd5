"""The trace's cluster as the controller's tables, and its pods as gangs of one, decided in order of arrival.

Measures the product: tables, `decide` and placement are the controller's own; only the writes are left out. A GPU is a device
that several claims may hold (`allowMultipleAllocations`), with 1000 parts to consume.
A pod is refused at once if an equal one failed before: pods only arrive here, so nothing comes free.
"""

from __future__ import annotations

import msgspec

from fairlead.api import names
from fairlead.cli.simulate.trace import WHOLE, Node, PodRequest
from fairlead.engine.inventory.inventory import Inventory
from fairlead.engine.inventory.node_table import NodeTable
from fairlead.engine.placement.value.workload import WorkloadCounter
from fairlead.engine.plan.decide import Engine
from fairlead.engine.snapshot import Snapshot
from fairlead.engine.types.gangs import ClaimRequest, GangRequest, PendingMember
from fairlead.engine.types.pods import PodNeeds
from fairlead.engine.types.values import PodRef
from fairlead.kube import core, resource
from fairlead.kube.objects import ObjectMeta

PARTS = "parts"  # the capacity that shares are taken of
NAMESPACE = "trace"
_MODEL = f'device.attributes["{names.DRIVER}"].productName'


class Cluster:
    """Starts empty. `place` returns whether the pod was placed."""

    def __init__(self, order: tuple[Node, ...]) -> None:
        """`order` is the nodes' order, which breaks ties."""
        self._inventory = Inventory()
        self._nodes = NodeTable()
        self._class = resource.DeviceClass(metadata=ObjectMeta(name=names.GPU_CLASS))
        self._workload = WorkloadCounter()
        self._specs: dict[PodRequest, tuple[resource.ResourceClaimSpec | None, core.PodSpec]] = {}
        self._failed: set[PodRequest] = set()
        self._engine = Engine()
        self._count = 0
        self._inventory.set_slices([_slice(f"node-{place:06d}", node) for place, node in enumerate(order)])
        for place, node in enumerate(order):
            self._nodes.set_node(_node(f"node-{place:06d}", node))

    def place(self, request: PodRequest) -> bool:
        gang, pod = self._gang(request)
        self._workload.note(gang)
        if request in self._failed:
            return False
        snapshot = Snapshot(
            inventory=self._inventory,
            nodes=self._nodes,
            classes={names.GPU_CLASS: self._class},
            gangs=(gang,),
            workload=self._workload.workload(),
        )
        plan = self._engine.decide(snapshot, 0.0, share_ids=lambda claim, request, _device: f"{claim}/{request}")
        if not plan.admissions:
            self._failed.add(request)
            return False
        admission = plan.admissions[0]
        for claim in admission.claims:
            self._inventory.set_claim(
                resource.ResourceClaim(
                    metadata=ObjectMeta(name=claim.name, namespace=NAMESPACE, uid=claim.key),
                    spec=gang.claims[0].spec,
                    status=resource.ResourceClaimStatus(allocation=claim.allocation),
                )
            )
        self._nodes.set_pod(pod, admission.assignments[0].node)
        return True

    def _gang(self, request: PodRequest) -> tuple[GangRequest, core.Pod]:
        known = self._specs.get(request)
        if known is None:
            known = self._specs[request] = (_claim_spec(request), _pod_spec(request))
        spec, pod_spec = known
        self._count += 1
        name = f"pod-{self._count:06d}"
        pod = core.Pod(metadata=ObjectMeta(name=name, namespace=NAMESPACE, uid=name), spec=pod_spec)
        key = f"{name}-gpu"
        gang = GangRequest(
            namespace=NAMESPACE,
            name=name,
            uid=name,
            size=1,
            members=(
                PendingMember(
                    pod=PodRef(NAMESPACE, name, name), needs=PodNeeds.of(pod), claims=() if spec is None else (key,)
                ),
            ),
            claims=() if spec is None else (ClaimRequest(key=key, namespace=NAMESPACE, name=key, spec=spec),),
        )
        return gang, pod


def _slice(name: str, node: Node) -> resource.ResourceSlice:
    attributes = {"type": {"string": "gpu"}, "productName": {"string": node.model}}
    capacity = {PARTS: {"value": str(WHOLE)}}
    devices = [
        {"name": f"gpu-{minor}", "attributes": attributes, "capacity": capacity, "allowMultipleAllocations": True}
        for minor in range(node.gpus)
    ]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": names.DRIVER, "nodeName": name, "pool": pool, "devices": devices}
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, resource.ResourceSlice)


def _node(name: str, node: Node) -> core.Node:
    allocatable = {"cpu": f"{node.cpu_milli}m", "memory": f"{node.memory_mib}Mi", "pods": "1000000"}
    return msgspec.convert({"metadata": {"name": name}, "status": {"allocatable": allocatable}}, core.Node)


def _claim_spec(request: PodRequest) -> resource.ResourceClaimSpec | None:
    if not request.gpus:
        return None
    exactly: dict[str, object] = {
        "deviceClassName": names.GPU_CLASS,
        "count": request.gpus,
        "capacity": {"requests": {PARTS: str(request.gpu_milli)}},
    }
    if request.models:
        expression = " || ".join(f"{_MODEL} == {_quoted(model)}" for model in request.models)
        exactly["selectors"] = [{"cel": {"expression": expression}}]
    devices = {"requests": [{"name": "gpu", "exactly": exactly}]}
    return msgspec.convert({"devices": devices}, resource.ResourceClaimSpec)


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


def _pod_spec(request: PodRequest) -> core.PodSpec:
    requests = {"cpu": f"{request.cpu_milli}m", "memory": f"{request.memory_mib}Mi"}
    return msgspec.convert({"containers": [{"name": "main", "resources": {"requests": requests}}]}, core.PodSpec)
