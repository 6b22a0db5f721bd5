"""Containers that take their grace period to stop: their devices are in use until then, whatever the API shows.

`Hands` looks at the nodes themselves: no device may be in two running containers. Scripts: `DEAF` is killed at the end of the
grace period, `SLOW` saves something first.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.kube import resources
from fairlead.sandbox.kubelet.runtime import Container
from tests.controller.admission.test_jobs_on_the_sandbox import job, pods_of, running
from tests.controller.conftest import NAMESPACE, Bench
from tests.support.teams import OTHER, standing, teams

DEAF = "trap '' TERM; sleep infinity"
SLOW = "trap 'sleep 1; exit 3' TERM; sleep infinity & wait"


def containers(bench: Bench) -> dict[tuple[str, str, str], Container]:
    return {key: each for node in bench.cluster.nodes.values() for key, each in node.runtime.running.items()}


class Hands:
    """Which containers have which devices in hand, from when they start until they have ended."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self.seen: set[str] = set()
        self.doubles: set[str] = set()

    async def watch(self) -> None:
        while True:
            for node in self._bench.cluster.nodes.values():
                users: dict[str, str] = {}
                for (_, pod, _), container in node.runtime.running.items():
                    for device in container.device_nodes:
                        if not device.removeprefix("/dev/nvidia").isdigit():
                            continue  # one that all containers share
                        self.seen.add(device)
                        other = users.setdefault(device, pod)
                        if other != pod:
                            self.doubles.add(f"{node.name}{device}: {other} and {pod}")
            await asyncio.sleep(0.01)


@pytest.fixture
async def hands(bench: Bench) -> AsyncIterator[Hands]:
    made = Hands(bench)
    task = asyncio.create_task(made.watch())
    yield made
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert made.seen, "no container has a GPU"
    assert made.doubles == set()


def leaving(bench: Bench, names: list[str]) -> list[str]:
    return [name for name in names if (pod := bench.get(name)) and pod.metadata.deletion_timestamp]


def uids(bench: Bench, names: list[str]) -> set[str]:
    return {pod.metadata.uid for name in names if (pod := bench.get(name)) is not None}


async def test_a_preemptor_gets_devices_only_when_all_members_of_the_evicted_gang_have_stopped(
    bench: Bench, hands: Hands
) -> None:
    """Each member stops in its own time. Until the last has, the claims stay, and nothing more is evicted."""
    await teams(bench)
    await bench.template("four", 4)
    async with bench.controller():
        gangs = {name: [f"{name}-0", f"{name}-1"] for name in ("one", "two")}
        for name in gangs:
            for number, script in enumerate((SLOW, DEAF)):
                await bench.pod(
                    f"{name}-{number}",
                    template="four",
                    gang=name,
                    size=2,
                    script=script,
                    terminationGracePeriodSeconds=3,
                )
        await bench.until(lambda: bench.running([*gangs["one"], *gangs["two"]]), "both gangs run")
        await bench.until(lambda: bench.status("two").get("phase") == "Running", "and their status says so")
        before = uids(bench, [*gangs["one"], *gangs["two"]])
        await bench.pod("owner", template="eight", namespace=OTHER)
        await bench.until(lambda: any(len(leaving(bench, pods)) == 2 for pods in gangs.values()), "one gang is evicted")
        (victim,) = (name for name, pods in gangs.items() if leaving(bench, pods))
        (other,) = set(gangs) - {victim}
        stopping = {(NAMESPACE, pod, "main") for pod in gangs[victim]}
        assert stopping & containers(bench).keys(), "at least the one that ignores the signal still runs"
        early: list[str] = []

        def owner_runs() -> bool:
            if stopping & containers(bench).keys() and any(
                ref.name == "owner" for claim in bench.allocated() for ref in claim.status.reserved_for
            ):
                early.append("devices were given away while containers ran")
            return standing(bench, OTHER, "owner") == "Running"

        await bench.until(owner_runs, "the owner has its own back")
        assert early == []
        assert uids(bench, [*gangs["one"], *gangs["two"]]) == before & uids(bench, gangs[other])
        assert bench.running(gangs[other])
        bench.check()


async def test_a_member_is_replaced_in_its_place_once_its_predecessor_has_stopped(bench: Bench, hands: Hands) -> None:
    """On full nodes: the Job controller makes the next pod before the old one has ended. The others run on."""
    await bench.template("eight", 8)
    spec: dict[str, Any] = {
        "parallelism": 2,
        "completions": 2,
        "completionMode": "Indexed",
        "podReplacementPolicy": "TerminatingOrFailed",
    }
    async with bench.controller():
        stubborn = {"terminationGracePeriodSeconds": 3}
        await job(bench, "team", 2, command=("sh", "-c", DEAF), template="eight", pod=stubborn, **spec)
        await bench.until(lambda: len(running(bench, "team")) == 2, "the gang runs")
        lost, other = running(bench, "team")
        await bench.client.delete(resources.PODS, lost.metadata.name, NAMESPACE)
        await bench.until(lambda: bool(leaving(bench, [lost.metadata.name])), "one member is on its way out")
        await bench.until(
            lambda: bench.get(lost.metadata.name) is None and len(running(bench, "team")) == 2, "and is replaced"
        )
        replacement = next(pod for pod in running(bench, "team") if pod.metadata.uid != other.metadata.uid)
        assert replacement.spec.node_name == lost.spec.node_name
        assert other.metadata.uid in {pod.metadata.uid for pod in pods_of(bench, "team")}, "no other was evicted"
        bench.check()


async def test_a_driver_that_restarts_while_a_pod_stops_frees_its_devices_once(bench: Bench, hands: Hands) -> None:
    """The container ends while the driver is away: its claim stays allocated until the driver has unprepared it."""
    await bench.template("eight", 8)
    async with bench.controller():
        await bench.pod("first", template="eight", script=SLOW)
        await bench.until(lambda: bench.running(["first"]), "it runs")
        pod = bench.get("first")
        assert pod is not None
        node = bench.cluster.nodes[pod.spec.node_name]
        await bench.client.delete(resources.PODS, "first", NAMESPACE)
        await bench.until(lambda: leaving(bench, ["first"]) == ["first"], "it stops")
        await node.stop_driver()
        await bench.until(lambda: not node.runtime.running, "its container has ended")
        waiting = await bench.gang("next", 2, template="eight")
        await bench.until(lambda: bench.status("next").get("phase") == "Waiting", "the next gang waits")
        assert bench.gated(waiting)
        assert bench.get("first") is not None
        assert len(bench.allocated()) == 1
        assert node.kubelet.dra.claims
        await node.start_driver()
        await bench.until(lambda: bench.running(waiting), "the driver is back: the next gang runs")
        assert bench.get("first") is None
        bench.check()


async def test_a_pod_that_is_deleted_by_force_keeps_its_devices_in_hand_until_it_has_stopped(
    bench: Bench, hands: Hands
) -> None:
    """The API forgets pod and claim at once; its containers have their grace period still, and the next pod starts when that is over."""
    await bench.template("eight", 8)
    async with bench.controller():
        for name in ("one", "two"):
            await bench.pod(name, template="eight", script=DEAF, terminationGracePeriodSeconds=4)
        await bench.until(lambda: bench.running(["one", "two"]), "both run")
        await bench.delete(["one"])
        await bench.pod("next", template="eight")
        assert (NAMESPACE, "one", "main") in containers(bench)
        await bench.until(lambda: bench.running(["next"]), "it runs when the other has stopped", 20)
        assert (NAMESPACE, "one", "main") not in containers(bench)
        assert bench.running(["two"])
        bench.check()
