"""Thousands of evictions at once, end to end: what they cost, that no other gang waits for them, and that a kill loses nothing.

Not part of `make test`: it takes minutes. `make evictions` runs it and prints what it measured (GPUS=4000 is KAI's case).
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections import Counter
from pathlib import Path

import pytest

from fairlead.kube import resources

from .storm import GPUS, POOR, RICH, storm

NODES = int(os.environ.get("GPUS", "400")) // GPUS


@pytest.mark.scale
@pytest.mark.timeout(3600)
async def test_half_of_a_cluster_is_given_back_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with storm(tmp_path, NODES) as made:
        half, patience_s = made.gpus // 2, 120 + made.gpus * 0.3
        controller = made.controller()
        try:
            await made.until(
                lambda: made.requests["create gangs"] >= made.gpus, "every gang has its object", patience_s
            )
            await made.passes_by(0)
            await asyncio.sleep(6)  # reports are quiet
            calm_s = [await made.passes_by(number) for number in range(1, 6)]
            before, cpu_s, began = made.writes, controller.cpu_s, time.monotonic()
            await made.ask(made.gpus)
            posted_s = time.monotonic() - began
            meanwhile_s = []
            for number in itertools.count(100):
                meanwhile_s.append(await made.passes_by(number))
                if made.kubelets.count(POOR) == half:
                    break
            done_s = time.monotonic() - began
            writes, cpu_s = made.writes - before, controller.cpu_s - cpu_s
            peak_mib = controller.peak_mib
            await asyncio.sleep(3)
            assert (made.kubelets.count(RICH), made.kubelets.count(POOR)) == (half, half)
            assert writes["create pods/eviction"] == half
        finally:
            await controller.stop()
        gaps = [after - first for first, after in itertools.pairwise(made.renewals)]
        with capsys.disabled():
            print(f"\n{half} evictions on {made.nodes} nodes: posted in {posted_s:.0f} s, landed in {done_s:.0f} s")
            print(f"controller: {cpu_s:.1f} CPU-s ({cpu_s / half * 1000:.1f} ms an eviction), peak {peak_mib:.0f} MiB")
            print(f"writes per eviction (with the gangs that take their places): {writes.total() / half:.1f}")
            for what, number in sorted(writes.items(), key=lambda item: -item[1]):
                print(f"  {number / half:6.2f}  {what}")
            print(
                f"a small gang beside it: {sorted(calm_s)[2]:.2f} s in calm, meanwhile "
                f"{sorted(meanwhile_s)[len(meanwhile_s) // 2]:.2f} s (worst {max(meanwhile_s):.2f} s of {len(meanwhile_s)})"
            )
            print(f"lease renewals: worst gap {max(gaps):.2f} s")


@pytest.mark.scale
@pytest.mark.timeout(3600)
async def test_a_controller_killed_in_the_middle_is_followed_by_one_that_evicts_nobody_twice_and_nobody_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """SIGKILL three times: while it marks, while it evicts, while it admits. The next leader reads all it needs from the pods."""
    async with storm(tmp_path, NODES) as made:
        half, patience_s = made.gpus // 2, 120 + made.gpus * 0.5
        marks = lambda: made.requests["patch pods/status"]  # noqa: E731
        gone = lambda: made.gpus - made.kubelets.count(RICH)  # noqa: E731
        landed = lambda: made.kubelets.count(POOR)  # noqa: E731
        moments = [
            ("marking", lambda: marks() >= half // 3),
            ("evicting", lambda: gone() >= half // 3),
            ("admitting", lambda: landed() >= half // 3),
            ("", lambda: landed() == half),
        ]
        await made.ask(made.gpus)
        began = time.monotonic()
        seen = []
        for number, (what, reached) in enumerate(moments):
            controller = made.controller(f"leader-{number}", lease_s=6.0)
            try:
                await made.until(reached, f"it is {what or 'done'}", patience_s)
                if what:
                    seen.append(f"{what}: {gone()} gone, {landed()} landed")
            finally:
                controller.kill() if what else await controller.stop()
        await asyncio.sleep(3)
        assert (made.kubelets.count(RICH), made.kubelets.count(POOR)) == (half, half)
        ended = [uid for uid, times in made.kubelets.evicted.items() if times]
        assert len(ended) == half
        claims = (await made.client.list(resources.raw(resources.RESOURCE_CLAIMS))).items
        held = Counter(
            (result["pool"], result["device"])
            for claim in claims
            for result in claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ())
        )
        assert len(held) == made.gpus
        assert set(held.values()) == {1}
        with capsys.disabled():
            print(
                f"\n{half} evictions, killed while {'; '.join(seen)}; all landed in {time.monotonic() - began:.0f} s, ",
                end="",
            )
            print(f"{made.requests['create pods/eviction']} evictions asked for")
