"""`fairlead repair` on a whole cluster: drained by waiting or by eviction, over kills of the driver, and what it says."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from fairlead.cli.gpus.published import Holder, holders
from fairlead.cli.node import Fault
from fairlead.kube.resources import RESOURCE_SLICES
from fairlead.sandbox.cluster import Cluster, NodeSpec
from fairlead.sandbox.objects import results_of
from tests.support.commands import invoke
from tests.support.sandbox import FOREVER, View, cluster, pod, template, until


def invoked(made: Cluster, *words: str) -> Any:
    return invoke([*words, "--kubeconfig", str(made.kubeconfig())], env={"COLUMNS": "200"})


async def call(made: Cluster, *words: str) -> Any:
    return await asyncio.to_thread(invoked, made, *words)


def said(done: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


async def tainted(view: View) -> set[str]:
    return {
        device["name"]
        for each in await view.all(RESOURCE_SLICES)
        for device in each["spec"].get("devices", [])
        if any(taint["key"] == "gpu.fairlead.dev/repair" for taint in device.get("taints", []))
    }


@pytest.mark.slow
async def test_a_gpu_is_drained_over_a_kill_of_the_driver_reset_verified_and_given_again() -> None:
    async with cluster(NodeSpec("a", "l40s")) as made, made.client() as client:
        view = View(client)
        await made.apply([template("one"), pod("train", claim="one", command=FOREVER)])
        await view.phase("train", "Running")
        [claim] = await view.claims("default")
        device = results_of(claim)[0]["device"]

        looked = await call(made, "repair", "a", device, "--dry-run")
        assert looked.exit_code == 0
        assert f"has {device}: train; it would be waited for" in looked.stdout
        assert await tainted(view) == set()

        waited = await call(made, "repair", "a", device, "--timeout", "3", "--json")
        assert waited.exit_code == 3, waited.output
        last = said(waited)[-1]
        assert (last["phase"], last["gpu"]) == ("draining", device)
        assert await tainted(view) == {device}
        assert "draining" in (await call(made, "repair", "--list")).stdout

        await made.nodes["a"].kill_driver()
        await made.nodes["a"].start_driver()
        done = await call(made, "repair", "a", device, "--drain", "evict", "--timeout", "60", "--json")
        assert done.exit_code == 0, done.output
        lines = said(done)
        phases = [each["phase"] for each in lines if "phase" in each]
        assert phases[0] == "draining"
        assert phases[-1] == "done"
        assert any(
            "pod default/train is evicted; nothing will create it again" in line.get("message", "") for line in lines
        )
        assert await tainted(view) == set()
        await made.apply([pod("again", claim="one", command=FOREVER)])
        await view.phase("again", "Running")


@pytest.mark.slow
async def test_one_that_cannot_be_reset_stays_tainted_and_what_does_not_exist_is_named() -> None:
    async with cluster(NodeSpec("a", "l40s")) as made, made.client() as client:
        view = View(client)
        none = await call(made, "repair", "a", "gpu-77")
        assert (none.exit_code, "node a has no gpu-77; it has gpu-0, gpu-1" in none.output) == (1, True)
        unknown = await call(made, "repair", "b", "gpu-0")
        assert (unknown.exit_code, "node b publishes no devices" in unknown.output) == (1, True)
        assert Fault(device="gpu-1", plugins_dir=made.nodes["a"].plugins_dir, reset_fails=True).run() == 0
        done = await call(made, "repair", "a", "1", "--timeout", "30")
        assert done.exit_code == 1, done.output
        assert "failed: gpu-1: the reset failed" in done.stdout
        assert "docs/gpu-care.md, Repair" in done.stdout
        assert await tainted(view) == {"gpu-1"}
        back = await call(made, "repair", "a", "gpu-1", "--cancel")
        assert (back.exit_code, "a repair that succeeds ends the taint" in back.stdout) == (1, True)
        [row] = json.loads((await call(made, "repair", "--list", "--json")).stdout)
        assert (row["node"], row["gpu"], row["phase"]) == ("a", "gpu-1", "failed")

        await made.nodes["a"].kill_driver()
        await made.nodes["a"].start_driver()

        async def still() -> bool:
            return await tainted(view) == {"gpu-1"}

        await until(still, what="the taint is there again")


def test_wrong_words_are_refused_before_a_cluster_is_asked() -> None:
    for words, message in (
        (["repair", "a"], "name both"),
        (["repair", "a", "gpu-3-mig-1g10gb-19-0"], "is no GPU"),
        (["repair", "a", "gpu-3", "--list"], "leave NODE and GPU out"),
        (["repair", "a", "gpu-3", "--dry-run", "--cancel"], "goes without --dry-run"),
    ):
        done = invoke(words, env={"COLUMNS": "200"})
        assert (done.exit_code, message in done.output) == (2, True), done.output


def test_claims_of_mig_devices_of_the_gpu_hold_it_and_those_of_others_do_not() -> None:
    def claim(name: str, pool: str, *devices: str, driver: str = "gpu.fairlead.dev") -> dict[str, Any]:
        results = [{"driver": driver, "pool": pool, "device": each} for each in devices]
        return {
            "metadata": {"namespace": "ml", "name": name},
            "status": {
                "allocation": {"devices": {"results": results}},
                "reservedFor": [{"resource": "pods", "name": f"{name}-0", "uid": "u"}],
            },
        }

    watching = claim("watching", "a", "gpu-1")
    watching["status"]["allocation"]["devices"]["results"][0]["adminAccess"] = True
    claims = [
        claim("whole", "a", "gpu-1"),
        claim("part", "a", "gpu-1-mig-1g10gb-19-0", "gpu-2"),
        claim("like", "a", "gpu-11", "gpu-11-mig-1g10gb-19-0"),
        claim("elsewhere", "b", "gpu-1"),
        claim("other", "a", "gpu-1", driver="net.example.com"),
        {"metadata": {"namespace": "ml", "name": "waits"}},
        watching,
    ]
    assert "ml/watching" in [each.claim for each in holders(claims, "a", {"gpu-1"})]
    found = holders(claims, "a", {"gpu-1"}, admin=False)
    assert found == [
        Holder("ml/part", ("gpu-1-mig-1g10gb-19-0",), (("part-0", "u"),)),
        Holder("ml/whole", ("gpu-1",), (("whole-0", "u"),)),
    ]
