"""Load, memory and power as nvidia-smi has them; a driver that is killed meanwhile; a program's fault."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Awaitable, Callable

from tests.hardware.checks_devices import WHOLE
from tests.hardware.stage import Stage

MIB = 2**20
MEMORY_BYTES = 4096 * MIB
SETTLED_S = 8.0  # until a poll of the driver (5 s) has seen the load
SAMPLES = 12
TOLERANCE = 0.02
BUSY_PERCENT = 90
LOAD = "load"


async def load(stage: Stage) -> str:
    """The means of what the driver and nvidia-smi read under a steady load agree within 2 %. The load runs on."""
    await stage.start(LOAD, "load", 90, MEMORY_BYTES, claim=WHOLE)
    await stage.phase(LOAD, "Running")
    await stage.until(_busy(stage), "nvidia-smi shows the load")
    await asyncio.sleep(SETTLED_S)
    pairs = {
        "memory.used": ("fairlead_driver_gpu_memory_used_bytes", MIB),
        "memory.reserved": ("fairlead_driver_gpu_memory_reserved_bytes", MIB),
        "power.draw": ("fairlead_driver_gpu_power_watts", 1),
        "utilization.gpu": ("fairlead_driver_gpu_utilization_percent", 1),
    }
    read: dict[str, list[tuple[float, float]]] = {name: [] for name in pairs}
    for _ in range(SAMPLES):
        [gpu, *_] = await asyncio.to_thread(stage.smi.gpus)
        metrics = await stage.metrics()
        for name, (metric, unit) in pairs.items():
            [ours, *_] = [
                value
                for (found, labels), value in metrics.items()
                if found == metric and ("uuid", gpu["uuid"]) in labels
            ]
            read[name].append((ours / unit, float(gpu[name])))
        await asyncio.sleep(1)
    said = []
    for name, values in read.items():
        ours, theirs = (statistics.fmean(each[at] for each in values) for at in (0, 1))
        assert abs(ours - theirs) <= max(1.0, TOLERANCE * theirs), f"{name}: {ours:.1f}, nvidia-smi {theirs:.1f}"
        said.append(f"{name} {ours:.1f}/{theirs:.1f}")
    assert read["utilization.gpu"][-1][0] > BUSY_PERCENT, f"utilisation {read['utilization.gpu'][-1]}"
    reserved = await stage.metric("DCGM_FI_DEV_FB_RESERVED")
    assert reserved is not None, "DCGM_FI_DEV_FB_RESERVED is not there"
    return "ours/nvidia-smi: " + ", ".join(said)


def _busy(stage: Stage) -> Callable[[], Awaitable[bool]]:
    async def found() -> bool:
        gpus = await asyncio.to_thread(stage.smi.gpus)
        return any(float(gpu["utilization.gpu"]) > BUSY_PERCENT for gpu in gpus)

    return found


async def restart(stage: Stage) -> str:
    """The driver is killed while a pod uses its GPU, and started again; the pod runs on and ends as any other."""
    await stage.phase(LOAD, "Running")
    await stage.node.kill_driver()
    await stage.node.start_driver()
    await stage.phase(LOAD, "Running")
    await stage.remove(LOAD)
    return "killed with SIGKILL under load: ready again, the pod untouched, its claim unprepared later"


async def xid(stage: Stage) -> str:
    """A program that writes where no memory is: an Xid of its own, which taints nothing."""
    found = await stage.run("fault", "fault", claim=WHOLE)
    assert found["code"] in (700, 719, 999), f"CUDA said {found}"

    async def counted() -> float | None:
        return await stage.metric("fairlead_driver_gpu_xids_total", xid="31")

    count = await stage.until(counted, "Xid 31 is counted", 20)
    tainted = [device["name"] for device in await stage.devices() if device.get("taints")]
    assert not tainted, f"{tainted} are tainted"
    return f"CUDA error {found['code']}, Xid 31 counted {count:g} times, no taint"
