"""`fairlead smoke`: what a container sees is what was allocated; what cannot be tested is said; nothing is left."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fairlead.cli.gpus import smoke_objects
from fairlead.cli.gpus.smoke import Smoke, SmokeTest
from fairlead.cli.gpus.smoke_objects import verdict
from fairlead.cli.node import Fault
from fairlead.kube.resources import PODS, QUEUES, RESOURCE_CLAIMS, RESOURCE_SLICES
from fairlead.sandbox.cluster import Cluster, NodeSpec
from fairlead.sandbox.objects import results_of
from tests.support.commands import invoke
from tests.support.sandbox import FOREVER, View, cluster, pod, template, until

ONE = {"gpu-0": "GPU-aaaa"}


@pytest.mark.parametrize(
    ("message", "allocated", "ok", "detail"),
    [
        ("FAIRLEAD_DEVICE_GPU_0=GPU-aaaa", ONE, True, "as allocated: environment"),
        ("FAIRLEAD_DEVICE_GPU_0=GPU-aaaa\nnode=/dev/nvidia0\nsmi=GPU-aaaa", ONE, True, "nvidia-smi, device nodes"),
        ("", ONE, False, "its environment has not gpu-0"),
        (
            "FAIRLEAD_DEVICE_GPU_0=GPU-aaaa\nsmi=GPU-aaaa\nsmi=GPU-bbbb",
            ONE,
            False,
            "nvidia-smi lists GPU-bbbb, which is not allocated",
        ),
        ("FAIRLEAD_DEVICE_GPU_0=GPU-aaaa\nsmi=GPU-bbbb", ONE, False, "not gpu-0 and GPU-bbbb, which is not allocated"),
        ("FAIRLEAD_DEVICE_GPU_0=GPU-aaaa\nsmi-failed=Unable to determine the device handle", ONE, False, "smi: Unable"),
        ("FAIRLEAD_DEVICE_GPU_0=GPU-aaaa\nalso-failed=vectorAdd: no", ONE, False, "also: vectorAdd: no"),
        ("FAIRLEAD_DEVICE_M=MIG-a\nsmi=GPU-aaaa\nsmi=MIG-a", {"gpu-0-mig-1g10gb-19-0": "MIG-a"}, True, "nvidia-smi"),
    ],
)
def test_the_verdict_compares_what_was_seen_with_what_was_allocated(
    message: str, allocated: dict[str, str], ok: bool, detail: str
) -> None:
    found = verdict(message, allocated)
    assert (found.ok, detail in found.detail) == (ok, True), found


def run_script(path: Path, text: str, **programs: str) -> str:
    """What the script leaves as termination message, in a shell that has these programs, too."""
    bin_path = path / "bin"
    bin_path.mkdir()
    for name, body in programs.items():
        (bin_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (bin_path / name).chmod(0o755)
    log = path / "log"
    done = subprocess.run(
        ["/bin/sh", "-c", text.replace("/tmp/", f"{path}/").replace("/dev/termination-log", str(log))],
        env={"PATH": f"{bin_path}:{os.environ['PATH']}", "FAIRLEAD_DEVICE_GPU_0": "GPU-aaaa", "HOME": "/"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return log.read_text()


def test_the_script_tells_what_nvidia_smi_and_nccl_tests_print(tmp_path: Path) -> None:
    smi = "echo 'GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-aaaa)'; echo '  MIG 1g.10gb Device 0: (UUID: MIG-b-1)'"
    nccl = "echo \"# $*\"; echo '# Avg bus bandwidth    : 412.75'"
    left = run_script(tmp_path, smoke_objects.script(8, "true"), **{"nvidia-smi": smi, "all_reduce_perf": nccl})
    lines = left.splitlines()
    assert lines[0] == "FAIRLEAD_DEVICE_GPU_0=GPU-aaaa"
    assert {"smi=GPU-aaaa", "smi=MIG-b-1", "busbw=412.75", "also=ok"} <= set(lines)
    assert verdict("FAIRLEAD_DEVICE_GPU_0=GPU-aaaa\nbusbw=412.75", ONE).bus_gb_s == 412.75


def test_the_script_tells_what_failed(tmp_path: Path) -> None:
    left = run_script(
        tmp_path,
        smoke_objects.script(1, "echo no CUDA; false"),
        **{"nvidia-smi": "echo Driver/library mismatch; exit 18"},
    )
    assert "smi-failed=Driver/library mismatch" in left
    assert "also-failed=no CUDA" in left
    assert "busbw" not in left


async def call(made: Cluster, *words: str) -> Any:
    given = [*words, "--kubeconfig", str(made.kubeconfig())]
    return await asyncio.to_thread(invoke, given, env={"COLUMNS": "200"})


async def left_over(view: View) -> list[str]:
    found = [*await view.all(PODS, "default"), *await view.all(RESOURCE_CLAIMS, "default")]
    return [each["metadata"]["name"] for each in found if smoke_objects.LABEL in (each["metadata"].get("labels") or {})]


@pytest.mark.slow
async def test_each_free_device_of_a_node_is_tested_and_nothing_is_left_and_a_node_without_any_is_named() -> None:
    async with cluster(NodeSpec("a", "l40s"), NodeSpec("b", "l40s")) as made, made.client() as client:
        view = View(client)
        await made.apply([template("one"), pod("train", claim="one", command=FOREVER)])
        await view.phase("train", "Running")
        done = await call(made, "smoke", "nowhere")
        assert (done.exit_code, "node nowhere publishes no devices" in done.output) == (1, True)
        [claim] = await view.claims("default")
        result = results_of(claim)[0]
        node, held = result["pool"], result["device"]
        broken = "gpu-3" if held != "gpu-3" else "gpu-2"
        assert Fault(device=broken, plugins_dir=made.nodes[node].plugins_dir, lost=True).run() == 0

        await until(lambda: _tainted(view, node), what="the fault is published")
        done = await call(made, "smoke", node, "-o", "json", "--timeout", "60")
        assert done.exit_code == 0, done.output
        rows = {row["devices"][0]: row for row in json.loads(done.stdout)}
        assert rows[held]["detail"] == f"claim default/{claim['metadata']['name']} has {held}"
        assert "gpu-lost" in rows[broken]["detail"]
        tested = {name for name, row in rows.items() if row["result"] == "ok"}
        assert tested == set(rows) - {held, broken}
        assert len(tested) >= 2
        await until(lambda: _none(view), what="pods and claims are removed")

        together = await call(made, "smoke", node, "--together")
        assert together.exit_code == 0, together.output
        assert f"{len(tested)} GPUs" in together.stdout
        await until(lambda: _none(view), what="pods and claims are removed")


@pytest.mark.slow
async def test_why_its_pods_wait_is_told_while_they_do_and_again_when_the_time_is_up() -> None:
    async with cluster(NodeSpec("a", "l40s")) as made, made.client() as client:
        await client.create(QUEUES, {"metadata": {"name": "everyone"}, "spec": {"namespaceSelector": {}}})
        done = await call(made, "smoke", "a", "--queue", "nowhere", "--timeout", "8")
        assert done.exit_code == 1, done.output
        told = [each for each in done.stderr.splitlines() if " waits: " in each]
        assert len(told) == 1, done.stderr  # once for all devices
        assert "waits: UnknownQueue: " in told[0] and "nowhere" in told[0]
        assert done.stdout.count("not finished within 8 s: UnknownQueue: ") >= 2


@pytest.mark.slow
async def test_a_device_that_is_tainted_while_its_pod_waits_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.cli.gpus.smoke.RECHECK_S", 0.2)
    async with cluster(NodeSpec("a", "l40s")) as made, made.client() as client:
        view = View(client)
        tested = Smoke(client, SmokeTest(node="a", namespace="default", timeout_s=60))
        before = await tested._found()
        assert Fault(device="gpu-2", plugins_dir=made.nodes["a"].plugins_dir, lost=True).run() == 0
        await until(lambda: _tainted(view, "a"), what="the fault is published")

        async def found_before() -> Any:
            return before

        monkeypatch.setattr(tested, "_found", found_before)
        async with asyncio.timeout(40):
            rows = {row.devices[0]: row for row in await tested.run()}
        assert rows["gpu-2"].result == "failed"
        assert rows["gpu-2"].detail.startswith("tainted meanwhile: gpu-2: gpu.fairlead.dev/gpu-lost=")
        assert {row.result for name, row in rows.items() if name != "gpu-2"} == {"ok"}
        await until(lambda: _none(view), what="pods and claims are removed")


async def _tainted(view: View, node: str) -> bool:
    slices = [each for each in await view.all(RESOURCE_SLICES) if each["spec"].get("nodeName") == node]
    devices = [device for each in slices for device in each["spec"].get("devices") or ()]
    return any("gpu-lost" in taint["key"] for device in devices for taint in device.get("taints") or ())


async def _none(view: View) -> bool:
    return await left_over(view) == []


@pytest.mark.slow
async def test_a_run_that_is_stopped_or_killed_leaves_nothing() -> None:
    async with cluster(NodeSpec("a", "l40s")) as made, made.client() as client:
        view = View(client)
        forever = SmokeTest(node="a", namespace="default", also="sleep infinity", timeout_s=60)
        task = asyncio.create_task(Smoke(client, forever).run())

        async def running() -> bool:
            return len(await left_over(view)) >= 8

        await until(running, what="pods and claims exist")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: _none(view), what="pods and claims are removed")
        # What a killed run left is removed by the next one, once its pods have ended.
        labels = {smoke_objects.LABEL: "old", smoke_objects.NODE_LABEL: "a"}
        old = pod("smoke-old", command=("true",))
        old["metadata"]["labels"] = labels
        await made.apply([old])
        await view.phase("smoke-old", "Succeeded")
        done = await call(made, "smoke", "a")
        assert done.exit_code == 0, done.output
        await until(lambda: _none(view), what="the old pod is removed, too")
