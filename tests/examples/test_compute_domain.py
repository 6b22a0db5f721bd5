"""examples/24-compute-domain, beside a stand-in for NVIDIA's controller and kubelet plugin: a gang with GPUs and an IMEX channel.

Two cliques of two trays each. The GPUs are Fairlead's to give, of its own driver or of NVIDIA's; the channel is a claim of its own, of a
driver that is not managed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from fairlead.api import names
from fairlead.api.drivers import NVIDIA
from fairlead.kube.resources import GANGS, PODS, RESOURCE_CLAIMS, raw
from fairlead.sandbox import files
from fairlead.sandbox.cluster import NodeSpec
from fairlead.sandbox.installation import example, labelled
from fairlead.sandbox.objects import phase_of, results_of
from tests.support import compute_domains
from tests.support.compute_domains import DRIVER, NAMESPACE
from tests.support.sandbox import until
from tests.support.shapes.site import Site, sites

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

Json = dict[str, Any]
CLIQUE = "00000001-0000-0000-0000-000000000001.2"  # of the profile
OTHER = CLIQUE[:-1] + "3"
CHANNEL = "/dev/nvidia-caps-imex-channels/channel0"


@dataclass
class Trays:
    """The cluster, NVIDIA's controller on it, and the example as a user of the driver would write it."""

    site: Site
    controller: compute_domains.Controller
    objects: list[Json]

    async def gang(self) -> Json:
        """The status of the example's gang."""
        gangs = (await self.site.client.list(raw(GANGS), "vision")).items
        return next((each.get("status") or {} for each in gangs if each["metadata"]["name"] == "all-to-all"), {})

    async def pods(self) -> list[Json]:
        pods = await self.site.pods("vision")
        return [pod for pod in pods if pod["metadata"]["name"].startswith("all-to-all-")]

    async def run(self) -> bool:
        return [phase_of(pod) for pod in await self.pods()] == ["Running", "Running"]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=[names.DRIVER, NVIDIA])
async def trays(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Trays]:
    """Our driver publishes the clique with each GPU; beside NVIDIA's, GPU feature discovery writes it on the node."""
    driver, cliques = request.param, {"a1": CLIQUE, "a2": CLIQUE, "b1": OTHER, "b2": OTHER}
    if driver == NVIDIA:
        labels = {name: {"nvidia.com/gpu.clique": clique} for name, clique in cliques.items()}
        nodes = labelled(NodeSpec(name, "gb200-nvl72", labels=labels[name]) for name in cliques)
    else:
        profile = Path(files.find("driver/fairlead/driver/backend/profiles/gb200-nvl72.yaml")).read_text()
        assert CLIQUE in profile
        other = tmp_path_factory.mktemp("profiles") / "other.yaml"
        other.write_text(profile.replace(CLIQUE, OTHER))
        profiles = {CLIQUE: "gb200-nvl72", OTHER: str(other)}
        nodes = tuple(NodeSpec(name, profiles[clique]) for name, clique in cliques.items())
    async with (
        sites((), *nodes, driver=driver) as site,
        compute_domains.compute_domains(site.cluster) as controller,
    ):
        yield Trays(site, controller, [dict(each) for each in example("24-compute-domain", driver, gpus=4)])


