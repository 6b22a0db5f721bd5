"""Shares of a GPU: side by side, and with limits that hold."""

from __future__ import annotations

from typing import Any

from fairlead.driver.common import mounts
from tests.hardware.stage import SkippedError, Stage

MIB = 2**20
CONTEXT_BYTES = 1536 * MIB  # of CUDA, and of the claim's MPS server
MPS = {"sharing": {"strategy": "MPS"}}


def share(memory: str, multiprocessors: int | None = None) -> dict[str, Any]:
    wanted: dict[str, Any] = {"memory": memory}
    if multiprocessors is not None:
        wanted["multiprocessors"] = str(multiprocessors)
    return {"capacity": {"requests": wanted}}


async def side_by_side(stage: Stage) -> str:
    """Three shares of one GPU run at once, and each computes."""
    names = [await stage.start(f"share-{index}", "spin", 6, claim=share("4Gi")) for index in range(3)]
    for name in names:
        await stage.phase(name, "Running")
    rates = [(await stage.result(name))["per_s"] for name in names]
    return "three of 4Gi at once, launches a second: " + ", ".join(f"{rate:.0f}" for rate in rates)


def _needs_mounts(stage: Stage) -> None:
    if not stage.runtime.kind.isolated:
        raise SkippedError("containers are plain processes here, which find no MPS daemon; needs root")


async def limits(stage: Stage) -> str:
    """With MPS a program gets the memory of its share and no more, while a neighbour computes."""
    _needs_mounts(stage)
    neighbour = await stage.start("neighbour", "spin", 12, claim=share("4Gi"), **MPS)
    await stage.phase(neighbour, "Running")
    within = await stage.run("within", "allocate", 2048 * MIB, claim=share("4Gi"), **MPS)
    assert within["given"] == 2048 * MIB, f"within its share: {within}"
    beyond = await stage.run("beyond", "allocate", 8192 * MIB, claim=share("4Gi"), **MPS)
    assert beyond["given"] <= 4096 * MIB, f"a share of 4Gi got {beyond['given'] // MIB} MiB"
    alone = await stage.result(neighbour)
    seen = f"a share of 4Gi gets {beyond['given'] // MIB} MiB, then {beyond['error']}; the neighbour ran on at {alone['per_s']:.0f}/s"
    hostile = await stage.run("hostile", "command", 8192 * MIB, claim=share("4Gi"), **MPS)
    if hostile["control"]:
        seen += f"; one that commands its daemon gets {hostile['given'] // MIB} MiB ({', '.join(filter(None, hostile['said']))})"
    return seen


async def use(stage: Stage) -> str:
    """What a share uses is that of its own programs, not of its neighbour's."""
    _needs_mounts(stage)
    for name, size in (("one", 1024 * MIB), ("two", 2048 * MIB)):
        await stage.start(f"use-{name}", "load", 25, size, claim=share("4Gi"), **MPS)
        await stage.phase(f"use-{name}", "Running")

    async def known() -> dict[str, float]:
        found = {
            dict(labels)["claim"]: value
            for (name, labels), value in (await stage.metrics()).items()
            if name == "fairlead_driver_share_memory_used_bytes"
        }
        return found if min(found.get("use-one", 0), found.get("use-two", 0)) >= 1024 * MIB else {}

    if not mounts.sees_host_processes():
        raise SkippedError("this is no host: process IDs are those of a container")
    found = await stage.until(known, "the use of both shares is known", 20)
    limit = await stage.metric("fairlead_driver_share_memory_limit_bytes", claim="use-one")
    await stage.remove("use-one", "use-two")
    for name, size in (("one", 1024 * MIB), ("two", 2048 * MIB)):
        assert size <= found[f"use-{name}"] <= size + CONTEXT_BYTES, f"{name} allocated {size}: {found}"
    assert limit == 4096 * MIB, limit
    used = " and ".join(f"{found[f'use-{name}'] / MIB:.0f}" for name in ("one", "two"))
    return f"programs with 1024 and 2048 MiB: {used} MiB used of shares of 4096 MiB each"


async def threads(stage: Stage) -> str:
    """With MPS a share of the multiprocessors is what a program has."""
    _needs_mounts(stage)
    [device, *_] = await stage.devices()
    there = int(device["capacity"]["multiprocessors"]["value"])
    whole = await stage.run("all-threads", "spin", 4, claim=share("4Gi"))
    part = await stage.run("part-threads", "spin", 4, claim=share("4Gi", there // 4), **MPS)
    assert part["per_s"] < 0.4 * whole["per_s"], f"a quarter of the multiprocessors: {part}, all: {whole}"
    return (
        f"{there // 4} of {there} multiprocessors: {part['per_s']:.0f} launches a second, without a limit {whole['per_s']:.0f}; "
        f"CUDA shows {part['multiprocessors']} and {whole['multiprocessors']}"
    )


async def fault_beside(stage: Stage) -> str:
    """A fault of one claim's program ends no program of another claim."""
    _needs_mounts(stage)
    neighbour = await stage.start("unharmed", "spin", 12, claim=share("4Gi"), **MPS)
    await stage.phase(neighbour, "Running")
    found = await stage.run("harmful", "fault", claim=share("4Gi"), **MPS)
    assert found["code"], f"CUDA said nothing of the fault: {found}"
    rate = (await stage.result(neighbour))["per_s"]
    return f"CUDA error {found['code']} in one claim; the program of the other ran on, {rate:.0f} launches a second"
