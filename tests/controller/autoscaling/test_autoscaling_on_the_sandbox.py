"""Demand for nodes on the sandbox: pods shown and hidden, objects made once and removed, by a leader and by the one after it."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.api import names
from fairlead.controller.autoscaling import visible
from fairlead.kube import core, resources
from fairlead.kube.client import Patch
from tests.controller.conftest import NAMESPACE, Bench, Life, benches

FLAVOR = {"name": "h100"}
SELECTOR = f'device.driver == "{names.DRIVER}" && device.attributes["{names.DRIVER}"].type == "gpu"'


@pytest.fixture
def named(request: pytest.FixtureRequest) -> bool:
    return bool(getattr(request, "param", True))


@pytest.fixture
async def bench(tmp_path: Path, named: bool) -> AsyncIterator[Bench]:
    async with benches(tmp_path, count=1, named=named) as made:
        await made.template("eight", 8)
        yield made


async def flavor(bench: Bench, **autoscaling: Any) -> None:
    spec = {"deviceSelector": SELECTOR, "autoscaling": {"mode": "Visible", **autoscaling}}
    await bench.client.create(resources.FLAVORS, {"metadata": FLAVOR, "spec": spec})


def shown(bench: Bench, pods: list[str]) -> bool:
    return all((pod := bench.get(name)) is not None and visible.shown(pod) for name in pods)


def gated_by_the_apiserver(pod: core.Pod | None) -> bool:
    condition = pod.condition("PodScheduled") if pod is not None else None
    return condition is not None and condition.reason == "SchedulingGated"


@pytest.mark.parametrize("named", [False], indirect=True, ids=["generated"])
async def test_a_gang_that_lacks_nodes_is_shown_with_its_claims_and_hidden_when_it_is_no_demand(bench: Bench):
    await flavor(bench)
    async with bench.controller():
        pods = await bench.gang("wide", 2, template="eight")
        await bench.until(lambda: shown(bench, pods), "its pods are shown")
        claims = bench.claims.all()
        assert len(claims) == 2
        assert not bench.allocated()
        await bench.until(lambda: bench.status("wide").get("reason") == "AwaitingNodes", "its status says so")
        status = bench.status("wide")
        assert status["phase"] == "Waiting"
        assert (status["nodesAwaited"]["state"], status["nodesAwaited"]["flavor"]) == ("Asked", "h100")
        assert "No scale-up of flavor h100 is known yet" in status["message"]
        assert any(each["type"] == "AwaitingNodes" and each["status"] == "True" for each in status["conditions"])
        small = await bench.gang("small", 1, template="eight")
        await bench.until(lambda: bench.running(small), "another gang runs on what is free")
        assert bench.gated(pods)
        body = {"spec": {"autoscaling": {"mode": "Off"}}}
        await bench.client.patch(resources.FLAVORS, "h100", body, kind=Patch.MERGE)
        await bench.until(lambda: all(gated_by_the_apiserver(bench.get(name)) for name in pods), "they are hidden")
        await bench.until(lambda: bench.status("wide").get("reason") == "NeverFits", "its status says that, too")
    assert len(bench.claims.all()) == 3


async def test_a_shown_gang_is_admitted_like_any_other_and_a_new_leader_makes_nothing_twice(bench: Bench):
    await flavor(bench)
    first = await bench.gang("first", 1, template="eight")
    async with bench.controller():
        await bench.until(lambda: bench.running(first), "it runs")
        pods = await bench.gang("next", 1, template="eight")
        await bench.until(lambda: shown(bench, pods), "it is shown")
        await bench.until(lambda: bench.status("next").get("reason") == "AwaitingNodes", "its status says so")
    since = bench.status("next")["nodesAwaited"]["since"]
    made = {claim.metadata.uid for claim in bench.claims.all()}
    async with bench.controller():
        await bench.until(lambda: bench.gangs.get(f"{NAMESPACE}/next") is not None, "its Gang is there")
        assert bench.status("next")["nodesAwaited"]["since"] == since
        assert shown(bench, pods)
        assert {claim.metadata.uid for claim in bench.claims.all()} == made
        await bench.delete(first)
        await bench.until(lambda: bench.running(pods), "it runs on what came free")
        await bench.until(lambda: bench.status("next").get("phase") == "Running", "its status says so")
        assert "nodesAwaited" not in bench.status("next")


async def test_what_the_apiserver_refuses_is_said_once_and_not_tried_again_at_once(
    bench: Bench, caplog: pytest.LogCaptureFixture
):
    role = await bench.client.get(resources.CLUSTER_ROLES, "fairlead-controller")
    rules = [each for each in role["rules"] if each["resources"] != ["pods/status"]]
    await bench.client.patch(resources.CLUSTER_ROLES, "fairlead-controller", {"rules": rules}, kind=Patch.MERGE)
    await flavor(bench)
    async with bench.controller():
        pods = await bench.gang("wide", 2, template="eight")
        await bench.until(
            lambda: "cannot be shown to autoscalers" in bench.status("wide").get("nodesAwaited", {}).get("message", ""),
            "its status says so",
        )
        assert "apply the chart's policies and roles" in bench.status("wide")["nodesAwaited"]["message"]
        assert not shown(bench, pods)
    assert len([each for each in caplog.records if "cannot be shown" in each.getMessage()]) == 1


@pytest.mark.slow
@pytest.mark.parametrize("writes", [1, 2, 3])
@pytest.mark.parametrize("named", [False, True], indirect=True, ids=["generated", "named"])
async def test_a_leader_that_dies_while_it_shows_pods_leaves_nothing_that_the_next_does_not_mend(
    bench: Bench, writes: int
):
    await flavor(bench)
    pods = await bench.gang("wide", 2, template="eight")
    life = Life(writes)
    await bench.mortal(life, lambda: shown(bench, pods))
    async with bench.controller():
        await bench.until(lambda: shown(bench, pods), "its pods are shown")
    assert len(bench.claims.all()) == 2
    assert not bench.allocated()
