"""Everything at once: drivers, kubelets, nodes, webhook, controller and apiserver fail at random while gangs run.

At no time is a device in two claims; afterwards all gangs have run, and nothing is held anywhere. A failure names its seed;
`CHAOS_SEED=n pytest tests/sandbox/faults/test_chaos.py` plays it again (as far as the machine's timing allows).
"""

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from fairlead.kube import errors
from fairlead.kube.resources import JOBS, PODS, Raw
from fairlead.sandbox.cluster import Cluster, NodeSpec
from fairlead.sandbox.objects import is_true, phase_of
from tests.support.sandbox import View, cluster, gang_of, job, ledger, pod, template, until

SEEDS = [int(os.environ["CHAOS_SEED"])] if "CHAOS_SEED" in os.environ else [1]
ROUNDS = 14
GANGS = 14
LAG_S = 0.5  # most, of each resource's watch cache: pods are seen before their claims, and claims before their pods
H100 = 'device.attributes["gpu.fairlead.dev"].productName.contains("H100")'
NODES = (NodeSpec("left", "hgx-h100"), NodeSpec("right", "hgx-h100"), NodeSpec("third", "l40s"))


class Chaos:
    """One thing that goes wrong after the other, chosen by a seed; each is over when its method returns."""

    def __init__(self, made: Cluster, seed: int) -> None:
        self.made = made
        self.random = Random(seed)
        self.did: list[str] = []
        self._controllers = 0

    async def run(self) -> None:
        for _ in range(ROUNDS):
            act = self.random.choice(self._acts())
            self.did.append(act.__name__)
            await act()
            await asyncio.sleep(self.random.random() * 0.4)

    def _acts(self) -> list[Callable[[], Awaitable[None]]]:
        return [
            self.driver_dies,
            self.driver_dies_before_it_replies,
            self.kubelet_restarts,
            self.node_loses_power,
            self.webhook_dies,
            self.controller_dies,
            self.apiserver_errs,
            self.watches_end,
            self.apiserver_restarts,
        ]

    async def _pause(self) -> None:
        await asyncio.sleep(self.random.random() * 0.6)

    async def driver_dies(self) -> None:
        node = self.made.nodes[self.random.choice(NODES).name]
        await node.kill_driver()
        await self._pause()
        await node.start_driver()

    async def driver_dies_before_it_replies(self) -> None:
        node = self.made.nodes[self.random.choice(NODES).name]
        dead = node.kill_driver_before_reply(self.random.choice(("NodePrepareResources", "NodeUnprepareResources")))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await dead.wait()
        node.kubelet.plugins.tap = None
        await node.kill_driver()
        await node.start_driver()

    async def kubelet_restarts(self) -> None:
        node = self.made.nodes[self.random.choice(NODES).name]
        await node.stop_kubelet()
        await self._pause()
        await node.start_kubelet()

    async def node_loses_power(self) -> None:
        node = self.made.nodes[self.random.choice(NODES).name]
        await node.power_off()
        await self._pause()
        await node.power_on()

    async def webhook_dies(self) -> None:
        assert self.made.webhook is not None
        await self.made.webhook.kill()
        await self._pause()
        await self.made.start_webhook()

    async def controller_dies(self) -> None:
        assert self.made.controller is not None
        await self.made.controller.kill()
        await self._pause()
        self._controllers += 1
        await self.made.start_controller(wait=False, name=f"successor-{self._controllers}")

    async def apiserver_errs(self) -> None:
        code = self.random.choice((409, 429, 500))
        verb = self.random.choice(("update", "patch", "create"))
        self.made.server.faults.fail(code, verb=verb, count=self.random.randint(1, 8), after=self.random.random() < 0.3)
        await self._pause()
        self.made.server.faults.clear()

    async def watches_end(self) -> None:
        self.made.server.faults.close_watches()

    async def apiserver_restarts(self) -> None:
        await self.made.server.restart(away_s=self.random.random() * 0.6)


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("seed", SEEDS)
async def test_gangs_survive_everything_at_once(seed: int) -> None:
    flags = {"controller": ("--lease-duration=3", "--gang-timeout=8")}
    async with cluster(*NODES, flags=flags) as made, made.client() as client, ledger(client) as seen:
        view = View(client)
        chaos = Chaos(made, seed)
        made.server.lag_watches(LAG_S, seed=seed)
        await made.apply([template("one", selector=H100), template("two", count=2), template("eight", count=8)])
        names: list[str] = []
        users = asyncio.create_task(submit(made, Random(seed), names))
        try:
            await chaos.run()
            await users
            await until(lambda: complete(view, names), timeout_s=120, what="all gangs have run")
            await view.no_claims()
            for node in made.nodes.values():
                await until(lambda node=node: not list(node.leftovers()), what=f"{node.name} is clean")  # type: ignore[misc]
        except AssertionError as error:
            error.add_note(f"seed {seed}: {', '.join(chaos.did)}")
            for each in await view.all(PODS, "default"):
                if phase_of(each) not in {"Succeeded", "Failed"}:
                    error.add_note(f"{each['metadata']['name']}: {each['status']}")
            raise
        finally:
            users.cancel()
            await asyncio.gather(users, return_exceptions=True)
        assert seen.doubles == []


async def submit(made: Cluster, random: Random, names: list[str]) -> None:
    """Users who bring a gang every now and then, again when it is refused."""
    for number in range(GANGS):
        name = f"g{number}"
        claim, most = random.choice((("one", 16), ("two", 6), ("eight", 2)))
        member = pod(name, claim=claim, annotations=gang_of(name), command=("sleep", f"{random.random() * 2:.1f}"))
        wanted = job(name, member, size=random.randint(1, most), backoffLimit=1000)

        async def applied(wanted: Raw = wanted) -> bool:
            try:
                await made.apply([wanted])
            except errors.ApiError:
                return False
            return True

        await until(applied)
        names.append(name)
        await asyncio.sleep(random.random())


async def complete(view: View, names: list[str]) -> bool:
    try:
        jobs = {each["metadata"]["name"]: each for each in await view.all(JOBS, "default")}
    except errors.ApiError:
        return False
    assert not any(is_true(each, "Failed") for each in jobs.values()), "a job failed for good"
    return all(name in jobs and is_true(jobs[name], "Complete") for name in names)