async def test_a_gang_with_a_channel_waits_for_its_template_and_then_runs_whole_in_one_clique(trays: Trays) -> None:
    site, filler = trays.site, one_gpu("a1")
    domain, *rest = trays.objects
    assert domain["kind"] == "ComputeDomain"
    await site.apply([filler])
    await until(site.allocated, what="a GPU of a1 is in use: only the other clique has room")
    try:
        await site.apply(rest)
        missing = "ResourceClaimTemplate vision/all-to-all-channel"

        async def told() -> bool:
            return missing in (await trays.gang()).get("message", "")

        await until(told, what="the gang says which template is missing")
        status = await trays.gang()
        assert (status["phase"], status["reason"]) == ("Gathering", "Gathering")
        assert "create it, or what makes it, such as a ComputeDomain" in status["message"]
        assert all(pod["spec"]["schedulingGates"] for pod in await trays.pods())
        assert len(await site.allocated()) == 1, "what waits holds nothing"

        await site.apply([domain])
        await until(trays.run, timeout_s=60, what="the gang runs whole")
        pods = await trays.pods()
        assert sorted(pod["spec"]["nodeName"] for pod in pods) == ["b1", "b2"]
        for pod in pods:
            node, held = pod["spec"]["nodeName"], sorted(await site.devices(pod))
            assert held == [f"{node}/{device}" for device in ("channel-0", "gpu-0", "gpu-1", "gpu-2", "gpu-3")]
            containers = site.cluster.nodes[node].kubelet.containers
            (seen,) = (each.device_nodes for key, each in containers.items() if pod["metadata"]["name"] in key)
            assert {CHANNEL, "/dev/nvidia0", "/dev/nvidia3"} <= {*seen}
        await the_daemons_are_left_alone(site)
    finally:
        await site.delete([filler, *trays.objects])


async def the_daemons_are_left_alone(site: Site) -> None:
    """Neither the daemon's pods nor any claim of the domain has a mark of Fairlead's."""
    daemons = (await site.client.list(raw(PODS), NAMESPACE)).items
    assert sorted(pod["spec"]["nodeName"] for pod in daemons) == ["b1", "b2"]
    claims = [
        claim
        for claim in (await site.client.list(raw(RESOURCE_CLAIMS))).items
        if any(each["driver"] == DRIVER for each in results_of(claim))
    ]
    assert len(claims) == 4
    assert "fairlead.dev" not in str([*daemons, *claims])
    assert (await site.client.list(raw(GANGS), NAMESPACE)).items == []


async def test_a_gang_whose_domain_is_not_ready_says_so_and_keeps_its_devices(trays: Trays) -> None:
    trays.controller.starts_daemons = False
    try:
        await trays.site.apply(trays.objects)

        async def told() -> bool:
            return "is not ready on node" in (await trays.gang()).get("message", "")

        await until(told, timeout_s=60, what="the gang says what its pods wait for")
        assert all(pod["spec"].get("nodeName") for pod in await trays.pods())
        trays.controller.starts_daemons = True
        await until(trays.run, timeout_s=60, what="the gang runs whole")
    finally:
        trays.controller.starts_daemons = True
        await trays.site.delete(trays.objects)


async def test_a_pod_with_a_channel_alone_is_left_to_kube_scheduler(trays: Trays) -> None:
    """As in NVIDIA's first example. The webhook gates it where its template is not there yet, since a gate cannot be added later."""
    domain = trays.objects[0]
    pod = bare_pod("imex", {"claims": [{"name": "channel"}]})
    template = domain["spec"]["channel"]["resourceClaimTemplate"]["name"]
    pod["spec"]["resourceClaims"] = [{"name": "channel", "resourceClaimTemplateName": template}]
    try:
        await trays.site.apply([pod])
        (made,) = await trays.site.pods("vision")
        assert [gate["name"] for gate in made["spec"]["schedulingGates"]] == [names.ADMISSION_GATE]
        await trays.site.apply([domain])

        async def runs() -> bool:
            return [phase_of(each) for each in await trays.site.pods("vision")] == ["Running"]

        await until(runs, what="it runs")
    finally:
        await trays.site.delete([pod, domain])


def one_gpu(node: str) -> Json:
    pod = bare_pod("filler", {"limits": {"nvidia.com/gpu": "1"}})
    pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    return pod


def bare_pod(name: str, resources: Json) -> Json:
    container = {"name": "main", "image": "busybox:1.37", "command": ["sleep", "infinity"], "resources": resources}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "vision"},
        "spec": {"containers": [container]},
    }
