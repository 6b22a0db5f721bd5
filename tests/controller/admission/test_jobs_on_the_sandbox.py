"""Gang Jobs on the sandbox, to their end: waves, evictions after some pods have completed, pods replaced alone.

The Job controller is that of the sandbox, with a back-off of 0.2 s instead of 10 s; victims are chosen as in test_evictions.
"""

from collections.abc import Sequence
from typing import Any

import pytest

from fairlead.api import names
from fairlead.kube import core, resources
from fairlead.kube.client import Client
from tests.controller.conftest import NAMESPACE, Bench
from tests.controller.evictions.test_evictions import Plot, plot
from tests.support.broken_gpus import break_a_gpu_of, held

__all__ = ["plot"]

DEVICES = 8  # GPUs a pod
IGNORE = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]}


async def job(
    bench: Bench,
    name: str,
    size: int,
    *,
    command: str | Sequence[str],
    template: str = "two",
    pod: dict[str, Any] | None = None,
    requests: dict[str, str] | None = None,
    notes: dict[str, str] | None = None,
    client: Client | None = None,
    **spec: Any,
) -> None:
    """A gang Job as the webhook leaves its pods: gated, with name and size of the gang. `command` has $INDEX; `pod` is more of
    a pod's spec, `requests` what its container asks for beside devices, `notes` more annotations, `client` whose it is.
    """
    container = {
        "name": "main",
        "image": "busybox",
        "command": command.split(" ") if isinstance(command, str) else list(command),
        "resources": {"claims": [{"name": "gpu"}], "requests": requests or {}},
    }
    body = {
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "template": {
                "metadata": {"annotations": {names.GANG: name, names.GANG_SIZE: str(size), **(notes or {})}},
                "spec": {
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": 0,
                    "schedulingGates": [{"name": names.ADMISSION_GATE}],
                    "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": template}],
                    "containers": [container],
                }
                | (pod or {}),
            }
        }
        | spec,
    }
    await (client or bench.client).create(resources.JOBS, body)


def pods_of(bench: Bench, job: str) -> list[core.Pod]:
    return [
        pod
        for pod in bench.pods.all()
        if (owner := pod.metadata.controller) is not None and owner.name == job and owner.kind == "Job"
    ]


def running(bench: Bench, job: str) -> list[core.Pod]:
    pods = pods_of(bench, job)
    return [pod for pod in pods if pod.status.phase == "Running" and not pod.metadata.deletion_timestamp]


async def status(bench: Bench, job: str) -> dict[str, Any]:
    raw = await bench.client.get(resources.JOBS, job, NAMESPACE)
    return raw.get("status") or {}


def succeeded(bench: Bench, job: str) -> int:
    return sum(pod.status.phase == "Succeeded" for pod in pods_of(bench, job))


async def test_jobs_that_run_in_waves_end(bench: Bench):
    """All of a wave at once, indexed, and more of them than the gang needs."""
    waves: dict[str, tuple[int, dict[str, Any]]] = {
        "whole": (3, {"parallelism": 3, "completions": 5}),
        "indexed": (2, {"parallelism": 2, "completions": 4, "completionMode": "Indexed"}),
        "elastic": (2, {"parallelism": 4, "completions": 7}),
    }
    await bench.template("one")
    async with bench.controller():
        for name, (size, spec) in waves.items():
            await job(bench, name, size, command="sleep 0.3", template="one", **spec)
        for name, (_, spec) in waves.items():
            ended = lambda name=name, spec=spec: succeeded(bench, name) == spec["completions"]  # noqa: E731
            await bench.until(ended, f"all completions of {name}", timeout_s=60)
        bench.check()


async def test_a_gang_that_is_evicted_after_some_indexes_completed_runs_the_others(bench: Bench, plot: Plot):
    """The pods with even indexes end at once; then the gang is evicted, and comes back with half its pods."""
    await bench.template("four", 4)
    await bench.template("eight", 8)
    spec: dict[str, Any] = {"parallelism": 4, "completions": 4, "completionMode": "Indexed", "backoffLimitPerIndex": 3}
    async with bench.controller():
        await job(bench, "old", 4, command="serve", template="four", podFailurePolicy=IGNORE, **spec)
        await bench.until(lambda: len(running(bench, "old")) == 4, "the gang runs")
        for pod in sorted(running(bench, "old"), key=lambda pod: pod.metadata.name)[:2]:
            await end(bench, pod, "Succeeded")
        await bench.until(lambda: succeeded(bench, "old") == 2, "two indexes have completed")
        plot.victims = {"new": ["old"]}
        new = await bench.gang("new", 2, template="eight")
        await bench.until(lambda: bench.running(new), "the other gang runs")
        plot.victims = {}
        await bench.delete(new)
        await bench.until(lambda: len(running(bench, "old")) == 2, "the other two run again")
        assert succeeded(bench, "old") == 2
        bench.check()


