"""NCCL's topology file, the smoke test, and that nothing is left."""

from __future__ import annotations

import asyncio
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

from tests.hardware.checks_devices import WHOLE
from tests.hardware.stage import NAMESPACE, NODE, SkippedError, Stage


async def nccl(stage: Stage) -> str:
    """The file names the claim's GPU below a NUMA node that exists."""
    name = await stage.start("nccl", "spin", 2, claim=WHOLE, ncclTopology=True)
    await stage.phase(name, "Running", "Succeeded")
    [container] = [each for (_, pod, _), each in stage.runtime.running.items() if pod == name]
    inside = container.env["NCCL_TOPO_FILE"]
    [host] = [path for path, target in container.edits.mounts if target == inside]
    root = ET.fromstring(await asyncio.to_thread(Path(host).read_text))
    await stage.result(name)
    nodes = [cpu.get("numaid") for cpu in root.iter("cpu")]
    assert root.find(".//gpu") is not None, ET.tostring(root)
    assert "-1" not in nodes, f"NUMA nodes {nodes}"
    assert all(cpu.get("affinity") for cpu in root.iter("cpu")), "a NUMA node without CPUs"
    seen = f"GPU of sm_{root.find('.//gpu').get('sm')} below NUMA node {', '.join(map(str, nodes))}"  # type: ignore[union-attr]
    summed = await stage.run("nccl-sum", "reduce", claim=WHOLE, ncclTopology=True)
    if not summed["torch"]:
        return f"{seen}; no PyTorch here to let NCCL read it"
    assert summed["sum"] == 1024, summed
    assert any("NCCL_TOPO_FILE" in line for line in summed["said"]), f"NCCL did not read it: {summed}"
    assert not any(" WARN " in line for line in summed["said"]), f"NCCL warns: {summed}"
    return f"{seen}; NCCL of PyTorch {summed['version']} reads it: {'; '.join(summed['said'][:2])}"


async def smoke(stage: Stage) -> str:
    """`fairlead smoke` of this node."""
    if not stage.runtime.kind.isolated:
        raise SkippedError("containers are plain processes here; needs root")
    command = ("smoke", NODE, f"--namespace={NAMESPACE}", "--timeout=60", f"--kubeconfig={stage.cluster.kubeconfig()}")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "fairlead", *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    text, _ = await process.communicate()
    said = " ".join(text.decode(errors="replace").split())
    assert process.returncode == 0, said
    return said[-160:]


async def leftovers(stage: Stage) -> str:
    """Neither files, records, daemons nor mounts are left."""

    async def nothing() -> bool:
        return not list(stage.node.leftovers())

    try:
        await stage.until(nothing, "nothing is left", 20)
    except AssertionError:
        raise AssertionError("; ".join(stage.node.leftovers())) from None
    root = str(stage.node.root)
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines() if root in line]
    assert not mounts, f"still mounted: {mounts}"
    processes = await asyncio.to_thread(stage.smi.processes)
    assert not processes, f"processes on GPUs: {processes}"
    return "no files, records, daemons, mounts or processes on GPUs"
