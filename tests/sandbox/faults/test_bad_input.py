"""What users get wrong: each mistake is refused, or waits, with a reason that names it; nothing is held meanwhile."""

from typing import Any

import pytest

from fairlead.api import names
from fairlead.kube.resources import EVENTS, GANGS, JOBS, PODS, RESOURCE_CLAIMS
from fairlead.sandbox.cluster import Cluster
from fairlead.sandbox.objects import allocation_of, spec_of
from tests.support.sandbox import FOREVER, View, gang_of, job, pod, template, until

Fairlead = tuple[Cluster, View]
pytestmark = pytest.mark.asyncio(loop_scope="module")


async def held(view: View) -> list[str]:
    return [claim["metadata"]["name"] for claim in await view.claims() if allocation_of(claim)]


@pytest.mark.slow
async def test_an_unknown_class_is_named_where_the_user_looks(shared: Fairlead) -> None:
    made, view = shared
    wanted = template("odd")
    wanted["spec"]["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = "no-such-class"
    await made.apply([wanted, pod("p", claim="odd")])

    async def reported() -> bool:
        events = [e for e in await view.all(EVENTS, "default") if e["involvedObject"]["name"] == "p"]
        return any("DeviceClass no-such-class does not exist" in e["message"] for e in events)

    await until(reported)
    gang = await view.gang("p", "Waiting")
    assert "DeviceClass no-such-class does not exist" in gang["status"]["message"]
    assert await held(view) == []
    await view.client.delete(PODS, "p", "default")
    await view.gone(GANGS, "p")


@pytest.mark.slow
async def test_a_gang_larger_than_the_cluster_says_so_and_holds_nothing(shared: Fairlead) -> None:
    made, view = shared
    await made.apply(
        [template("eight", count=8), job("huge", pod("x", claim="eight", annotations=gang_of("huge")), size=4)]
    )
    gang = await view.gang("huge", "Waiting")

    async def never() -> Any:
        found = await view.get(GANGS, "huge")
        return found if found and found.get("status", {}).get("reason") == "NeverFits" else None

    gang = await until(never)
    assert "32 wanted" in gang["status"]["message"]
    assert await held(view) == []
    # Others are served meanwhile.
    await made.apply([template("one"), pod("small", claim="one")])
    await view.phase("small", "Succeeded")
    await view.client.delete(JOBS, "huge", "default", propagation="Foreground")
    await view.gone(JOBS, "huge")
    await view.gone(GANGS, "huge")
    assert await view.claims() == []


@pytest.mark.slow
async def test_a_claim_deleted_while_its_gang_waits_is_made_again_and_the_gang_runs(shared: Fairlead) -> None:
    made, view = shared
    h100 = 'device.attributes["gpu.fairlead.dev"].productName.contains("H100")'
    await made.apply([template("eight", count=8, selector=h100), pod("first", claim="eight", command=FOREVER)])
    await view.phase("first", "Running")
    notes = {**gang_of("pair"), names.CLAIM_NAMES: "generated"}  # else no claim exists while it waits
    await made.apply([job("pair", pod("x", claim="eight", annotations=notes), size=2)])
    await view.gang("pair", "Waiting")

    async def made_claims() -> Any:
        mine = [c for c in await view.claims() if c["metadata"]["name"].startswith("pair-")]
        return mine if len(mine) == 2 else None

    claims = await until(made_claims)
    for claim in claims:
        await view.client.delete(RESOURCE_CLAIMS, claim["metadata"]["name"], "default")

    async def made_again() -> bool:
        fresh = await made_claims()
        return fresh is not None and not {c["metadata"]["uid"] for c in fresh} & {c["metadata"]["uid"] for c in claims}

    await until(made_again)
    assert all(
        spec_of(p).get("schedulingGates") for p in await view.all(PODS, "default") if p["metadata"]["name"] != "first"
    )
    await view.client.delete(PODS, "first", "default")
    await view.gang("pair", "Finished")
    await view.no_claims()
    for node in made.nodes.values():
        assert list(node.leftovers()) == []
