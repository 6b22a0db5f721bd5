"""What the ledger is told: what free devices are good for, units that go, and why a claim came free."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from fairlead.api import names, repair
from fairlead.controller.accounting.claims import Attribution, claim_ended, claim_seen
from fairlead.controller.accounting.units import UNPUBLISHED_S, Measures, NodeUnits, Units, UsualRequests
from fairlead.controller.watch.allocated_claims import AllocatedClaims, Held
from fairlead.engine.placement.value.workload import WorkloadCounter
from fairlead.engine.types.settings import FlavorSpec
from fairlead.history.ledger.entries import WHOLE_PPM, ClaimSeen, UsageSeen
from fairlead.kube import core, resource
from fairlead.kube.device_usage import DeviceUsage
from fairlead.kube.store import Change
from fairlead.kube.watching import ADDED, DELETED, MODIFIED
from tests.support.engine.objects import claim_spec, device_request, gang, gpu, mig_gpu
from tests.support.engine.world import World

FLAVORS = (
    FlavorSpec(name="a-count", device_selector="true"),
    FlavorSpec(name="h100", device_selector="true", measure="Share"),
)


class Told:
    """Nodes of a world, as the ledger is told of them."""

    def __init__(self, world: World, *requests: tuple[int, str]) -> None:
        """`requests`: GPUs and CPU of the usual pods; without any nothing is known of what is usual."""
        self.world = world
        self.units = NodeUnits(world.inventory, world.nodes)
        self.measures = Measures(FLAVORS, ("h100",))
        counter = WorkloadCounter()
        for number in range(64 if requests else 0):
            count, cpu = requests[number % len(requests)]
            counter.note(gang(f"g{number}", 1, claim_spec(device_request(count=count)), cpu=cpu))
        self.usual = UsualRequests(counter.workload(), world.classes)

    def look(self, node: str = "n1", *, reserved: tuple[str, ...] = (), now: float = 0.0) -> dict[str, str]:
        seen, gone = self.units.look(node, self.measures, self.usual, reserved, now)
        return {each.unit.name: each.vacancy for each in seen} | dict.fromkeys((each.name for each in gone), "gone")


def two_gpus(**allocatable: str) -> World:
    world = World()
    world.add_node("n1", [gpu(0), gpu(1)], allocatable=allocatable)
    return world


def hold(world: World, device: str, uid: str = "c1", **more: Any) -> resource.ResourceClaim:
    claim = claim_of(uid, device, **more)
    world.inventory.set_claim(claim)
    return claim


def claim_of(
    uid: str,
    device: str,
    *,
    name: str = "c",
    at: str = "2026-11-01T00:00:04Z",
    share: Mapping[str, Any] = MappingProxyType({}),
    **status: Any,
) -> resource.ResourceClaim:
    result = {"request": "gpu", "driver": names.DRIVER, "pool": "n1", "device": device, **share}
    body = {
        "metadata": {"uid": uid, "namespace": "ml", "name": name},
        "status": {"allocation": {"devices": {"results": [result]}, "allocationTimestamp": at}, **status},
    }
    return msgspec.convert(body, resource.ResourceClaim)


def pod_of(
    uid: str = "p1", *, phase: str = "Running", node: str = "n1", annotations: Any = None, **status: Any
) -> core.Pod:
    meta = {"uid": uid, "namespace": "ml", "name": f"pod-{uid}", "annotations": annotations or {}}
    spec = {"nodeName": node, "resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]}
    body = {"metadata": {**meta, "labels": {"team": "blue"}}, "spec": spec, "status": {"phase": phase, **status}}
    return msgspec.convert(body, core.Pod)


def test_a_free_gpu_is_free_until_no_usual_request_could_be_given_it():
    told = Told(two_gpus(cpu="8"), (1, "4"), (2, "8"))
    assert told.look() == {"gpu-0": "free", "gpu-1": "free"}
    assert told.look() == {}, "nothing changed"
    hold(told.world, "gpu-0")
    assert told.look() == {"gpu-0": "fragmented"}, (
        "what is held is of no use to others when it comes free, as things are"
    )
    told.world.nodes.set_needs("other", "n1", replace(told.usual.all[0][0], requests=(("cpu", 5000),)))
    assert told.look() == {"gpu-1": "fragmented"}, "three cores are left, and the smallest usual pod wants four"
    told.world.nodes.drop_pod("other")
    assert told.look() == {"gpu-1": "free"}


def test_while_nothing_is_known_of_what_is_usual_nothing_is_fragmented():
    told = Told(two_gpus(cpu="0"))
    assert told.look() == {"gpu-0": "free", "gpu-1": "free"}


def test_of_eight_a_request_for_all_leaves_the_rest_fragmented():
    world = World()
    world.add_node("n1", [gpu(minor) for minor in range(8)])
    told = Told(world, (8, "1"))
    assert set(told.look().values()) == {"free"}
    hold(world, "gpu-3")
    assert set(told.look().values()) == {"fragmented"}


def test_free_devices_of_a_node_that_is_held_for_a_gang_are_nominated():
    told = Told(two_gpus())
    assert told.look(reserved=("n1", "n2")) == {"gpu-0": "nominated", "gpu-1": "nominated"}
    assert told.look(reserved=()) == {"gpu-0": "free", "gpu-1": "free"}


def test_what_an_operator_keeps_back_is_drained_and_what_has_a_fault_is_broken():
    world = World()
    fault, drained = ({"key": key, "effect": "NoSchedule"} for key in ("gpu.fairlead.dev/xid", repair.DRAIN_TAINT))
    by_driver = {"key": repair.TAINT, "value": "drained", "effect": "NoSchedule"}
    taints = [[], [fault], [drained], [by_driver], [drained, fault]]
    world.add_node("n1", [gpu(minor) | {"taints": own} for minor, own in enumerate(taints)])
    told = Told(world)
    assert list(told.look().values()) == ["free", "broken", "drained", "drained", "broken"]
    world.cordon("n1", closed=True)
    assert told.look(reserved=("n1",)) == {"gpu-0": "drained"}, "a fault stays one on a node that is cordoned"
    hold(world, "gpu-0")
    told.look()
    world.cordon("n1", closed=False)
    assert told.look()["gpu-0"] == "free", "and it is given back as it was"


def test_a_device_that_is_not_published_any_more_is_broken_for_a_day_and_then_gone():
    world = two_gpus()
    told = Told(world)
    told.look()
    for name in list(world.slice_json):
        world.inventory.drop_slice(name)
    assert told.look(now=100.0) == {"gpu-0": "broken", "gpu-1": "broken"}
    assert told.look(now=100.0 + UNPUBLISHED_S - 1) == {}
    assert told.look(now=100.0 + UNPUBLISHED_S) == {"gpu-0": "gone", "gpu-1": "gone"}


def test_with_their_node_its_devices_are_gone():
    world = two_gpus()
    told = Told(world)
    told.look()
    world.nodes.drop_node("n1")
    for name in list(world.slice_json):
        world.inventory.drop_slice(name)
    assert told.look() == {"gpu-0": "gone", "gpu-1": "gone"}


def seen_of(world: World, held: Held, *, units: Units | None = None, kind: str | None = None, **said: Any) -> ClaimSeen:
    """The claim as the ledger is told of it. `kind`: the capacity type of its node; `said`: what counts beside its pods."""
    attribution = Attribution(**{"queue_of": lambda _: "q", **said})
    measures = Measures(FLAVORS, ("h100",))
    return claim_seen(held, attribution, world.inventory, units or Units(world.inventory), measures, lambda _: kind)


def test_a_gpu_and_its_mig_devices_are_one_unit_and_a_part_counts_as_its_share():
    world = World()
    devices, counters = mig_gpu(0)
    world.add_node("n1", devices, counters=[counters])
    told = Told(world)
    (unit,), _ = told.units.look("n1", told.measures, told.usual, (), 0.0)
    assert (unit.whole.share_ppm, unit.whole.flavor, unit.whole.amount) == (WHOLE_PPM, "h100", Fraction(1))
    part = next(each["name"] for each in devices if "3g" in each["name"])
    (found,) = seen_of(world, Held(hold(world, part)), units=told.units.units, kind="spot").parts
    assert unit.unit.name == "gpu-0"
    assert (found.unit, found.device) == (unit.unit, part)
    assert found.measure.share_ppm == round(found.measure.amount * WHOLE_PPM)
    assert Fraction(3, 8) <= found.measure.amount <= Fraction(4, 7)
    assert found.measure.capacity_type == "spot"


def test_a_gpu_that_becomes_mig_capable_stays_the_same_unit():
    world = two_gpus()
    told = Told(world)
    assert told.look() == {"gpu-0": "free", "gpu-1": "free"}
    for name in list(world.slice_json):
        world.inventory.drop_slice(name)
    both = [mig_gpu(minor) for minor in range(2)]
    devices = [device for found, _ in both for device in found]
    world.add_node("n1", devices, counters=[counters for _, counters in both])
    assert told.look() == {}


@pytest.mark.parametrize("unpublished", [False, True])
def test_a_gpu_that_becomes_mig_capable_after_another_stays_the_same_unit(unpublished):
    """Which device is all of a counter set is kept for each pool, and read again when the pool has changed, or went and came again."""
    world = World()
    (first, first_counters), (second, second_counters) = mig_gpu(0), mig_gpu(1)
    world.add_node("n1", [*first, gpu(1)], counters=[first_counters])
    told = Told(world)
    assert told.look() == {"gpu-0": "free", "gpu-1": "free"}
    for name in list(world.slice_json) if unpublished else ():
        world.inventory.drop_slice(name)
    world.add_node("n1", [*first, *second], counters=[first_counters, second_counters])
    assert told.look() == {}


def test_a_share_is_told_as_its_part_of_the_device_with_its_own_use_against_its_size():
    world = World()
    memory = {"value": "80Gi", "requestPolicy": {"default": "80Gi"}}
    world.add_node("n1", [gpu(0, allowMultipleAllocations=True) | {"capacity": {"memory": memory}}])
    usage = DeviceUsage(
        state="Busy", since_s=30.0, sampled_at_s=60.0, utilization_percent=90, shared=True,
        memory_used_peak_bytes=7 * 2**30, memory_bytes=20 * 2**30, memory_limit_bytes=20 * 2**30,
    )  # fmt: skip
    entry = {"driver": names.DRIVER, "pool": "n1", "device": "gpu-0", "shareID": "s", "data": usage.to_json()}
    claim = hold(world, "gpu-0", share={"shareID": "s", "consumedCapacity": {"memory": "20Gi"}}, devices=[entry])
    [part] = seen_of(world, Held(claim, {"p1": pod_of()})).parts
    assert part.measure.share_ppm == WHOLE_PPM // 4
    assert part.usage is not None
    assert (part.usage.memory_peak_bytes, part.usage.memory_bytes) == (7 * 2**30, 20 * 2**30)


def test_a_claim_is_told_with_its_pod_its_times_and_what_the_driver_says_of_it():
    world = two_gpus()
    usage = DeviceUsage(state="Idle", since_s=30.0, sampled_at_s=60.0, utilization_percent=2, memory_used_peak_bytes=7)
    entry = {"driver": names.DRIVER, "pool": "n1", "device": "gpu-0", "data": usage.to_json()}
    claim = hold(world, "gpu-0", devices=[entry])

    def container(state: str, **times: str) -> list[dict[str, Any]]:
        return [{"name": "main", "state": {state: {"startedAt": "2026-11-01T00:00:10Z", **times}}}]

    said: dict[str, Any] = {"queue_of": lambda pod: f"queue of {pod.metadata.name}", "labels": ("project", "team")}
    said["namespace_labels"] = lambda _: {"project": "x"}
    running = pod_of(annotations={names.USER: "ada"}, containerStatuses=container("running"))
    seen = seen_of(world, Held(claim, {"p1": running}), **said)
    own = seen.allocation
    assert (own.queue, own.gang, own.user) == ("queue of pod-p1", "pod-p1", "ada")
    assert own.labels == (("project", "x"), ("team", "blue"))
    assert seen.started_us is not None
    assert (seen.started_us - own.allocated_us, seen.finished_us) == (6_000_000, None)
    assert seen.parts[0].usage == UsageSeen(
        idle=True, since_us=30_000_000, sampled_us=60_000_000, busy_percent=2, memory_peak_bytes=7, memory_bytes=None
    )
    ended = pod_of(phase="Succeeded", containerStatuses=container("terminated", finishedAt="2026-11-01T00:00:50Z"))
    assert seen_of(world, Held(claim, {"p1": ended})).finished_us == own.allocated_us + 46_000_000


MARK = {
    names.EVICT_AT: "2026-11-01T00:00:00Z",
    names.EVICTION: '{"kind": "Reclaim", "for": "ml/x", "whole": true, "why": "y"}',
}


def deleted(phase: str, *, ended: str, annotations: Any = None) -> core.Pod:
    """Deleted at 00:01:00 with a grace period of 30 s; its container ended then."""
    state = {"terminated": {"startedAt": "2026-11-01T00:00:10Z", "finishedAt": f"2026-11-01T{ended}"}}
    pod = pod_of(phase=phase, annotations=annotations, containerStatuses=[{"name": "main", "state": state}])
    gone = {"deletion_timestamp": "2026-11-01T00:01:30Z", "deletion_grace_period_seconds": 30}
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, **gone))


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ([pod_of(phase="Succeeded")], ("Completed", False)),
        ([pod_of(phase="Succeeded", annotations=MARK)], ("Completed", False)),
        ([pod_of(annotations=MARK)], ("Evicted", True)),
        ([pod_of(phase="Failed", annotations=MARK)], ("Evicted", True)),
        ([pod_of(annotations=MARK | {names.CHECKPOINT_GRACE: "60s"})], ("Evicted", False)),
        (
            [pod_of(annotations=MARK | {names.EVICTION: MARK[names.EVICTION].replace("true", "false")})],
            ("Evicted", False),
        ),
        ([pod_of(phase="Failed")], ("Failed", False)),
        ([pod_of(phase="Failed", node="n2")], ("NodeGone", False)),
        ([pod_of(), pod_of("p2", phase="Succeeded")], ("Deleted", False)),
        ([deleted("Failed", ended="00:01:02Z")], ("Deleted", False)),
        ([deleted("Succeeded", ended="00:01:02Z")], ("Deleted", False)),
        ([deleted("Succeeded", ended="00:01:02Z", annotations=MARK)], ("Evicted", True)),
        ([deleted("Failed", ended="00:00:59Z")], ("Failed", False)),
        ([deleted("Succeeded", ended="00:00:59Z")], ("Completed", False)),
        ([], ("Deleted", False)),
    ],
)
def test_why_a_claim_came_free(pods: list[core.Pod], expected: tuple[str, bool]):
    held = Held(claim_of("c1", "gpu-0"), {pod.metadata.uid: pod for pod in pods})
    end = claim_ended(held, 12.5, lambda name: name == "n1")
    assert (end.claim_uid, end.at_us, end.ended_by, end.lost) == ("c1", 12_500_000, *expected)


class Informers:
    """Claims and pods, whose changes a test makes."""

    class Some:
        def __init__(self) -> None:
            self.handlers: list[Any] = []

        def subscribe(self, handler: Any) -> Any:
            self.handlers.append(handler)
            return lambda: self.handlers.remove(handler)

        def change(self, kind: str, old: Any, new: Any) -> None:
            for handler in self.handlers:
                handler(Change(kind, (new or old).metadata.key, old, new))

    def __init__(self) -> None:
        self.claims, self.pods = self.Some(), self.Some()

    def pods_of(self, claim: Any) -> dict[str, Any]:
        return {}


def test_claims_are_noted_as_they_come_change_and_go():
    informers, clock = Informers(), [100.0]
    notes = AllocatedClaims(informers, lambda _: nullcontext(), wall=lambda: clock[0])  # type: ignore[arg-type]
    notes.begin()
    waiting = msgspec.convert({"metadata": {"uid": "c1", "namespace": "ml", "name": "c"}}, resource.ResourceClaim)
    first, again = claim_of("c1", "gpu-0"), claim_of("c1", "gpu-1", at="2026-11-01T00:09:00Z")
    informers.claims.change(ADDED, None, waiting)
    assert notes.take() == ([], [])
    informers.claims.change(MODIFIED, waiting, first)
    informers.pods.change(ADDED, None, pod_of())
    changed, ended = notes.take()
    assert ([held.uid for held in changed], ended) == (["c1"], [])
    assert list(changed[0].pods) == ["p1"]
    informers.pods.change(MODIFIED, pod_of(), pod_of("p2"))
    informers.pods.change(DELETED, pod_of(), None)
    (held,), _ = notes.take()
    assert list(held.pods) == ["p2"]
    informers.pods.change(DELETED, pod_of("p2"), None)
    assert list(held.pods) == ["p2"], "the last one is kept"
    clock[0] = 110.0
    informers.claims.change(MODIFIED, first, again)
    changed, ended = notes.take()
    assert [(each.claim, at) for each, at in ended] == [(first, 110.0)]
    assert [each.claim for each in changed] == [first, again], "the old one had changed, too"
    clock[0] = 120.0
    other = claim_of("c2", "gpu-0")
    informers.claims.change(MODIFIED, again, other)  # deleted and created again under its name
    changed, ended = notes.take()
    assert [(each.uid, at) for each, at in ended] == [("c1", 120.0)]
    assert [each.uid for each in changed] == ["c2"]
    informers.claims.change(DELETED, other, None)
    assert [each.uid for each, _ in notes.take()[1]] == ["c2"]
    notes.end()
    assert informers.claims.handlers == informers.pods.handlers == []
