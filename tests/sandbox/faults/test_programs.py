"""Fairlead's own programs and the nodes under a gang die; the apiserver stumbles: gangs end whole, nothing leaks."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fairlead.kube import errors
from fairlead.kube.resources import EVENTS, GANGS, JOBS, PODS
from fairlead.sandbox.cluster import Cluster
from fairlead.sandbox.objects import is_deleting, is_true, node_name_of, phase_of, spec_of
from fairlead.sandbox.testing import FOREVER, View, gang_of, job, pod, template, until

Fairlead = tuple[Cluster, View]
H100 = 'device.attributes["gpu.fairlead.dev"].productName.contains("H100")'


async def clean(made: Cluster, view: View) -> None:
    """Nothing is held any more: no allocation, no reservation, nothing on any node."""
    await view.no_claims()
    for node in made.nodes.values():
        await until(lambda node=node: not list(node.leftovers()), what=f"{node.name} is clean")  # type: ignore[misc]


async def complete(view: View, name: str, *, timeout_s: float = 40.0) -> None:
    async def done() -> bool:
        try:
            found = await view.get(JOBS, name)
        except errors.ApiError:
            return False
        return found is not None and is_true(found, "Complete")

    await until(done, timeout_s=timeout_s, what=f"job {name} is complete")


def legacy(name: str) -> dict[str, Any]:
    made = pod(name)
    made["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": 1}}
    return made


# -- the webhook ---------------------------------------------------------------------------------------------------


async def test_a_webhook_that_is_down_blocks_nothing_but_what_says_that_it_is_ours(fairlead: Fairlead) -> None:
    made, view = fairlead
    await made.apply([template("one")])
    assert made.webhook is not None
    await made.webhook.kill()
    await made.apply([pod("plain")])
    await view.phase("plain", "Succeeded")
    with pytest.raises(errors.ServerError, match=r'failed calling webhook "pods\.fairlead\.dev"'):
        await made.apply([legacy("legacy")])

    # A pod whose template alone makes it ours comes in, but gets no device out of turn, and is told why.
    await made.apply([pod("slipped", claim="one")])

    async def told() -> bool:
        events = [e for e in await view.all(EVENTS, "default") if e["involvedObject"]["name"] == "slipped"]
        return any(e["type"] == "Warning" and "fairlead" in e["message"] for e in events)

    await until(told)
    assert not any(c.get("status", {}).get("allocation") for c in await view.claims())

    await made.start_webhook()
    await made.apply([legacy("legacy")])
    await view.phase("legacy", "Succeeded")
    await view.client.delete(PODS, "slipped", "default")
    await clean(made, view)


# -- the controller ------------------------------------------------------------------------------------------------


async def test_a_controller_killed_while_gangs_come_in_is_succeeded_by_another(fairlead: Fairlead) -> None:
    made, view = fairlead
    assert made.controller is not None
    await made.apply([template("one", selector=H100)])
    for number in range(3):
        gang = f"g{number}"
        await made.apply(
            [job(gang, pod("x", claim="one", annotations=gang_of(gang), command=("sleep", "0.5")), size=6)]
        )
        if number == 1:
            await made.controller.kill()
    await made.start_controller(name="successor")
    for number in range(3):
        await complete(view, f"g{number}")
    await clean(made, view)


# -- nodes and drivers under a gang -----------------------------------------------------------------------------------


async def test_a_gang_whose_node_vanishes_runs_whole_again_elsewhere(fairlead: Fairlead) -> None:
    made, view = fairlead
    await made.apply(
        [
            template("eight", count=8),
            job("g", pod("x", claim="eight", annotations=gang_of("g"), command=FOREVER), size=2),
        ]
    )

    async def running() -> Any:
        pods = [p for p in await view.all(PODS, "default") if phase_of(p) == "Running" and not is_deleting(p)]
        return pods if len(pods) == 2 else None

    first = await until(running)
    lost = made.nodes[node_name_of(first[0])]
    await lost.vanish()

    async def moved() -> bool:
        pods = await running()
        return pods is not None and lost.name not in {node_name_of(p) for p in pods}

    await until(moved)
    await view.client.delete(JOBS, "g", "default", propagation="Background")
    await lost.return_()

    async def no_pods() -> bool:
        return await view.all(PODS, "default") == []

    await until(no_pods)
    await clean(made, view)


async def test_a_gang_waits_for_a_driver_that_died_between_prepare_and_reply_and_runs_whole(fairlead: Fairlead) -> None:
    made, view = fairlead
    node = made.nodes["left"]
    dead = node.kill_driver_before_reply("NodePrepareResources")
    await made.apply(
        [template("four", count=4, selector=H100), job("g", pod("x", claim="four", annotations=gang_of("g")), size=4)]
    )
    async with asyncio.timeout(20):
        await dead.wait()
    await node.start_driver()
    await complete(view, "g")
    await clean(made, view)


# -- the apiserver -------------------------------------------------------------------------------------------------

TROUBLE: list[dict[str, Any]] = [
    {"code": 409, "verb": "update", "resource": "resourceclaims", "count": 10},
    {"code": 409, "verb": "patch", "resource": "resourceclaims", "count": 10},
    {"code": 429, "count": 30, "retry_after_s": 1},
    {"code": 500, "resource": "resourceclaims", "count": 12},
    {"code": 500, "resource": "resourceclaims", "count": 6, "after": True},
    {"code": 500, "verb": "patch", "resource": "pods", "count": 6},
    {"code": 500, "verb": "patch", "resource": "pods", "count": 6, "after": True},
]


@pytest.mark.parametrize("trouble", TROUBLE, ids=lambda t: "-".join(str(v) for v in t.values()))
async def test_gangs_run_whole_although_the_apiserver_answers_with_errors(
    fairlead: Fairlead, trouble: dict[str, Any]
) -> None:
    made, view = fairlead
    await made.apply([template("two", count=2, selector=H100)])
    wanted = [job(n, pod("x", claim="two", annotations=gang_of(n)), size=5) for n in ("a", "b")]
    made.server.faults.fail(**trouble)

    async def applied() -> bool:
        try:
            await made.apply(wanted)
        except errors.ApiError:
            return False
        return True

    await until(applied)
    for name in ("a", "b"):
        await complete(view, name)
    made.server.faults.clear()
    await clean(made, view)


async def disturbed(work: Awaitable[None], disturb: Callable[[], object]) -> None:
    """Do the work while something is disturbed ten times a second."""

    async def again() -> None:
        while True:
            disturb()
            await asyncio.sleep(0.1)

    task = asyncio.create_task(again())
    try:
        await work
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_gangs_run_whole_although_every_watch_is_closed_again_and_again(fairlead: Fairlead) -> None:
    made, view = fairlead
    await made.apply([template("two", count=2, selector=H100)])

    async def work() -> None:
        await made.apply([job(n, pod("x", claim="two", annotations=gang_of(n)), size=5) for n in ("a", "b")])
        for name in ("a", "b"):
            await complete(view, name)

    await disturbed(work(), made.server.faults.close_watches)
    await clean(made, view)


async def test_a_released_pod_keeps_its_gate_off_and_a_waiting_one_keeps_it(fairlead: Fairlead) -> None:
    made, view = fairlead
    await made.apply([template("eight", count=8, selector=H100)])
    for name in ("a", "b"):
        await made.apply([job(name, pod("x", claim="eight", annotations=gang_of(name), command=FOREVER), size=2)])

    async def one_runs() -> Any:
        gangs = {g["metadata"]["name"]: g.get("status", {}).get("phase") for g in await view.all(GANGS, "default")}
        return gangs if sorted(map(str, gangs.values())) == ["Running", "Waiting"] else None

    phases = await until(one_runs)
    for each in await view.all(PODS, "default"):
        gang = each["metadata"]["annotations"]["fairlead.dev/gang"]
        assert bool(spec_of(each).get("schedulingGates")) is (phases[gang] == "Waiting")
