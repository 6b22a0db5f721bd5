"""A cluster with devices inside and outside of flavors: H100s that every flavor counts, and other models that some or none do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from fairlead.api import names
from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.plan import Plan
from fairlead.engine.types.settings import FlavorQuota, FlavorSpec, QueueSpec
from tests.support.engine.objects import Json, claim_spec, device_request, gang, gpu
from tests.support.engine.world import World

H100, L40S, A100 = "NVIDIA H100 80GB HBM3", "NVIDIA L40S", "NVIDIA A100-SXM4-80GB"
_MEMORY = {H100: "80Gi", L40S: "48Gi", A100: "80Gi"}
ROUNDS_MAX = 30
Measure = Literal["Devices", "Share", "Capacity"]


def model(product: str, measure: Measure = "Devices", name: str = "") -> FlavorSpec:
    """A flavor of one model, by default named as its last word but one: h100, l40s."""
    selector = f'device.attributes["{names.DRIVER}"].productName == "{product}"'
    capacity = "memory" if measure == "Capacity" else None
    return FlavorSpec(name=name or short(product), device_selector=selector, measure=measure, capacity_name=capacity)


def all_gpus(name: str, measure: Measure) -> FlavorSpec:
    """A flavor that counts GPUs of every model."""
    capacity = "memory" if measure == "Capacity" else None
    return FlavorSpec(
        name=name, device_selector=f'device.driver == "{names.DRIVER}"', measure=measure, capacity_name=capacity
    )


def short(product: str) -> str:
    return product.split()[1].split("-", maxsplit=1)[0].lower()


def queue(name: str, parent: str | None = None, **deserved: int) -> QueueSpec:
    quotas = tuple(FlavorQuota(flavor=flavor, deserved=amount) for flavor, amount in deserved.items())
    return QueueSpec(name=name, parent=parent, quotas=quotas)


def cluster(nodes: Mapping[str, Sequence[str]], flavors: Sequence[FlavorSpec], queues: Sequence[QueueSpec]) -> World:
    """`nodes`: the products of each one's GPUs."""
    world = World()
    for name, products in nodes.items():
        devices = [gpu(minor, product=product, memory=_MEMORY[product]) for minor, product in enumerate(products)]
        world.add_node(name, devices)
    world.flavors, world.queues = tuple(flavors), tuple(queues)
    world.reserve_after_s = 1e9
    return world


def wants(product: str, count: int = 1) -> Json:
    """A request for GPUs of one model."""
    cel = f'device.attributes["{names.DRIVER}"].productName == "{product}"'
    return device_request(count, cel=cel)


def job(name: str, pods: int, product: str, queue: str, *, gpus: int = 1, **more: object) -> GangRequest:
    return gang(name, pods, claim_spec(wants(product, gpus)), queue=queue, **more)  # type: ignore[arg-type]


def admit(world: World, *gangs: GangRequest) -> None:
    """They all start."""
    left = world.carry_out(world.decide(*gangs), gangs)
    assert left == [], [each.id for each in left]


def settled(world: World, gangs: Sequence[GangRequest]) -> tuple[Plan, list[GangRequest]]:
    """Decide, carry out and let the evicted go until nothing changes: the last plan, and the gangs that still wait."""
    waiting = list(gangs)
    for _ in range(ROUNDS_MAX):
        plan = world.decide(*waiting)
        waiting = world.carry_out(plan, waiting)
        back = world.gone()
        if not plan.admissions and not plan.evictions and not back:
            return plan, waiting
        waiting += back
        world.now += 1.0
    raise AssertionError("it never comes to rest")


def held(world: World, product: str, queue: str) -> int:
    """GPUs of this model that the gangs of the queue hold, admin access aside."""
    found = 0
    for running in world.running.values():
        for uid in running.claims if running.queue == queue else ():
            claim = world.inventory.claim(uid)
            for each in claim.devices if claim is not None else ():
                device = world.inventory.device(each.ref)
                assert device is not None
                found += not each.admin and device.values("gpu.fairlead.dev/productName") == {("string", product)}
    return found
