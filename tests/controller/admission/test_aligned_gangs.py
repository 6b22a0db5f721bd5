"""A gang that runs with `fairlead.dev/align`, as `fairlead explain` tells of it."""

from __future__ import annotations

import asyncio
import re

from fairlead.api import names
from tests.controller.conftest import NAMESPACE, Bench
from tests.support.commands import invoke


async def test_explain_says_how_the_devices_of_a_running_gang_are_aligned(bench: Bench) -> None:
    await bench.template("two", 2)
    async with bench.controller():
        await bench.gang("gang", 2, template="two", annotations={names.ALIGN: names.ORDINAL})
        await bench.until(lambda: bench.status("gang").get("phase") == "Running", "the status")
        words = ["explain", "gang/gang", "-n", NAMESPACE, "--kubeconfig", str(bench.cluster.kubeconfig())]
        said = await asyncio.to_thread(invoke, words)
        assert re.search(
            r"Aligned devices:\s+fairlead.dev/ordinal of request gpu: \d, \d in each of 2 pods", said.output
        )
