"""`fairlead device drain | undrain` on whole clusters: by rules and by the driver, over kills, and what it says."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fairlead.api import names
from fairlead.api import repair as api
from fairlead.cli.operate.drain_marks import TAINT, DriverMarks, RuleMarks, drained, served_rules
from fairlead.kube.client import Client
from fairlead.kube.resources import CRDS, DEVICE_TAINT_RULES, RESOURCE_SLICES, Raw, Resource, raw
from fairlead.sandbox.cluster import Cluster, NodeSpec
from fairlead.sandbox.objects import results_of
from tests.support.commands import invoke
from tests.support.sandbox import FOREVER, View, cluster, gang_of, pod, template, until


def invoked(made: Cluster, *words: str, user: str = "admin") -> Any:
    config = ("--kubeconfig", str(made.kubeconfig(user)))
    return invoke(["device", *words, *config], env={"COLUMNS": "200"})


async def call(made: Cluster, *words: str, user: str = "admin") -> Any:
    return await asyncio.to_thread(invoked, made, *words, user=user)


def said(done: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


async def serve_rules(client: Client) -> None:
    """As an apiserver of 1.37 does of itself."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    kind = {"plural": "devicetaintrules", "singular": "devicetaintrule", "kind": "DeviceTaintRule"}
    approved = {"api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements/pull/5055"}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    body = {
        "metadata": {"name": "devicetaintrules.resource.k8s.io", "annotations": approved},
        "spec": {
            "group": "resource.k8s.io",
            "names": {**kind, "listKind": "DeviceTaintRuleList"},
            "scope": "Cluster",
            "versions": [version],
        },
    }
    await client.create(raw(CRDS), body)


async def tainted(client: Client) -> dict[str, str]:
    """Devices that the node's driver taints for repairs and drains, with the taint's value."""
    return {
        device["name"]: taint.get("value", "")
        for each in (await client.list(raw(RESOURCE_SLICES))).items
        for device in each["spec"].get("devices", [])
        for taint in device.get("taints", [])
        if taint["key"] == api.TAINT
    }


class Rules:
    """An apiserver's rules for drained devices, and nothing else."""

    def __init__(self, *devices: str) -> None:
        self.there = {
            each: {
                "metadata": {"name": each, "uid": each},
                "spec": {"deviceSelector": dict(zip(("pool", "device"), each.split("/"), strict=True))},
            }
            for each in devices
        }

    async def list(self, kind: Resource[Raw], *_: Any, **__: Any) -> Any:
        return SimpleNamespace(items=list(self.there.values()) if kind.plural == "devicetaintrules" else [])

    async def delete(self, _: Any, name: str, *, uid: str) -> None:
        del self.there[name]


async def test_what_is_undrained_is_one_gpu_of_one_node() -> None:
    rules = Rules("a/gpu-1", "a/gpu-1-mig-1g.10gb-19-0", "a/gpu-10", "b/gpu-1")
    assert await RuleMarks(cast("Client", rules), raw(DEVICE_TAINT_RULES), "a", "gpu-1").take()
    assert set(rules.there) == {"a/gpu-10", "b/gpu-1"}


async def test_drained_gpus_are_listed_by_node_and_number() -> None:
    rules = Rules("b/gpu-1", "a/gpu-10", "a/gpu-2")
    found = await drained(cast("Client", rules))
    assert [(each["node"], each["gpu"]) for each in found] == [("a", "gpu-2"), ("a", "gpu-10"), ("b", "gpu-1")]


@pytest.mark.parametrize(
    "words", [("gpu-1",), ("a/",), ("/gpu-1",), ("a/gpu-x",), ("a/gpu-1-mig-1g.10gb-19-0",), ("a/gpu-1234",)]
)
def test_what_is_no_gpu_is_said_with_an_example(words: tuple[str, ...]) -> None:
    for command in ("drain", "undrain"):
        done = invoke(["device", command, *words])
        assert done.exit_code == 2
        assert "write hgx-h100-a/gpu-3" in " ".join(done.output.replace("│", " ").split())


