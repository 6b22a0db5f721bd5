"""Kubelet refuses a member that kube-scheduler bound: the node is fuller than the API shows (`node.occupy`).

The pod fails before anything of it runs, and counts as one failed pod of its Job. What follows is what follows any failed
member: it is replaced alone where its gang runs, and no claim is left over.
"""

from typing import Any

from fairlead.kube import core, resources
from tests.controller.admission.test_jobs_on_the_sandbox import job, pods_of, running
from tests.controller.conftest import NAMESPACE, Bench
from tests.controller.evictions.test_slow_stops import containers

INDEXED: dict[str, Any] = {
    "parallelism": 2,
    "completions": 2,
    "completionMode": "Indexed",
    "backoffLimitPerIndex": 20,
    "maxFailedIndexes": 2,
}
CPU = {"cpu": "8"}


def refused(bench: Bench, name: str = "team") -> list[core.Pod]:
    return [pod for pod in pods_of(bench, name) if pod.status.reason.startswith("OutOf")]


def places(bench: Bench) -> dict[str, str]:
    return {pod.metadata.name: pod.spec.node_name for pod in running(bench, "team")}


async def test_a_member_that_is_refused_in_a_running_gangs_place_does_not_take_the_gang_with_it(bench: Bench) -> None:
    """One member is deleted while something takes its node's cpu; its successors are refused until that ends."""
    await bench.template("eight", 8)
    async with bench.controller():
        await job(bench, "team", 2, command="serve", template="eight", requests=CPU, **INDEXED)
        await bench.until(lambda: len(running(bench, "team")) == 2, "the gang runs")
        lost, other = running(bench, "team")
        bench.cluster.nodes[lost.spec.node_name].occupy(cpu="190")
        await bench.client.delete(resources.PODS, lost.metadata.name, NAMESPACE)
        await bench.until(lambda: len(refused(bench)) >= 2, "its successors are refused")
        bench.cluster.nodes[lost.spec.node_name].occupy()
        await bench.until(lambda: len(running(bench, "team")) == 2, "one is taken", 60)
        assert other.metadata.uid in {pod.metadata.uid for pod in running(bench, "team")}
        bench.check()


async def test_a_gang_whose_member_is_always_refused_ends_with_its_job(bench: Bench) -> None:
    """Nothing waits forever: the Job gives up, its other pods are deleted, and no claim is left."""
    await bench.template("eight", 8)
    bench.cluster.nodes["h1"].occupy(cpu="190")
    async with bench.controller():
        spec: dict[str, Any] = {"parallelism": 2, "completions": 2, "completionMode": "Indexed", "backoffLimit": 2}
        await job(bench, "team", 2, command="serve", template="eight", requests=CPU, **spec)
        await bench.until(lambda: len(refused(bench)) >= 3, "three are refused", 60)
        await bench.until(lambda: not bench.allocated() and not containers(bench), "nothing is held")
        await bench.until(lambda: all(p.status.phase == "Failed" for p in pods_of(bench, "team")), "and nothing waits")
        await bench.pod("next", template="eight")
        await bench.until(lambda: bench.running(["next"]), "another runs")
        bench.check()
