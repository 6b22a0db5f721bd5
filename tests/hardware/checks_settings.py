"""Settings of the GPU that a claim changes, and that are as before when it has ended: time slice, compute mode, MIG mode."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator

from fairlead.api import names
from tests.hardware.checks_devices import WHOLE
from tests.hardware.stage import SkippedError, Stage

NEEDS = "changes a setting of the GPU; SETTINGS=yes tries it, and puts it back"
SPIN_S = 4


async def time_slice(stage: Stage) -> str:
    """A time slice is set for a claim, and set back."""
    _allowed(stage)
    config = {"sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}}}
    await stage.run("sliced", "add", claim=WHOLE, **config)
    return "set for a claim with all of the GPU, and set back"


async def compute_mode(stage: Stage) -> str:
    """A claim with MPS has a GPU of a driver without shares for its daemon alone, and the mode is as before afterwards."""
    _allowed(stage)
    if not stage.runtime.kind.isolated:
        raise SkippedError("containers are plain processes here, which find no MPS daemon; needs root")
    before = await _modes(stage, "compute_mode")
    async with _driver_with(stage):
        await stage.start("exclusive", "spin", SPIN_S, claim=WHOLE, sharing={"strategy": "MPS"})
        await stage.phase("exclusive", "Running")
        during = await _modes(stage, "compute_mode")
        rate = (await stage.result("exclusive"))["per_s"]
    after = await _modes(stage, "compute_mode")
    assert sorted(during) == sorted(["Exclusive_Process", *before[1:]]), f"before {before}, with MPS {during}"
    assert after == before, f"before {before}, after {after}"
    return f"{before[0]}, with a claim under MPS Exclusive_Process, then {after[0]}; {rate:.0f} launches a second"


async def mig_mode(stage: Stage) -> str:
    """A MIG device is made for a claim, and MIG mode is off again when it has ended."""
    _allowed(stage)
    before = await _modes(stage, "mig.mode.current")
    if "Disabled" not in before:
        raise SkippedError(f"MIG mode is {before[0]}: needs a GPU that has MIG and is not in it")
    async with _driver_with(stage, "--dynamic-mig"):
        parts = [each for each in await stage.devices() if each["attributes"]["type"]["string"] == "mig"]
        if not parts:
            raise SkippedError("no MIG devices on demand: of this GPU MIG mode takes a reset (docs/driver.md)")
        await stage.start("part", "see", claim={**WHOLE, "deviceClassName": names.MIG_CLASS})
        seen = await stage.result("part")
        [uuid] = seen["allocated"].values()
        assert uuid.startswith("MIG-"), seen

        async def off() -> bool:
            return await _modes(stage, "mig.mode.current") == before

        await stage.until(off, "MIG mode is off again", 30)
    return f"{len(parts)} placements; {uuid} made for a claim, MIG mode {before[0]} again"


def _allowed(stage: Stage) -> None:
    if not stage.settings:
        raise SkippedError(NEEDS)


async def _modes(stage: Stage, name: str) -> list[str]:
    return [gpu[name] for gpu in await asyncio.to_thread(stage.smi.gpus)]


@contextlib.asynccontextmanager
async def _driver_with(stage: Stage, *more: str) -> AsyncIterator[None]:
    """The driver without shares, with these flags; then as before."""
    node, before = stage.node, stage.node.spec
    try:
        await _restart(stage, (*(flag for flag in before.flags if flag != "--shared-gpus"), *more))
        yield
    finally:
        await stage.clear()
        await _restart(stage, before.flags)
        node.spec = before


async def _restart(stage: Stage, flags: tuple[str, ...]) -> None:
    await stage.node.stop_driver()
    stage.node.spec = dataclasses.replace(stage.node.spec, flags=flags)
    await stage.node.start_driver()
