"""The cluster that e2e runs on: the one of --kubeconfig, else a sandbox that is started for the module.

On a cluster of yours the three programs must run already; the suite applies `examples/`, watches, checks and deletes. On the
sandbox they are installed from manifests/overlays/simulated, as an operator would, and run from what was installed. Either
way the cluster needs the GPUs that the examples ask for: two nodes as hgx-h100, one as dgx-a100, one as l40s. With --requests
its nodes may have less CPU and memory than such servers.

The sandbox has a stand-in for DRANET's NICs beside the GPUs, and both drivers are managed there; elsewhere the example that needs them is
left out unless DRANET publishes some.

With --driver gpu.nvidia.com the GPUs are those of NVIDIA's DRA driver: on the sandbox a stand-in publishes them in that driver's form,
and Fairlead is installed from manifests/overlays/nvidia-driver, without a driver of its own. The examples are applied as a user of that
driver would write them.
"""

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from fairlead.cli.demo import cases
from fairlead.cli.demo.history import Observer
from fairlead.cli.demo.run import NODES
from fairlead.kube.client import Client
from fairlead.sandbox.cluster import ClusterOptions
from fairlead.sandbox.install import manifests
from fairlead.sandbox.install.apply import Applier
from fairlead.sandbox.installation import example, installed_for, labelled
from tests.support.kubernetes import of_this_run


class Site:
    """One cluster under test, and what is seen of it."""

    def __init__(self, client: Client, observer: Observer, requests: dict[str, str] | None, driver: str) -> None:
        self.client = client
        self.driver = driver
        self._requests = requests
        self.observer = observer
        self._applier = Applier(client)

    async def apply(self, folder: str) -> None:
        found = self._manifests(folder)
        if self._requests is not None:
            found = [manifests.replaced(each, self._requests) for each in found]
        await self._applier.apply(found)

    async def delete(self, folder: str) -> None:
        await self._applier.delete(self._manifests(folder))

    def _manifests(self, folder: str) -> list[manifests.Manifest]:
        return example(folder, self.driver, gpus=cases.ISLAND_GPUS)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def site(request: pytest.FixtureRequest) -> AsyncIterator[Site]:
    kubeconfig: Path | None = request.config.getoption("--kubeconfig")
    requests: dict[str, str] | None = request.config.getoption("--requests")
    driver: str = request.config.getoption("--driver")
    if kubeconfig is not None:
        async with Client.connect(kubeconfig) as client, Observer(client).running() as observer:
            found = Site(client, observer, requests, driver)
            await found.apply("00-queues")
            yield found
            return
    with tempfile.TemporaryDirectory(prefix="e2e-") as workdir:  # short: the drivers' sockets lie below it
        options = ClusterOptions(workdir=Path(workdir), nodes=labelled(NODES), release=of_this_run())
        async with (
            installed_for(options, driver, with_more=True) as cluster,
            Observer(cluster.admin).running() as observer,
        ):
            found = Site(cluster.admin, observer, requests, driver)
            await found.apply("00-queues")
            yield found
