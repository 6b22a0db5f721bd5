"""Which pod is tried next, and which waits until something changed; and what the scheduler's cache counts."""

import asyncio
from typing import Any

from fairlead.sandbox.scheduler.cache import Cache, PodQueue
from tests.support.kube import VirtualTime

Obj = dict[str, Any]


def queue(time: VirtualTime) -> PodQueue:
    return PodQueue(clock=time.clock, backoff_s=(1.0, 10.0))


async def taken(of: PodQueue) -> list[str]:
    found = []
    while True:
        try:
            async with asyncio.timeout(0):
                found.append(await of.get())
        except TimeoutError:
            return found


async def test_pods_come_by_priority_then_by_age() -> None:
    line = queue(VirtualTime())
    for key, priority in (("old", 0), ("new", 0), ("urgent", 9)):
        line.add(key, priority=priority)
    assert await taken(line) == ["urgent", "old", "new"]


async def test_a_refused_pod_rests_until_something_changes_and_its_back_off_is_over() -> None:
    time = VirtualTime()
    line = queue(time)
    line.add("p")
    assert await taken(line) == ["p"]
    line.unschedulable("p")
    time.now += 100
    assert await taken(line) == []
    line.unschedulable("p")
    line.something_changed()
    assert await taken(line) == []
    time.now += 2.1
    assert await taken(line) == ["p"]


async def test_a_pod_that_changed_itself_does_not_wait_for_its_back_off() -> None:
    line = queue(VirtualTime())
    line.add("p")
    await taken(line)
    line.unschedulable("p")
    line.add("p")
    assert await taken(line) == ["p"]


async def test_an_error_is_tried_again_although_nothing_changes() -> None:
    time = VirtualTime()
    line = queue(time)
    line.add("p")
    await taken(line)
    line.unschedulable("p", retry=True)
    time.now += 1.1
    assert await taken(line) == ["p"]


async def test_a_pod_that_failed_by_an_error_waits_longer_each_time_whatever_changes() -> None:
    """A binding that fails gives its claim back, which is a change of the pod's claim: no reason to bind again at once."""
    time = VirtualTime()
    line = queue(time)
    line.add("p")
    for wait_s in (1.0, 2.0, 4.0):
        assert await taken(line) == ["p"]
        line.unschedulable("p", retry=True)
        line.add("p")
        line.something_changed()
        time.now += wait_s - 0.1
        assert await taken(line) == []
        time.now += 0.2
    line.drop("p")
    line.add("p")
    assert await taken(line) == ["p"]


# -- the cache -----------------------------------------------------------------------------------------------------


def node(name: str = "n") -> Obj:
    return {"metadata": {"name": name}, "spec": {}, "status": {"allocatable": {"cpu": "8"}}}


def pod(name: str = "p", *, on: str = "", phase: str = "Pending") -> Obj:
    containers = [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]
    spec: Obj = {"containers": containers} | ({"nodeName": on} if on else {})
    return {"metadata": {"name": name, "namespace": "ml", "uid": name}, "spec": spec, "status": {"phase": phase}}


def claim(*devices: str, uid: str = "c") -> Obj:
    results = [{"request": "r", "driver": "d", "pool": "n", "device": each} for each in devices]
    status: Obj = {"allocation": {"devices": {"results": results}}} if results else {}
    return {"metadata": {"name": uid, "namespace": "ml", "uid": uid}, "status": status}


def cpu(cache: Cache) -> int:
    return cache.nodes["n"].requested.get("cpu", 0)


def test_a_pod_counts_from_the_moment_it_is_assumed_until_it_ends() -> None:
    cache = Cache()
    cache.set_node(node())
    cache.assume(pod(), "n")
    assert (cpu(cache), cache.nodes["n"].pods) == (2000, 1)
    cache.set_pod(pod())  # an update from before the binding
    assert cpu(cache) == 2000
    cache.set_pod(pod(on="n"))
    cache.set_pod(pod(on="n", phase="Running"))
    assert cpu(cache) == 2000
    cache.set_pod(pod(on="n", phase="Succeeded"))
    assert (cpu(cache), cache.nodes["n"].pods) == (0, 0)
    cache.drop_pod("p")
    assert cpu(cache) == 0


def test_a_binding_that_fails_gives_the_room_back() -> None:
    cache = Cache()
    cache.set_node(node())
    cache.assume(pod(), "n")
    cache.forget(pod())
    assert cpu(cache) == 0


def test_a_device_is_allocated_once_whether_in_flight_or_written() -> None:
    cache = Cache()
    key = ("d", "n", "gpu-0")
    cache.assume_allocation(claim(), claim("gpu-0")["status"]["allocation"])
    assert cache.allocated[key] == 1
    cache.set_claim(claim("gpu-0"))
    assert cache.allocated[key] == 1
    cache.set_claim(claim())
    assert key not in cache.allocated
    cache.set_claim(claim("gpu-0"))
    cache.drop_claim("c")
    assert not cache.allocated
