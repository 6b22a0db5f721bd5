"""Two makers of claims: a claim controller as slow as the real one writes its names late, also into the status of bound pods."""

from pathlib import Path

import pytest

from fairlead.sandbox.cluster import NodeTimes
from fairlead.sandbox.controllers.manager import ManagerOptions
from tests.controller.conftest import benches

SIZE = 12
NEVER = NodeTimes(sync_s=1000.0)


@pytest.mark.slow
async def test_two_gangs_of_twelve_run_though_the_claim_controller_writes_late(tmp_path: Path) -> None:
    """It makes 20 writes a second, and watch caches lag. Some pods are bound with the name of a claim that is deleted next.

    Kubelet fails to prepare that claim. Its next sync comes after up to 90 s in a real cluster, and not at all here: the pods run
    because the controller makes kubelet try again.
    """
    slow = ManagerOptions(qps=20.0, burst=30)
    async with benches(tmp_path, count=3, times=NEVER, manager=slow) as bench:
        await bench.template("one")
        bench.cluster.server.lag_watches(0.5, seed=1)
        async with bench.controller():
            pods: list[str] = []
            for gang in ("a", "b"):
                pods += await bench.gang(gang, SIZE, template="one")
            await bench.until(lambda: bench.running(pods), "both gangs run", 60)
            await bench.until(lambda: len(bench.claims.all()) == len(pods), "no duplicate claim is left", 60)
            assert bench.watchdog.held == len(pods)
