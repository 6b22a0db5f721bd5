"""The trace's cluster as the controller sees one, and its pods as gangs of one, decided in order of arrival.

What is measured is the product: inventory, `decide` and placement are the engine's own; only the writes are left out.
A GPU is a device that several claims may share (`allowMultipleAllocations`) with 1000 parts of capacity.
A pod like one that did not fit before is refused at once: nothing is ever released here.
"""

from __future__ import annotations

import msgspec

from fairlead.api import names
from fairlead.cli.simulate.trace import WHOLE, Node, Shape
from fairlead.engine.inventory.inventory import Inventory
from fairlead.engine.inventory.nodes import NodeTable
from fairlead.engine.placement.workload import Learner
from fairlead.engine.plan.decide import decide
from fairlead.engine.queues.snapshot import Snapshot
from fairlead.engine.types.model import ClaimRequest, GangRequest, Member, PodRef
from fairlead.engine.types.pod_needs import PodNeeds
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
        self._learner = Learner()
        self._specs: dict[Shape, tuple[resource.ResourceClaimSpec | None, core.PodSpec]] = {}
        self._failed: set[Shape] = set()
        self._count = 0
        self._inventory.set_slices([_slice(f"node-{place:06d}", node) for place, node in enumerate(order)])
        for place, node in enumerate(order):
            self._nodes.set_node(_node(f"node-{place:06d}", node))

    def place(self, shape: Shape) -> bool:
        gang, pod = self._gang(shape)
        self._learner.note(gang)
        if shape in self._failed:
            return False
        snapshot = Snapshot(
            inventory=self._inventory,
            nodes=self._nodes,
            classes={names.GPU_CLASS: self._class},
            gangs=(gang,),
            workload=self._learner.workload(),
        )
        plan = decide(snapshot, 0.0, share_ids=lambda claim, request, _device: f"{claim}/{request}")
        if not plan.admissions:
            self._failed.add(shape)
            return False
        admission = plan.admissions[0]
        for planned in admission.claims:
            allocation = msgspec.convert(planned.allocation.to_json(), resource.AllocationResult)
            self._inventory.set_claim(
                resource.ResourceClaim(
                    metadata=ObjectMeta(name=planned.name, namespace=NAMESPACE, uid=planned.key),
                    spec=gang.claims[0].spec,
                    status=resource.ResourceClaimStatus(allocation=allocation),
                )
            )
        self._nodes.set_pod(pod, admission.assignments[0].node)
        return True

    def _gang(self, shape: Shape) -> tuple[GangRequest, core.Pod]:
        known = self._specs.get(shape)
        if known is None:
            known = self._specs[shape] = (_claim_spec(shape), _pod_spec(shape))
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
                Member(
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
        {
            "name": f"gpu-{minor}",
            "attributes": attributes,
            "capacity": capacity,
            "allowMultipleAllocations": True,
        }
        for minor in range(node.gpus)
    ]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": names.DRIVER, "nodeName": name, "pool": pool, "devices": devices}
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, resource.ResourceSlice)


def _node(name: str, node: Node) -> core.Node:
    allocatable = {"cpu": f"{node.cpu_milli}m", "memory": f"{node.memory_mib}Mi", "pods": "1000000"}
    return msgspec.convert({"metadata": {"name": name}, "status": {"allocatable": allocatable}}, core.Node)


def _claim_spec(shape: Shape) -> resource.ResourceClaimSpec | None:
    if not shape.gpus:
        return None
    exactly: dict[str, object] = {
        "deviceClassName": names.GPU_CLASS,
        "count": shape.gpus,
        "capacity": {"requests": {PARTS: str(shape.gpu_milli)}},
    }
    if shape.models:
        expression = " || ".join(f"{_MODEL} == {_quoted(model)}" for model in shape.models)
        exactly["selectors"] = [{"cel": {"expression": expression}}]
    devices = {"requests": [{"name": "gpu", "exactly": exactly}]}
    return msgspec.convert({"devices": devices}, resource.ResourceClaimSpec)


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


def _pod_spec(shape: Shape) -> core.PodSpec:
    requests = {"cpu": f"{shape.cpu_milli}m", "memory": f"{shape.memory_mib}Mi"}
    return msgspec.convert({"containers": [{"name": "main", "resources": {"requests": requests}}]}, core.PodSpec)
