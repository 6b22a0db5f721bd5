"""Programs are killed at random moments of a large gang's admission: the gang runs whole, no device is in two claims, nothing leaks.

Not part of `make test`: it takes minutes. `make kills KILLS=200` runs it; `KILLS_SEED=n` plays a run again, as far as the
machine's timing allows. Watch caches lag, each resource by itself, so that pods are seen before their claims and after them.
"""

from __future__ import annotations

import asyncio
import os
import time
from random import Random

import pytest

from fairlead.kube import errors
from fairlead.kube.resources import GANGS, JOBS, PODS, RESOURCE_CLAIMS
from fairlead.sandbox.cluster import Cluster, NodeSpec
from fairlead.sandbox.objects import allocation_of, is_deleting, phase_of, spec_of
from tests.support.sandbox import FOREVER, View, cluster, gang_of, job, ledger, pod, template, until

KILLS = int(os.environ.get("KILLS", "10"))
SEED = int(os.environ.get("KILLS_SEED", "1"))
NODES, GPUS = 8, 8
GANG = NODES * GPUS
ADMISSION_S = 3.0  # about what an admission takes here, from the Job to the last running pod
LAG_S = 0.3
AGAIN = {"backoffLimit": 100_000, "podReplacementPolicy": "TerminatingOrFailed"}


async def kill(made: Cluster, random: Random, number: int) -> str:
    """One program, without notice; it is started again after up to a second."""
    what = random.choice(("controller", "controller", "webhook", "driver"))
    if what == "driver":
        node = made.nodes[f"n{random.randrange(NODES)}"]
        await node.kill_driver()
        await asyncio.sleep(random.random())
        await node.start_driver()
        return f"driver of {node.name}"
    program = made.controller if what == "controller" else made.webhook
    assert program is not None
    await program.kill()
    await asyncio.sleep(random.random())
    if what == "controller":
        await made.start_controller(wait=False, name=f"successor-{number}")
    else:
        await made.start_webhook()
    return what


async def whole_or_none(view: View) -> None:
    """No pod of the gang is released before all its claims are allocated. Pods first: a claim is written before."""
    pods = [each for each in await view.all(PODS, "default") if not is_deleting(each)]
    released = [each for each in pods if not spec_of(each).get("schedulingGates")]
    if released:
        claims = [each for each in await view.all(RESOURCE_CLAIMS, "default") if allocation_of(each)]
        assert len(claims) >= GANG, f"{len(released)} pods are released, {len(claims)} of {GANG} claims are allocated"


async def runs(view: View) -> bool:
    pods = await view.all(PODS, "default")
    return sum(phase_of(each) == "Running" and not is_deleting(each) for each in pods) == GANG


@pytest.mark.scale
@pytest.mark.timeout(7200)
async def test_a_program_killed_at_any_moment_of_an_admission(capsys: pytest.CaptureFixture[str]) -> None:
    random, killed, whole_s = Random(SEED), [], []
    nodes = tuple(NodeSpec(f"n{number}", "hgx-h100") for number in range(NODES))
    flags = {"controller": ("--lease-duration=3", "--gang-timeout=20")}
    async with cluster(*nodes, flags=flags) as made, made.client() as client, ledger(client) as seen:
        view = View(client)
        made.server.lag_watches(LAG_S, seed=SEED)
        await made.apply([template("one")])
        for number in range(KILLS):
            began_s = time.monotonic()
            member = pod("x", claim="one", annotations=gang_of(f"g{number}"), command=FOREVER)
            await made.apply([job(f"g{number}", member, size=GANG, **AGAIN)])
            await asyncio.sleep(random.random() * ADMISSION_S)
            killed.append(await kill(made, random, number))

            async def whole() -> bool:
                try:
                    await whole_or_none(view)
                    return await runs(view)
                except errors.ApiError:
                    return False

            try:
                await until(whole, timeout_s=90, what=f"gang g{number} runs whole")
                whole_s.append(time.monotonic() - began_s)
                assert seen.doubles == []
                await client.delete(JOBS, f"g{number}", "default", propagation="Background")
                await view.no_claims()
                await until(
                    lambda: not any(list(node.leftovers()) for node in made.nodes.values()), what="nodes are clean"
                )
            except AssertionError as error:
                gang = await view.get(GANGS, f"g{number}")
                error.add_note(f"seed {SEED}, kill {number} of the {killed[-1]}: {(gang or {}).get('status')}")
                raise
    with capsys.disabled():
        median_s = sorted(whole_s)[len(whole_s) // 2]
        print(
            f"\n{KILLS} kills in admissions of {GANG} pods: every gang ran whole, median after {median_s:.1f} s, at most {max(whole_s):.1f} s"
        )
