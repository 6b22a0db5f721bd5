"""The second half of `make gpu`: NVIDIA's own DRA driver publishes and prepares, under Fairlead's webhook and controller.

Its kubelet plugin is a program of whoever has the hardware (`--nvidia-driver`); where there is no GPU the sandbox's stand-in of it
takes its place. Fairlead is installed for it from manifests/overlays/nvidia-driver, as docs/install.md says.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import yaml

from fairlead.api.drivers import NVIDIA
from fairlead.kube.resources import RESOURCE_SLICES, raw
from fairlead.sandbox import files, installation, other_driver
from fairlead.sandbox.cluster import Cluster, ClusterOptions, NodeSpec
from fairlead.sandbox.install import manifests
from fairlead.sandbox.node import Node
from fairlead.sandbox.other_driver import OtherDriver
from tests.hardware.runtime import Kind, ProcessRuntime
from tests.hardware.smi import Smi
from tests.hardware.stage import NODE, Stage

READY_S = 60.0
END_S = 10.0
NO_METRICS = ""


@contextlib.asynccontextmanager
async def stage(
    *, kind: Kind, smi: Smi, workdir: Path, driver_root: Path, program: Path | None
) -> AsyncIterator[Stage]:
    """As `stage.stage`, with NVIDIA's driver; `program` None: its stand-in. Raises OSError or AssertionError where it does not start."""
    runtime = ProcessRuntime(kind, workdir / "containers")
    options = ClusterOptions(workdir=workdir / "c", nodes=(NodeSpec(NODE),), runtime=lambda: runtime)
    async with installation.bare(options) as cluster:
        await cluster.apply(other_driver.classes())
        node = cluster.nodes[NODE]
        driver = (
            _standin(cluster, node, workdir, len(smi.gpus()))
            if program is None
            else _program(program, cluster, node, workdir, driver_root)
        )
        async with driver:
            async with asyncio.timeout(READY_S):
                await node.kubelet.plugins.registered(NVIDIA)
            await cluster.apply(manifests.load(files.find(installation.NVIDIA_DRIVER)))
            await cluster.workloads.start()
            yield Stage(
                cluster=cluster, runtime=runtime, smi=smi, metrics_url=NO_METRICS, settings=False, driver=NVIDIA
            )


@contextlib.asynccontextmanager
async def _standin(cluster: Cluster, node: Node, workdir: Path, count: int) -> AsyncIterator[None]:
    described = yaml.safe_load(Path(__file__).with_name("standin").joinpath("h200-vm.yaml").read_text())
    profile = workdir / "profile.yaml"
    profile.write_text(yaml.safe_dump({**described, "gpus": described["gpus"][:count]}))
    driver = OtherDriver(cluster.admin, node=NODE, profile=str(profile), cdi_dir=node.cdi_dir)
    async with driver.running(plugins_dir=node.plugins_dir, registry_dir=node.registry_dir):
        yield


@contextlib.asynccontextmanager
async def _program(
    program: Path, cluster: Cluster, node: Node, workdir: Path, driver_root: Path
) -> AsyncIterator[None]:
    """The plugin as its DaemonSet starts it: all by environment."""
    hook = program.with_name("nvidia-cdi-hook")
    environment = {
        "PATH": os.environ.get("PATH", ""),
        "NODE_NAME": NODE,
        "NAMESPACE": "nvidia-dra-driver-gpu",
        "KUBECONFIG": str(cluster.kubeconfig()),
        "CDI_ROOT": str(node.cdi_dir),
        "NVIDIA_DRIVER_ROOT": str(driver_root),
        "DRIVER_ROOT_CTR_PATH": str(driver_root),
        "NVIDIA_CDI_HOOK_PATH": str(hook if hook.exists() else "/usr/bin/nvidia-cdi-hook"),
        "IMAGE_NAME": "none",  # of pods that it makes for MPS, which is off by default
        "KUBELET_REGISTRAR_DIRECTORY_PATH": str(node.registry_dir),
        "KUBELET_PLUGINS_DIRECTORY_PATH": str(node.plugins_dir),
        "HEALTHCHECK_PORT": "-1",
    }
    log = workdir / "nvidia-driver.log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            program, env=environment, stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        await _published(cluster, process, log)
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), END_S)
        except TimeoutError:
            process.kill()


async def _published(cluster: Cluster, process: asyncio.subprocess.Process, log: Path) -> None:
    until_s = time.monotonic() + READY_S
    while not (await cluster.admin.list(raw(RESOURCE_SLICES))).items:
        said = (await asyncio.to_thread(log.read_text, errors="replace")).strip()[-600:]
        assert process.returncode is None, f"NVIDIA's driver ended with exit code {process.returncode}: {said}"
        assert time.monotonic() < until_s, f"NVIDIA's driver publishes nothing within {READY_S:.0f} s: {said}"
        await asyncio.sleep(0.2)
