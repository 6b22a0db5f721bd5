"""Fairlead's own programs and the nodes under a gang die; the apiserver stumbles: gangs end whole, nothing leaks."""

from typing import Any

import pytest

from fairlead.api import names
from fairlead.kube import errors
from fairlead.kube.resources import EVENTS, JOBS, PODS
from fairlead.sandbox.apiserver.faults import Fault
from fairlead.sandbox.cluster import Cluster
from fairlead.sandbox.objects import allocation_of, is_deleting, is_true, node_name_of, phase_of, spec_of
from tests.support.sandbox import FOREVER, View, gang_of, job, pod, template, until

pytestmark = pytest.mark.slow

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

    # A pod whose template alone makes it ours is created, but gets no device, and an event says why.
    await made.apply([pod("slipped", claim="one")])

    async def reported() -> bool:
        events = [e for e in await view.all(EVENTS, "default") if e["involvedObject"]["name"] == "slipped"]
        return any(e["type"] == "Warning" and "fairlead" in e["message"] for e in events)

    await until(reported)
    assert not any(c.get("status", {}).get("allocation") for c in await view.claims())

    await made.start_webhook()
    await made.apply([legacy("legacy")])
    await view.phase("legacy", "Succeeded")
    await view.client.delete(PODS, "slipped", "default")
    await clean(made, view)


# -- the controller ------------------------------------------------------------------------------------------------


async def test_a_controller_killed_after_half_of_a_gangs_claims_leaves_no_pod_released_and_its_successor_ends_it(
    fairlead: Fairlead,
) -> None:
    made, view = fairlead
    assert made.controller is not None
    # Six claims are written; the others hang until the controller is dead.
    status: dict[str, Any] = {"resource": "resourceclaims", "subresource": "status", "user": names.CONTROLLER_USER}
    made.server.faults.add(Fault(**status, count=6))
    made.server.faults.add(Fault(**status, count=None, delay_s=60.0))
    await made.apply(
        [template("one", selector=H100), job("g", pod("x", claim="one", annotations=gang_of("g")), size=12)]
    )

    async def half() -> bool:
        return sum(allocation_of(claim) is not None for claim in await view.claims()) == 6

    await until(half)
    await made.controller.kill()
    assert all(spec_of(each).get("schedulingGates") for each in await view.all(PODS, "default"))
    made.server.faults.clear()
    await made.start_controller(name="successor")
    await complete(view, "g")
    await clean(made, view)


# -- nodes and drivers under a gang -----------------------------------------------------------------------------------


async def test_a_gang_whose_node_vanishes_runs_whole_again_elsewhere(fairlead: Fairlead) -> None:
    made, view = fairlead
    notes = gang_of("g") | {names.MODELS: "any"}  # what is left has an H100 node and an L40S node
    await made.apply(
        [template("eight", count=8), job("g", pod("x", claim="eight", annotations=notes, command=FOREVER), size=2)]
    )

    async def running() -> Any:
        pods = [p for p in await view.all(PODS, "default") if phase_of(p) == "Running" and not is_deleting(p)]
        return pods if len(pods) == 2 else None

    first = await until(running)
    lost = made.nodes[node_name_of(first[0])]
    await lost.power_off()

    async def moved() -> bool:
        pods = await running()
        return pods is not None and lost.name not in {node_name_of(p) for p in pods}

    await until(moved)
    await view.client.delete(JOBS, "g", "default", propagation="Background")
    await lost.power_on()

    async def no_pods() -> bool:
        return await view.all(PODS, "default") == []

    await until(no_pods)
    await clean(made, view)
