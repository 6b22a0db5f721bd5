"""`fairlead doctor` and `fairlead check readiness` on a cluster in memory: what they print, as whom, and with which exit status."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from typer.testing import Result

from fairlead.cli.health.doctor import diagnosis
from fairlead.cli.health.readiness import checklist
from fairlead.kube.releases import OLDEST
from fairlead.kube.resources import PODS, RESOURCE_SLICES
from fairlead.sandbox.cluster import Cluster, ClusterOptions, NodeSpec
from tests.support.commands import invoke
from tests.support.sandbox import cluster as whole_cluster
from tests.support.sandbox import until


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def bare(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Fairlead's manifests are applied, and none of its programs runs."""
    async with Cluster(ClusterOptions(workdir=tmp_path_factory.mktemp("c"), nodes=(), run_programs=False)) as made:
        yield made


async def call(made: Cluster, words: tuple[str, ...], user: str) -> Result:
    given = [*words, "--kubeconfig", str(made.kubeconfig(user))]
    return await asyncio.to_thread(invoke, given, env={"COLUMNS": "200"})


async def doctor(made: Cluster, *words: str, user: str = "admin") -> Result:
    return await call(made, ("doctor", *words), user)


async def readiness(made: Cluster, *words: str, user: str = "admin") -> Result:
    return await call(made, ("check", "readiness", *words), user)


@pytest.mark.asyncio(loop_scope="module")
async def test_of_an_install_whose_programs_do_not_run_it_names_them_all(bare: Cluster) -> None:
    done = await doctor(bare, "-o", "json")
    assert done.exit_code == diagnosis.FOUND, done.output
    found = json.loads(done.stdout)
    codes = [each["code"] for each in found["findings"]]
    assert codes[:3] == ["NoLeader", "WebhookNotRegistered", "NoSlices"]
    assert found["kubernetes"] == "v1.36.2"
    assert all(each["nextStep"] for each in found["findings"])
    text = await doctor(bare)
    assert "1. NoLeader (stops everything)" in text.stdout
    assert "not looked at: cannot get /metrics" in text.stdout


@pytest.mark.asyncio(loop_scope="module")
async def test_doctor_tells_a_user_without_rights_which_are_missing(bare: Cluster) -> None:
    done = await doctor(bare, user="stranger")
    assert done.exit_code == diagnosis.WELL, done.output
    assert "not looked at: you may not list pods" in done.stdout
    assert (
        "not looked at: whether the apiserver reaches the webhook: you may not create pods in namespace default"
        in done.stdout
    )
    assert "Traceback" not in done.output


@pytest.mark.asyncio(loop_scope="module")
async def test_nothing_is_left_of_the_trial(bare: Cluster) -> None:
    await doctor(bare)
    async with bare.client() as client:
        assert [each.metadata.name for each in (await client.list(PODS)).items] == []
        assert [each.metadata.name for each in (await client.list(RESOURCE_SLICES)).items] == []


@pytest.mark.asyncio(loop_scope="module")
async def test_a_table_names_what_fails_and_json_has_the_same(bare: Cluster) -> None:
    done = await readiness(bare)
    assert done.exit_code == checklist.FAILED
    assert "fix: kubectl apply -f examples/00-queues" in done.stdout
    listed = json.loads((await readiness(bare, "--json")).stdout)
    assert len(listed["items"]) == 49
    counts = listed["counts"]
    assert (
        f"{counts['pass']} pass, {counts['fail']} fail, {counts['not checkable here']} not checkable here"
        in done.stdout
    )
    queues = next(each for each in listed["items"] if each["item"] == "queues")
    assert queues["status"] == "fail"
    assert queues["fix"].startswith("kubectl apply")
    assert yaml.safe_load((await readiness(bare, "-o", "yaml")).stdout) == listed


async def test_on_the_oldest_release_both_say_what_is_less_and_that_nothing_has_to_be_done(tmp_path: Path) -> None:
    async with Cluster(ClusterOptions(workdir=tmp_path, nodes=(), run_programs=False, release=OLDEST)) as made:
        found = json.loads((await doctor(made, "-o", "json")).stdout)
        note = next(each for each in found["findings"] if each["code"] == "NotOnThisCluster")
        assert note["stops"] == "nothing"
        seen = "\n".join(note["evidence"])
        assert "taints of broken and drained GPUs: a slice created with dryRun came back without it" in seen
        assert "the driver leaves such a GPU out of its slices" in seen
        assert [each["there"] for each in found["needs"] if each["key"] == "pod-groups"] == [False]
        untried = json.loads((await doctor(made, "-o", "json", "--no-try-slices")).stdout)
        taints = next(each for each in untried["needs"] if each["key"] == "device-taints")
        assert "off by default; whether DRADeviceTaints was turned on is not visible" in taints["known"]
        items = json.loads((await readiness(made, "--json", "-g", "infrastructure")).stdout)["items"]
        assert next(each["status"] for each in items if each["item"] == "kubernetes") == "pass"


@pytest.mark.asyncio(loop_scope="module")
async def test_groups_are_chosen_by_name(bare: Cluster) -> None:
    done = await readiness(bare, "--json", "--group", "storage", "-g", "validation")
    assert {each["group"] for each in json.loads(done.stdout)["items"]} == {"storage", "validation"}
    assert done.exit_code == checklist.READY
    wrong = await readiness(bare, "--group", "money")
    assert wrong.exit_code == 2
    assert "infrastructure" in wrong.output


@pytest.mark.asyncio(loop_scope="module")
async def test_readiness_tells_a_user_without_rights_which_are_missing(bare: Cluster) -> None:
    done = await readiness(bare, "--json", "--group", "scheduling", user="stranger")
    assert done.exit_code == checklist.FAILED, done.output  # queues may be read by all, and there is none
    reasons = {each["item"]: each["why"] for each in json.loads(done.stdout)["items"]}
    assert reasons["taints"] == "you may not list nodes"
    assert reasons["resource-quotas"] == "you may not list resourcequotas"


@pytest.mark.slow
async def test_a_whole_cluster_is_well_until_its_programs_end() -> None:
    async with whole_cluster(NodeSpec("a", "l40s")) as made:
        await made.apply(
            [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "labels": {"fairlead.dev/gpu": "true"}}}]
        )
        done = await doctor(made)
        assert done.exit_code == diagnosis.WELL, done.output
        assert "nothing was found that keeps gangs from being scheduled" in done.stdout
        await made.stop_programs()

        async def found() -> bool:
            listed = json.loads((await doctor(made, "-o", "json")).stdout)["findings"]
            return {"NoLeader", "WebhookUnreachable"} <= {each["code"] for each in listed}

        await until(found)
