"""Members without devices (`fairlead.dev/members: all`) on the sandbox: they wait, start and go with the others, or none does.

Workers ask for GPUs, heads for cpu alone. `Starts` sees every change of every pod: no worker is released before all heads of its gang are.
"""

from typing import Any

import pytest

from fairlead.api import names
from fairlead.controller.commit.writer import Writer
from fairlead.controller.commit.writes import GivenUpError
from fairlead.kube import core, resources
from fairlead.kube.informer import Change
from tests.controller.conftest import NAMESPACE, Bench, Life

ALL = {names.MEMBERS: "all"}


@pytest.fixture
def named() -> bool:
    return True


class Starts:
    """Of gangs whose pods are called NAME-head-… and NAME-gpu-…"""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.violations: list[str] = []
        bench.pods.subscribe(self)

    def __call__(self, change: Change[core.Pod]) -> None:
        pod = change.new
        if pod is None or pod.has_gate(names.ADMISSION_GATE) or "-gpu-" not in pod.metadata.name:
            return
        gang = pod.metadata.annotations[names.GANG]
        early = [
            other.metadata.name
            for other in self.bench.pods.all()
            if other.metadata.name.startswith(f"{gang}-head-") and other.has_gate(names.ADMISSION_GATE)
        ]
        if early:
            self.violations.append(f"{pod.metadata.name} is released, and {early} not")


def cpu(amount: str) -> dict[str, Any]:
    return {
        "containers": [
            {"name": "main", "image": "busybox", "command": ["serve"], "resources": {"requests": {"cpu": amount}}}
        ]
    }


async def gang(bench: Bench, name: str, heads: int, workers: int, *, head_cpu: str = "1") -> list[str]:
    """Heads come first, as Ray's and MPI's do."""
    size = heads + workers
    pods = [f"{name}-head-{number}" for number in range(heads)]
    for pod in pods:
        await bench.pod(pod, gang=name, size=size, annotations=ALL, **cpu(head_cpu))
    others = [f"{name}-gpu-{number}" for number in range(workers)]
    for pod in others:
        await bench.pod(pod, template="one", gang=name, size=size)
    return [*pods, *others]


async def test_a_head_waits_with_its_workers_and_starts_with_them(bench: Bench) -> None:
    starts = Starts(bench)
    await bench.template("one")
    async with bench.controller():
        first = await gang(bench, "red", 1, 12)
        await bench.until(lambda: bench.running(first), "the first gang runs")
        second = await gang(bench, "blue", 2, 8)
        await bench.until(lambda: bench.status("blue").get("reason") == "DevicesInUse", "the other waits for devices")
        assert bench.gated(second)
        status = bench.status("blue")
        assert "its 8 pods with devices, 1 device each: 8 wanted, 4 free on 1 node, 4 missing" in status["message"]
        assert status["withoutDevices"] == ["blue-head-0", "blue-head-1"]
        await bench.delete(first)
        await bench.until(lambda: bench.running(second), "heads and workers run once devices are free")
        await bench.until(lambda: bench.status("blue").get("phase") == "Running", "its Gang says so")
        assert bench.status("blue")["members"] == 10
    assert starts.violations == []


async def test_workers_do_not_start_where_nothing_has_room_for_their_head(bench: Bench) -> None:
    await bench.template("one")
    async with bench.controller():
        pods = await gang(bench, "train", 1, 4, head_cpu="10000")
        await bench.until(lambda: bench.status("train").get("reason") == "NoSuitableNode", "it is told why")
        assert bench.gated(pods)
        assert bench.allocated() == []
        said = bench.status("train")["message"]
        assert "No node takes its pod without devices" in said, said
        assert "cpu (2 nodes)" in said


async def job(
    bench: Bench, gang: str, part: str, count: int, size: int, template: str | None = None, cpu: str = "1"
) -> None:
    """A Job of `count` pods of the gang, as the webhook leaves its template."""
    use = [{"name": "gpu", "resourceClaimTemplateName": template}] if template else []
    resources_ = {"requests": {"cpu": cpu}, "claims": [{"name": "gpu"}] if use else []}
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "schedulingGates": [{"name": names.ADMISSION_GATE}],
        "resourceClaims": use,
        "containers": [{"name": "main", "image": "busybox", "command": ["serve"], "resources": resources_}],
    }
    notes = {names.GANG: gang, names.GANG_SIZE: str(size), **ALL}
    spec = {
        "parallelism": count,
        "completions": count,
        "backoffLimit": 100,
        "template": {"metadata": {"annotations": notes}, "spec": pod},
    }
    body = {"metadata": {"name": f"{gang}-{part}", "namespace": NAMESPACE}, "spec": spec}
    await bench.client.create(resources.raw(resources.JOBS), body)


