"""GPUs of a bench that break while pods hold them, and pods that are made again when they are gone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from fairlead.api import names
from fairlead.driver.backend.simulated import fault_file
from tests.controller.conftest import Bench


async def break_a_gpu_of(bench: Bench, pod: str) -> tuple[str, str]:
    """Pool and name of a device of the pod's, from now on broken."""
    hurt = next(claim for claim in bench.allocated() if any(ref.name == pod for ref in claim.status.reserved_for))
    assert hurt.status.allocation is not None
    broken = hurt.status.allocation.devices.results[0]
    node = bench.cluster.nodes[broken.pool]
    fault_file.inject(
        node.plugins_dir / names.DRIVER / fault_file.NAME, int(broken.device.removeprefix("gpu-")), xid=79
    )
    return broken.pool, broken.device


def held(bench: Bench) -> set[tuple[str, str]]:
    allocations = [claim.status.allocation for claim in bench.allocated()]
    return {(r.pool, r.device) for found in allocations if found is not None for r in found.devices.results}


@contextlib.asynccontextmanager
async def made_anew(bench: Bench, pods: list[str], **gang: Any) -> AsyncIterator[None]:
    """What a Job does: a pod that is gone is made again."""

    async def remake() -> None:
        while True:
            for name in pods:
                if bench.get(name) is None:
                    await bench.pod(name, **gang)
            await asyncio.sleep(0.05)

    job = asyncio.create_task(remake())
    yield
    job.cancel()


async def moved_off_a_broken_gpu(bench: Bench) -> tuple[list[str], tuple[str, str]]:
    """A gang of two pods of four GPUs each, one of which breaks: its pods once they run whole again, and the broken device."""
    await bench.template("four", 4)
    pods = await bench.gang("train", 2, template="four")
    await bench.until(lambda: bench.running(pods), "the gang runs")
    broken = await break_a_gpu_of(bench, "train-0")
    await bench.until(lambda: bench.get("train-0") is None, "the pod on the broken GPU is gone", 60)
    async with made_anew(bench, pods, template="four", gang="train", size=2):
        await bench.until(lambda: bench.running(pods), "whole again, elsewhere", 60)
    assert broken not in held(bench)
    return pods, broken
