"""The cluster in a process, as stock Kubernetes: pods, Jobs, claims and nodes, with the real driver on a node."""

import asyncio
import contextlib
import gc
import os
import time
from pathlib import Path
from typing import Any

import pytest

from fairlead.kube.resources import (
    EVENTS,
    NAMESPACES,
    NODES,
    PODS,
    RESOURCE_SLICES,
    SERVICE_ACCOUNTS,
    VALIDATING_POLICY_BINDINGS,
)
from fairlead.sandbox.cluster import Cluster, NodeSpec
from fairlead.sandbox.install.programs import ProgramError
from fairlead.sandbox.objects import condition, phase_of, results_of
from tests.support import tasks
from tests.support.sandbox import View, cluster, job, pod, template, until

pytestmark = pytest.mark.slow

Stock = tuple[Cluster, View]


def children() -> list[str]:
    """Command lines of program hosts below the template that we started, and of what they forked."""
    ours = {os.getpid()}
    found: list[str] = []
    for _ in range(3):  # the template, its children, then theirs
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                command = (entry / "cmdline").read_text().replace("\0", " ")
                if parent in ours and int(entry.name) not in ours and "program_host" in command:
                    ours.add(int(entry.name))
                    if parent != os.getpid():
                        found.append(command)
    return found


async def test_a_cluster_starts_in_seconds_and_leaves_nothing_behind(tmp_path: Path) -> None:
    began_s = time.monotonic()
    nodes = tuple(NodeSpec(name, profile) for name, profile in (("a", "hgx-h100"), ("b", "dgx-a100"), ("c", "l40s")))
    async with cluster(*nodes, run_programs=False) as made, made.client() as client:
        assert time.monotonic() - began_s < 30
        view = View(client)
        assert {each["metadata"]["name"] for each in await view.all(NODES)} == {"a", "b", "c"}
        assert {each["spec"]["nodeName"] for each in await view.all(RESOURCE_SLICES)} == {"a", "b", "c"}
        workdir = made.options.workdir
        assert len(children()) >= 4  # the host and three drivers
    assert not workdir.exists()
    assert children() == []
    await asyncio.sleep(0)
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []
    gc.collect()  # unclosed sockets and coroutines never awaited would be warnings, and so errors


async def test_a_loop_that_ends_under_a_cluster_ends_it() -> None:
    """As after a test that timed out: asyncio cancels every task at once, those that stop the cluster in order among them."""

    async def interrupted() -> None:
        async with cluster(NodeSpec("a", "l40s"), run_programs=False):
            asyncio.get_running_loop().stop()
            await asyncio.Event().wait()

    def run() -> None:
        runner = asyncio.Runner()
        with pytest.raises(RuntimeError, match="stopped before Future completed"):
            runner.run(interrupted())
        runner.close()

    async with asyncio.timeout(60):
        await asyncio.to_thread(run)
    assert children() == []


async def test_nine_pods_on_eight_gpus_take_turns(stock: Stock) -> None:
    made, view = stock
    await made.apply([template("one"), *(pod(f"p{i}", claim="one", command=("sleep", "1")) for i in range(9))])
    waiting: dict[str, Any] = {}

    async def one_waits() -> bool:
        pods = await view.all(PODS)
        waiting.clear()
        waiting.update({p["metadata"]["name"]: condition(p, "PodScheduled") for p in pods if phase_of(p) == "Pending"})
        return len(waiting) == 1 and sum(phase_of(p) == "Running" for p in pods) == 8

    await until(one_waits)
    ((name, scheduled),) = waiting.items()
    taken = [each["device"] for claim in await view.claims() for each in results_of(claim)]
    assert sorted(taken) == sorted(set(taken)) and len(taken) == 8
    if scheduled is not None:
        assert scheduled["reason"] == "Unschedulable"
        assert "cannot allocate all claims" in scheduled["message"]
    await view.phase(name, "Succeeded")


async def test_the_fence_keeps_the_scheduler_off_our_devices() -> None:
    async with cluster(NodeSpec("gpu", "hgx-h100"), run_programs=False) as made, made.client() as client:
        view = View(client)
        assert await view.get(VALIDATING_POLICY_BINDINGS, "fairlead-allocation-fence")
        await made.apply([template("one"), pod("p", claim="one")])

        async def refused() -> bool:
            events = await view.all(EVENTS, "default")
            return any(e["reason"] == "FailedScheduling" and "fairlead" in e["message"] for e in events)

        await until(refused)
        (claim,) = await view.claims()
        assert not claim.get("status", {}).get("allocation")
        assert phase_of(await view.pod("p")) == "Pending"


async def test_a_namespace_is_populated_and_emptied(stock: Stock) -> None:
    made, view = stock
    await made.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}}])

    async def populated() -> bool:
        return await view.get(SERVICE_ACCOUNTS, "default", "ml") is not None

    await until(populated)
    await made.apply([template("one", namespace="ml"), pod("p", claim="one", namespace="ml", command=("sleep", "9"))])
    await view.phase("p", "Running", namespace="ml")
    await view.client.delete(NAMESPACES, "ml")

    async def gone() -> bool:
        return await view.get(NAMESPACES, "ml") is None

    await until(gone)
    assert list(made.nodes["gpu"].leftovers()) == []


async def test_programs_can_run_as_tasks_for_clusters_of_many_nodes() -> None:
    nodes = tuple(NodeSpec(f"n{i}", "l40s") for i in range(3))
    async with cluster(*nodes, run_programs=False, drivers=tasks.drivers()) as made:
        with pytest.raises(RuntimeError, match="cannot be killed"):
            await made.nodes["n0"].kill_driver()
        await made.nodes["n0"].stop_driver()


async def test_an_evicted_pod_of_a_job_is_replaced_and_its_claim_freed(stock: Stock) -> None:
    made, view = stock
    await made.apply([template("one"), job("j", pod("x", claim="one", command=("sleep", "infinity")), size=1)])

    async def running() -> Any:
        pods = [p for p in await view.all(PODS, "default") if phase_of(p) == "Running"]
        return pods[0]["metadata"]["name"] if pods else None

    first = await until(running)
    await view.client.evict(first, "default")

    async def replaced() -> bool:
        return await running() not in {None, first}

    await until(replaced)
    await view.gone(PODS, first)

    async def one_claim() -> bool:
        return len(await view.claims()) == 1

    await until(one_claim)


async def test_a_program_that_cannot_start_says_why_and_where_its_log_is() -> None:
    with pytest.raises(ProgramError, match=r"(?s)driver n ended with status 1; its log .*no-such-profile"):
        async with cluster(NodeSpec("n", "no-such-profile"), run_programs=False):
            pass


async def test_a_task_that_cannot_start_says_why_and_takes_no_other_with_it() -> None:
    async with cluster(NodeSpec("n", "l40s"), run_programs=False, drivers=tasks.drivers()) as made:
        bad = [each.replace(":l40s", ":no-such-profile") for each in made.nodes["n"].driver_arguments]
        bad.append(f"--plugins-dir={made.options.workdir}")
        async with tasks.drivers()() as others:
            with pytest.raises(ProgramError, match=r"driver m ended: .*no-such-profile"):
                await others.start("driver m", bad).ready(10)
        await made.nodes["n"].driver_ready()
