"""What is published, what containers see of it, and that CUDA works in them."""

from __future__ import annotations

from fairlead.api import names
from tests.hardware.stage import SkippedError, Stage

MIB = 2**20
WHOLE = {"count": 1}


async def discovery(stage: Stage) -> str:
    """Every GPU that nvidia-smi lists is published, with the same facts."""
    published = {device["attributes"]["uuid"]["string"]: device for device in await stage.devices()}
    listed = stage.smi.gpus()
    assert set(published) == {gpu["uuid"] for gpu in listed}, f"published {set(published)}, nvidia-smi lists {listed}"
    for gpu in listed:
        device = published[gpu["uuid"]]
        attributes = {name: next(iter(value.values())) for name, value in device["attributes"].items()}
        memory_mib = _mib(device["capacity"]["memory"]["value"])
        assert memory_mib == int(gpu["memory.total"]), f"memory: {memory_mib} and {gpu['memory.total']} MiB"
        assert attributes["productName"] == gpu["name"], attributes
        assert gpu["pci.bus_id"].lower().endswith(attributes[names.PCI_BUS_ID]), attributes
        version = ".".join(str(int(part)) for part in gpu["driver_version"].split("."))
        assert attributes["driverVersion"].startswith(version), f"driver {attributes['driverVersion']} and {version}"
        assert names.NUMA_NODE in attributes or stage.driver != names.DRIVER, "numaNode is not published"
    return f"{len(listed)} GPU: name, UUID, PCI address, memory and driver as nvidia-smi; NUMA node {attributes.get(names.NUMA_NODE)}"


def _mib(quantity: str) -> int:
    from fairlead.kube.quantity import Quantity

    return int(Quantity.of(quantity)) // MIB


async def isolation(stage: Stage) -> str:
    """A container without a claim has no GPU."""
    if not stage.runtime.kind.isolated:
        raise SkippedError("containers are plain processes here, which see the host's devices; needs root")
    seen = await stage.run("without", "see")
    assert not seen["nodes"], f"device nodes {seen['nodes']}"
    assert not seen["uuids"], f"CUDA shows {seen['uuids']}"
    return f"no device nodes, and CUDA says: {seen['error']}"


async def cuda(stage: Stage) -> str:
    """With a claim it has that GPU and no other, and a sum of vectors is right."""
    seen = await stage.run("see", "see", claim=WHOLE)
    [uuid] = seen["claimed"]
    assert [f"GPU-{each}" for each in seen["uuids"]] == [uuid], f"claim has {uuid}, CUDA shows {seen['uuids']}: {seen}"
    sums = await stage.run("add", "add", claim=WHOLE)
    assert sums["right"], "the sum of two vectors is wrong"
    return f"{len(seen['nodes'])} device nodes, the claim's GPU alone, {sums['multiprocessors']} multiprocessors; {stage.runtime.kind}"


async def only_one_of_several(stage: Stage) -> str:
    """Of several GPUs a container sees its own, another than that of a pod beside it, and a claim of two sees both."""
    there = len(stage.smi.gpus())
    if there < 2:
        raise SkippedError("one GPU only")
    if not stage.runtime.kind.isolated:
        raise SkippedError("containers are plain processes here, which see the host's devices; needs root")
    await stage.start("own-0", "spin", 8, claim=WHOLE)
    await stage.phase("own-0", "Running")
    [first] = stage.claimed("own-0")
    beside = await stage.run("own-1", "see", claim=WHOLE)
    [second] = beside["claimed"]
    assert [f"GPU-{each}" for each in beside["uuids"]] == [second], f"has {second}, CUDA shows {beside['uuids']}"
    assert first != second, f"two pods at once have {first}"
    own = [path for path in beside["nodes"] if path.removeprefix("/dev/nvidia").isdigit()]
    assert len(own) == 1, f"device nodes of GPUs: {own}"
    await stage.result("own-0")
    both = await stage.run("both", "see", claim={"count": 2})
    assert {f"GPU-{each}" for each in both["uuids"]} == set(both["claimed"]), both
    return f"{there} GPUs: each of two pods at once sees one, another than the other's; a claim of two sees two"


async def capabilities(stage: Stage) -> str:
    """Graphics libraries come for claims that ask, and each library once."""
    counts = {}
    for name, config in {"plain": {}, "drawing": {"capabilities": ["compute", "utility", "graphics"]}}.items():
        await stage.start(name, "spin", 4, claim=WHOLE, **config)
        await stage.phase(name, "Running", "Succeeded")
        [container] = [each for (_, pod, _), each in stage.runtime.running.items() if pod == name]
        mounts = [path for _, path in container.edits.mounts]
        assert len(mounts) == len(set(mounts)), "a path is mounted twice"
        counts[name] = [len(mounts), sum("EGL" in path or "GLX" in path for path in mounts)]
        await stage.remove(name)
    if not counts["plain"][0]:
        raise SkippedError("no files of NVIDIA's driver under --driver-root")
    assert counts["plain"][1] == 0, f"{counts['plain'][1]} graphics libraries without being asked for"
    return f"{counts['plain'][0]} mounts; with graphics {counts['drawing'][0]}"