@pytest.mark.slow
async def test_by_the_driver_a_gpu_is_kept_from_claims_over_a_kill_until_it_is_given_back() -> None:
    async with cluster(NodeSpec("a", "l40s")) as made, made.client() as client:
        view = View(client)
        assert await served_rules(client) is None
        annotations = gang_of("train", 1)
        await made.apply([template("one"), pod("train-0", claim="one", command=FOREVER, annotations=annotations)])
        await view.phase("train-0", "Running")
        [claim] = await view.claims("default")
        device = results_of(claim)[0]["device"]

        looked = await call(made, "drain", f"a/{device}", "--dry-run")
        assert looked.exit_code == 0, looked.output
        assert f"gang default/train holds {device}: default/train-0" in looked.stdout
        assert await tainted(client) == {}

        waited = await call(made, "drain", f"a/{device}", "--timeout", "0", "--json")
        assert waited.exit_code == 3, waited.output
        lines = said(waited)
        assert [each["phase"] for each in lines] == ["drained", "held", "unfinished"]
        assert (lines[1]["gang"], lines[1]["devices"]) == ("default/train", [device])
        await until(lambda: tainted(client), what="the taint")
        assert await tainted(client) == {device: "drained"}
        assert device in (await call(made, "list")).stdout

        await made.nodes["a"].kill_driver()
        await made.nodes["a"].start_driver()
        again, twice = await asyncio.gather(*(DriverMarks(client, "a", device).put(reason="", by="") for _ in range(2)))
        assert (again, twice) == (False, False), "it is drained still"
        done = await call(made, "drain", f"a/{device}", "--drain", "evict", "--timeout", "60", "--json")
        assert done.exit_code == 0, done.output
        assert any("pod default/train-0 is evicted" in each["message"] for each in said(done))
        assert said(done)[-1]["phase"] == "empty"
        assert await tainted(client) == {device: "drained"}

        given = await call(made, "undrain", f"a/{device}")
        assert given.exit_code == 0, given.output
        assert "is given to claims again" in given.stdout

        async def clean() -> bool:
            return await tainted(client) == {}

        await until(clean)
        assert "is not drained" in (await call(made, "undrain", f"a/{device}")).stdout
        for gpu, text in (
            ("a/gpu-77", "node a has no gpu-77; it has gpu-0"),
            ("b/gpu-0", "node b publishes no devices"),
        ):
            wrong = await call(made, "drain", gpu)
            assert (wrong.exit_code, text in wrong.stderr) == (1, True), wrong.output
        refused = await call(made, "drain", f"a/{device}", user="rita")
        assert (refused.exit_code, "devicetaintrules" in refused.stderr or "may not" in refused.stderr) == (1, True)


async def test_by_rules_nothing_new_is_allocated_there_and_two_at_once_write_the_same() -> None:
    async with cluster(NodeSpec("a", "t4"), run_programs=False) as made, made.client() as client:
        view = View(client)
        await serve_rules(client)
        rules = await served_rules(client)
        assert rules is not None

        async def published() -> list[str]:
            slices = await view.all(RESOURCE_SLICES)
            return sorted(each["name"] for one in slices for each in one["spec"].get("devices", []))

        devices = await until(published)
        for device in devices:
            both = (RuleMarks(client, rules, "a", device) for _ in range(2))
            assert any(await asyncio.gather(*(each.put(reason="fans", by="admin") for each in both)))
        written = (await client.list(rules)).items
        assert sorted(each["spec"]["deviceSelector"]["device"] for each in written) == devices
        assert all(
            each["spec"]["deviceSelector"]
            == {"driver": names.DRIVER, "pool": "a", "device": each["spec"]["deviceSelector"]["device"]}
            for each in written
        )
        assert {(each["spec"]["taint"]["key"], each["spec"]["taint"]["effect"]) for each in written} == {
            (TAINT, "NoSchedule")
        }
        listed = json.loads((await call(made, "list", "-o", "json")).stdout)
        assert [(each["gpu"], each["reason"], each["by"]) for each in listed] == [
            (each, "fans", "admin") for each in sorted(devices)
        ]
        done = await call(made, "drain", f"a/{devices[0]}", "--json")
        assert done.exit_code == 0, done.output
        assert (said(done)[0]["changed"], said(done)[-1]["phase"]) == (False, "empty")
        assert (await call(made, "resume", f"a/{devices[0]}")).exit_code == 0
        assert len((await client.list(rules)).items) == len(devices) - 1
        assert await tainted(client) == {}, "the driver was not asked"