@pytest.mark.core
async def test_the_place_of_a_failed_pod_is_held_until_its_replacement_is_there(bench: Bench):
    """A waiting gang that fits nowhere else does not get it; the one that replaces it is bound there."""
    await bench.template("eight", 8)
    spec: dict[str, Any] = {"parallelism": 2, "completions": 2, "completionMode": "Indexed", "backoffLimitPerIndex": 3}
    async with bench.controller():
        await job(bench, "team", 2, command="serve", template="eight", **spec)
        await bench.until(lambda: len(running(bench, "team")) == 2, "the gang runs")
        await bench.pod("other", template="eight")
        await bench.until(lambda: bench.status("other").get("phase") == "Waiting", "another waits")
        lost = running(bench, "team")[0]
        await end(bench, lost, "Failed")
        await bench.until(lambda: len(running(bench, "team")) == 1, "one has failed")
        await bench.until(lambda: len(running(bench, "team")) == 2, "it is replaced")
        nodes = {pod.spec.node_name for pod in running(bench, "team")}
        assert lost.spec.node_name in nodes and len(nodes) == 2
        assert not bench.running(["other"])
        bench.check()


async def test_a_gang_that_is_short_for_too_long_starts_again_together(bench: Bench):
    """Its pods come back one after another, since back-off is that of the whole Job; before all are there none starts."""
    await bench.template("eight", 8)
    spec: dict[str, Any] = {"parallelism": 2, "completions": 2, "backoffLimit": 100}
    async with bench.controller(replace_timeout_s=1.0):
        await job(bench, "team", 2, command="serve", template="eight", **spec)
        await bench.until(lambda: len(running(bench, "team")) == 2, "the gang runs")
        lost, other = running(bench, "team")
        broken = {"metadata": {"name": lost.spec.node_name}, "spec": {"unschedulable": True}}
        await bench.client.patch(resources.raw(resources.NODES), lost.spec.node_name, broken)
        await end(bench, lost, "Failed")
        await bench.event("team", "Evicted: 1 pod evicted: replaced: 1 of its 2 members was not replaced within 1 s")
        await bench.until(lambda: bench.get(other.metadata.name) is None, "the other is evicted")
        healed = {"metadata": {"name": lost.spec.node_name}, "spec": {"unschedulable": None}}
        await bench.client.patch(resources.raw(resources.NODES), lost.spec.node_name, healed)
        await bench.until(lambda: len(running(bench, "team")) == 2, "both run again")
        bench.check()


async def test_a_gang_on_a_broken_device_goes_whole_also_when_the_cluster_deletes_the_hurt_pod_first(bench: Bench):
    """The device taint eviction controller needs no decision: it is the faster one."""
    await bench.template("two", 2)
    spec: dict[str, Any] = {"parallelism": 4, "completions": 4, "completionMode": "Indexed", "backoffLimitPerIndex": 3}
    async with bench.controller():
        await job(bench, "team", 4, command="serve", podFailurePolicy=IGNORE, **spec)
        await bench.until(lambda: len(running(bench, "team")) == 4, "the gang runs")
        before = {pod.metadata.uid for pod in running(bench, "team")}
        broken = await break_a_gpu_of(bench, running(bench, "team")[0].metadata.name)
        await bench.until(lambda: not before & {pod.metadata.uid for pod in running(bench, "team")}, "all of it goes")
        await bench.until(lambda: len(running(bench, "team")) == 4, "and runs again")
        assert broken not in held(bench)
        bench.check()


async def end(bench: Bench, pod: core.Pod, phase: str) -> None:
    """As kubelet reports the end of its containers."""
    code = 0 if phase == "Succeeded" else 1
    ended = {"terminated": {"exitCode": code, "finishedAt": "2026-01-01T00:00:00Z", "reason": "Completed"}}
    body = {"status": {"phase": phase, "containerStatuses": [{"name": "main", "state": ended}]}}
    raw = resources.raw(resources.PODS)
    await bench.client.patch(raw, pod.metadata.name, body, namespace=NAMESPACE, subresource="status")