def of(bench: Bench, gang: str, *phases: str) -> list[core.Pod]:
    """Its living pods, of these phases where some are given."""
    return [
        pod
        for pod in bench.pods.all()
        if pod.metadata.annotations.get(names.GANG) == gang
        and not pod.finished
        and pod.metadata.deletion_timestamp is None
        and (not phases or pod.status.phase in phases)
    ]


async def jobs(bench: Bench, gang: str, heads: int, workers: int) -> int:
    """Its size."""
    await job(bench, gang, "head", heads, heads + workers)
    await job(bench, gang, "gpu", workers, heads + workers, "one")
    await bench.until(lambda: len(of(bench, gang)) == heads + workers, "all pods exist")
    return heads + workers


async def one_life(bench: Bench, step: int, *, after: bool) -> bool:
    """A gang whose controller is killed at that write; the next one makes it whole. False when it needed fewer writes."""
    starts = Starts(bench)
    gang, life = f"g{step}{'after' if after else ''}", Life(step, after=after)
    size = await jobs(bench, gang, 2, 2)
    await bench.mortal(life, lambda: len(of(bench, gang, "Running")) == size)
    async with bench.controller():
        await bench.until(lambda: len(of(bench, gang, "Running")) == size, f"it is whole after {life.done}")
        for part in ("head", "gpu"):
            await bench.client.delete(resources.JOBS, f"{gang}-{part}", NAMESPACE, propagation="Background")
        await bench.until(lambda: not of(bench, gang) and bench.watchdog.held == 0, "all is given back")
    assert starts.violations == [], f"after {life.done}"
    return life.left is not None and life.left <= 0


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_controller_killed_at_any_write_leaves_no_gang_started_in_part(bench: Bench, after: bool) -> None:
    await bench.template("one")
    for step in range(1, 40):
        if not await one_life(bench, step, after=after):
            assert step > 6  # two claims made, two allocated, four pods released
            return
    raise AssertionError("the protocol has more writes than expected")


async def test_no_worker_is_released_where_a_head_could_not_be(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    starts, refused = Starts(bench), list[str]()
    release = Writer.release_pod

    async def refuse_once(self: Writer, pod: core.Pod, *args: Any, **more: Any) -> bool:
        if "-head-" in pod.metadata.name and not refused and any("-head-" in each for each in released):
            refused.append(pod.metadata.name)
            raise GivenUpError("the apiserver refuses it")
        released.append(pod.metadata.name)
        return await release(self, pod, *args, **more)

    released: list[str] = []
    monkeypatch.setattr(Writer, "release_pod", refuse_once)
    await bench.template("one")
    async with bench.controller():
        size = await jobs(bench, "train", 2, 2)
        await bench.until(lambda: bool(refused), "the second head is refused")
        await bench.until(lambda: len(of(bench, "train", "Running")) == size, "taken back, it starts whole", 60)
    assert starts.violations == []


async def test_a_head_that_ends_is_replaced_alone(bench: Bench) -> None:
    await bench.template("one")
    async with bench.controller():
        size = await jobs(bench, "train", 1, 2)
        await bench.until(lambda: len(of(bench, "train", "Running")) == size, "it runs")
        before = {pod.metadata.name for pod in of(bench, "train")}
        (head,) = [name for name in before if "-head-" in name]
        await bench.delete([head])
        await bench.until(lambda: head not in {pod.metadata.name for pod in of(bench, "train")}, "the head is gone")
        await bench.until(lambda: len(of(bench, "train", "Running")) == size, "another head runs")
        after = {pod.metadata.name for pod in of(bench, "train")}
        assert len(after & before) == 2, "the workers went on"


async def test_a_head_goes_with_its_gang_when_another_needs_the_devices(bench: Bench) -> None:
    await bench.template("one")
    await bench.client.create(resources.PRIORITY_CLASSES, {"metadata": {"name": "urgent"}, "value": 1000})
    async with bench.controller():
        size = await jobs(bench, "low", 1, 16)
        await bench.until(lambda: len(of(bench, "low", "Running")) == size, "it holds all devices")
        heads = {pod.metadata.uid for pod in of(bench, "low") if "-head-" in pod.metadata.name}
        urgent = await bench.pod("urgent", template="one", priorityClassName="urgent")
        await bench.until(lambda: bench.running([urgent.metadata.name]), "the urgent pod runs")
        await bench.until(
            lambda: any("-head-" in pod.metadata.name for pod in of(bench, "low", "Pending")), "its head is made again"
        )
        assert not heads & {pod.metadata.uid for pod in of(bench, "low")}
        assert all(pod.has_gate(names.ADMISSION_GATE) for pod in of(bench, "low"))
