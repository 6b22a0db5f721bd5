"""The whole driver against the sandbox's apiserver, called over its sockets as kubelet calls it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import socket
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, ClassVar

import aiohttp
import pytest

from fairlead.driver import faultfile, protocol, sockets
from fairlead.driver.app import DriverOptions, run
from fairlead.driver.backends import BackendSpecError
from fairlead.driver.profile import ProfileError
from fairlead.driver.selfcheck import SelfCheck
from fairlead.driver.sockets import SocketError
from fairlead.driver.testing import Kubelet, claim
from fairlead.kube.client import Client
from fairlead.kube.resource import ResourceClaim
from fairlead.kube.resources import NODES, RESOURCE_CLAIMS, RESOURCE_SLICES, raw
from fairlead.sandbox.apiserver.server import ApiServer

CLAIMS = raw(RESOURCE_CLAIMS)
SLICES = raw(RESOURCE_SLICES)


@dataclasses.dataclass
class Cluster:
    """An apiserver with one Node, and directories for a driver on it."""

    server: ApiServer
    client: Client
    path: Path
    kubeconfig: Path

    @property
    def options(self) -> DriverOptions:
        return DriverOptions(
            node_name="n1",
            kubeconfig=self.kubeconfig,
            backend="simulated:dgx-a100",
            plugins_dir=self.path / "plugins",
            registry_dir=self.path / "registry",
            cdi_dir=self.path / "cdi",
            settle_s=0.01,
        )

    @property
    def registration(self) -> Path:
        return self.path / "registry" / "gpu.fairlead.dev-reg.sock"

    @contextlib.asynccontextmanager
    async def driver(self, **changes: Any) -> AsyncIterator[asyncio.Task[None]]:
        """A running driver; it is stopped as SIGTERM stops it, unless it has ended before."""
        ready = asyncio.Event()
        task = asyncio.create_task(run(dataclasses.replace(self.options, **changes), ready=ready))
        waiting = asyncio.create_task(ready.wait())
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if task.done():
            task.result()
        try:
            yield task
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def allocate(self, *devices: str | dict[str, Any], name: str = "train") -> ResourceClaim:
        """A claim in the cluster with these devices, as the controller leaves it."""
        wanted = claim("unused", *devices)
        spec = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.fairlead.dev"}}]}}
        made = await self.client.create(
            CLAIMS, {"metadata": {"name": name, "namespace": "default"}, "spec": spec}, "default"
        )
        assert wanted.status.allocation is not None
        made["status"] = {
            "allocation": {
                "devices": {
                    "results": [
                        {"request": r.request, "driver": r.driver, "pool": r.pool, "device": r.device}
                        | ({"shareID": r.share_id} if r.share_id else {})
                        for r in wanted.status.allocation.devices.results
                    ]
                }
            }
        }
        await self.client.replace(CLAIMS, made, subresource="status")
        return await self.client.get(RESOURCE_CLAIMS, name, "default")

    async def slices(self) -> list[dict[str, Any]]:
        return sorted((await self.client.list(SLICES)).items, key=lambda slice_: str(slice_["metadata"]["name"]))

    async def until(self, condition: Any) -> None:
        """Wait for something that the driver will do on its own."""
        async with asyncio.timeout(20):
            while not await condition():  # noqa: ASYNC110 - what is waited for happens in an apiserver
                await asyncio.sleep(0.01)


@pytest.fixture
async def cluster(short_path: Path) -> AsyncIterator[Cluster]:
    async with ApiServer(workdir=short_path) as server:
        kubeconfig = short_path / "kubeconfig"
        kubeconfig.write_text(server.kubeconfig())
        async with Client.connect(kubeconfig) as client:
            await client.create(raw(NODES), {"metadata": {"name": "n1"}})
            yield Cluster(server, client, short_path, kubeconfig)


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


class TestRegistration:
    async def test_kubelet_learns_who_is_there_and_where_to_call(self, cluster: Cluster) -> None:
        async with cluster.driver(), Kubelet.connect(cluster.registration) as kubelet:
            info = await kubelet.registration.GetInfo(protocol.pluginregistration_v1_pb2.InfoRequest())
        assert info.type == "DRAPlugin"
        assert info.name == "gpu.fairlead.dev"
        assert info.endpoint == str(cluster.path / "plugins/gpu.fairlead.dev/dra.sock")
        assert list(info.supported_versions) == ["v1.DRAPlugin", "v1beta1.DRAPlugin", "v1alpha1.DRAResourceHealth"]

    async def test_readiness_tells_what_kubelet_thinks_of_the_driver(self, cluster: Cluster) -> None:
        bind = free_port()

        async def ready() -> tuple[int, str]:
            async with aiohttp.ClientSession() as http, http.get(f"http://{bind}/readyz") as response:
                return response.status, await response.text()

        pb2 = protocol.pluginregistration_v1_pb2
        async with (
            cluster.driver(metrics_bind=bind),
            Kubelet.connect(cluster.registration) as kubelet,
        ):
            assert await ready() == (503, "kubelet has not registered the driver yet\n")
            await kubelet.registration.NotifyRegistrationStatus(
                pb2.RegistrationStatus(plugin_registered=False, error="name is taken")
            )
            assert await ready() == (503, "kubelet refused to register gpu.fairlead.dev: name is taken\n")
            await kubelet.registration.NotifyRegistrationStatus(pb2.RegistrationStatus(plugin_registered=True))
            assert await ready() == (200, "ok\n")

    async def test_a_socket_that_was_removed_is_a_reason_to_restart(self, cluster: Cluster) -> None:
        places = sockets.places(
            driver="gpu.fairlead.dev",
            plugins_dir=cluster.options.plugins_dir,
            registry_dir=cluster.options.registry_dir,
            pod_uid=None,
        )
        check = SelfCheck(places)
        async with cluster.driver():
            assert await check.check() is None
            places.dra.unlink()
            assert f"{places.dra}: the driver's own socket does not answer" in str(await check.check())

    async def test_sockets_are_private_and_gone_after_a_clean_stop(self, cluster: Cluster) -> None:
        dra = cluster.path / "plugins/gpu.fairlead.dev/dra.sock"
        async with cluster.driver():
            for path in (dra, cluster.registration):
                assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert not dra.exists()
        assert not cluster.registration.exists()

    async def test_sockets_of_a_killed_process_are_replaced(self, cluster: Cluster) -> None:
        for path in (cluster.path / "plugins/gpu.fairlead.dev/dra.sock", cluster.registration):
            path.parent.mkdir(parents=True, exist_ok=True)
            with socket.socket(socket.AF_UNIX) as dead:
                dead.bind(str(path))
        async with cluster.driver(), Kubelet.connect(cluster.registration):
            pass


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
class TestPrepare:
    async def test_a_claim_is_prepared_again_identically_and_given_back(self, cluster: Cluster, version: str) -> None:
        wanted = await cluster.allocate("gpu-0", "gpu-6-mig-1g10gb-19-2")
        uid = wanted.metadata.uid
        async with cluster.driver(), Kubelet.connect(cluster.registration) as kubelet:
            answer = await kubelet.prepare(wanted, version=version)
            assert list(answer) == [uid]
            assert answer[uid].error == ""
            assert [(list(d.request_names), d.pool_name, d.device_name) for d in answer[uid].devices] == [
                (["gpu"], "n1", "gpu-0"),
                (["gpu"], "n1", "gpu-6-mig-1g10gb-19-2"),
            ]
            assert [list(d.cdi_device_ids) for d in answer[uid].devices] == [
                [f"k8s.gpu.fairlead.dev/claim={uid}-gpu-0"],
                [f"k8s.gpu.fairlead.dev/claim={uid}-gpu-6-mig-1g10gb-19-2"],
            ]
            assert await kubelet.prepare(wanted, version=version) == answer
            [path] = (cluster.path / "cdi").iterdir()
            assert json.loads(path.read_bytes())["devices"][0]["name"] == f"{uid}-gpu-0"
            answer = await kubelet.unprepare(wanted, version=version)
            assert answer[uid].error == ""
        assert list((cluster.path / "cdi").iterdir()) == []
        assert list((cluster.path / "plugins/gpu.fairlead.dev/claims").iterdir()) == []

    async def test_each_claim_gets_its_own_answer(self, cluster: Cluster, version: str) -> None:
        good = await cluster.allocate("gpu-0")
        gone = claim("no-such-uid", "gpu-1", name="gone")
        async with cluster.driver(), Kubelet.connect(cluster.registration) as kubelet:
            answer = await kubelet.prepare(good, gone, version=version)
        assert answer.keys() == {good.metadata.uid, "no-such-uid"}
        assert answer[good.metadata.uid].error == ""
        assert "ResourceClaim ml/gone: reading it from the apiserver" in answer["no-such-uid"].error
        assert len(answer["no-such-uid"].devices) == 0


class TestProtocol:
    async def test_share_ids_are_told_where_the_version_has_them(self, cluster: Cluster) -> None:
        share = "3f3a8d6e-0000-4000-8000-000000000001"
        wanted = await cluster.allocate({"device": "gpu-0", "shareID": share})
        async with cluster.driver(), Kubelet.connect(cluster.registration) as kubelet:
            [v1] = (await kubelet.prepare(wanted))[wanted.metadata.uid].devices
            [v1beta1] = (await kubelet.prepare(wanted, version="v1beta1"))[wanted.metadata.uid].devices
        assert v1.share_id == share
        assert v1.cdi_device_ids == v1beta1.cdi_device_ids

    async def test_a_claim_made_anew_under_the_same_name_is_refused(self, cluster: Cluster) -> None:
        await cluster.allocate("gpu-0", name="train")
        old = claim("0b0a9e0c-0000-0000-0000-000000000000", "gpu-0", name="train", namespace="default")
        async with cluster.driver(), Kubelet.connect(cluster.registration) as kubelet:
            answer = await kubelet.prepare(old)
        assert "it was deleted and made anew" in answer[old.metadata.uid].error

    async def test_a_claim_that_is_not_allocated_is_refused(self, cluster: Cluster) -> None:
        spec = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.fairlead.dev"}}]}}
        await cluster.client.create(
            CLAIMS, {"metadata": {"name": "c", "namespace": "default"}, "spec": spec}, "default"
        )
        wanted = await cluster.client.get(RESOURCE_CLAIMS, "c", "default")
        async with cluster.driver(), Kubelet.connect(cluster.registration) as kubelet:
            answer = await kubelet.prepare(wanted)
        assert "status.allocation: not set" in answer[wanted.metadata.uid].error

    async def test_unprepare_of_an_unknown_claim_succeeds_without_an_apiserver(self, cluster: Cluster) -> None:
        wanted = await cluster.allocate("gpu-0")
        async with cluster.driver(), Kubelet.connect(cluster.registration) as kubelet:
            await kubelet.prepare(wanted)
            await cluster.server.stop()
            answer = await kubelet.unprepare(wanted, claim("unknown", "gpu-1"))
        assert [entry.error for entry in answer.values()] == ["", ""]

    async def test_sixty_four_claims_in_one_call(self, cluster: Cluster) -> None:
        wanted = [await cluster.allocate({"device": "gpu-0", "shareID": _share(n)}, name=f"c{n}") for n in range(64)]
        async with cluster.driver(), Kubelet.connect(cluster.registration) as kubelet:
            answer = await kubelet.prepare(*wanted)
            assert answer.keys() == {one.metadata.uid for one in wanted}
            assert {entry.error for entry in answer.values()} == {""}
            assert len(list((cluster.path / "cdi").iterdir())) == 64
            answer = await kubelet.unprepare(*wanted)
            assert {entry.error for entry in answer.values()} == {""}
        assert list((cluster.path / "cdi").iterdir()) == []

    async def test_an_empty_call_is_a_probe(self, cluster: Cluster) -> None:
        async with cluster.driver(), Kubelet.connect(cluster.registration) as kubelet:
            assert await kubelet.prepare() == {}
            assert await kubelet.unprepare() == {}

    async def test_the_health_stream_lists_every_published_device(self, cluster: Cluster) -> None:
        async with cluster.driver(), Kubelet.connect(cluster.registration) as kubelet:
            stream = kubelet.health.NodeWatchResources(protocol.dra_health_v1alpha1_pb2.NodeWatchResourcesRequest())
            first = await stream.read()
            stream.cancel()
        published = [device["name"] for slice_ in await cluster.slices() for device in slice_["spec"]["devices"]]
        assert [entry.device.device_name for entry in first.devices] == published
        assert {entry.health for entry in first.devices} == {protocol.dra_health_v1alpha1_pb2.HEALTHY}

    async def test_an_open_health_stream_does_not_delay_the_end(self, cluster: Cluster) -> None:
        async with cluster.driver() as driver, Kubelet.connect(cluster.registration) as kubelet:
            stream = kubelet.health.NodeWatchResources(protocol.dra_health_v1alpha1_pb2.NodeWatchResourcesRequest())
            await stream.read()
            driver.cancel()
            async with asyncio.timeout(3):
                await asyncio.wait({driver})
            assert driver.done()
            stream.cancel()


def _share(number: int) -> str:
    return f"3f3a8d6e-0000-4000-8000-{number:012x}"


class TestDynamicMig:
    options: ClassVar[dict[str, Any]] = {
        "backend": "simulated:hgx-h100",
        "dynamic_mig": True,
        "hardware_interval_s": 0.02,
    }

    async def test_every_placement_is_published_with_counters(self, cluster: Cluster) -> None:
        async with cluster.driver(**self.options):
            stored = await cluster.slices()
        assert [len(s["spec"].get("sharedCounters", [])) for s in stored] == [8, 0, 0, 0, 0]
        assert sum(len(s["spec"].get("devices", [])) for s in stored) == 8 * 26
        assert {s["spec"]["pool"]["resourceSliceCount"] for s in stored} == {5}

    async def test_mig_devices_come_and_go_with_their_claims_and_nothing_is_published_for_it(
        self, cluster: Cluster
    ) -> None:
        wanted = await cluster.allocate("gpu-0-mig-3g40gb-9-4", "gpu-1")
        async with cluster.driver(**self.options), Kubelet.connect(cluster.registration) as kubelet:
            before = await cluster.slices()
            answer = await kubelet.prepare(wanted)
            assert answer[wanted.metadata.uid].error == ""
            assert await kubelet.prepare(wanted) == answer
            await asyncio.sleep(0.1)  # several looks at the hardware
            assert (await kubelet.unprepare(wanted))[wanted.metadata.uid].error == ""
            await asyncio.sleep(0.1)
            assert await cluster.slices() == before

    async def test_a_restarted_driver_knows_its_mig_devices(self, cluster: Cluster) -> None:
        wanted = await cluster.allocate("gpu-0-mig-3g40gb-9-4")
        async with cluster.driver(**self.options), Kubelet.connect(cluster.registration) as kubelet:
            before = await kubelet.prepare(wanted)
            published = await cluster.slices()
        async with cluster.driver(**self.options), Kubelet.connect(cluster.registration) as kubelet:
            assert await cluster.slices() == published
            assert await kubelet.prepare(wanted) == before
            assert (await kubelet.unprepare(wanted))[wanted.metadata.uid].error == ""
        hardware = json.loads((cluster.path / "plugins/gpu.fairlead.dev/simulated-hardware.json").read_bytes())
        assert not any(hardware["instances"].values())


class TestSharedGpus:
    async def test_they_are_published_and_prepared_for_several_claims(self, cluster: Cluster) -> None:
        first = await cluster.allocate({"device": "gpu-0", "shareID": _share(1)}, name="a")
        second = await cluster.allocate({"device": "gpu-0", "shareID": _share(2)}, name="b")
        async with cluster.driver(shared_gpus=True), Kubelet.connect(cluster.registration) as kubelet:
            [stored] = await cluster.slices()
            shared = [d["name"] for d in stored["spec"]["devices"] if d.get("allowMultipleAllocations")]
            assert shared == [f"gpu-{minor}" for minor in range(6)]
            answers = await kubelet.prepare(first, second)
            assert {entry.error for entry in answers.values()} == {""}
            for number, one in ((1, first), (2, second)):
                [device] = answers[one.metadata.uid].devices
                assert device.share_id == _share(number)
                assert list(device.cdi_device_ids) == [
                    f"k8s.gpu.fairlead.dev/claim={one.metadata.uid}-gpu-0-{_share(number)}"
                ]


class TestRestarts:
    async def test_a_restarted_driver_answers_as_before_and_publishes_nothing_new(self, cluster: Cluster) -> None:
        wanted = await cluster.allocate("gpu-0")
        async with cluster.driver(), Kubelet.connect(cluster.registration) as kubelet:
            before = await kubelet.prepare(wanted)
        slices = await cluster.slices()
        async with cluster.driver(), Kubelet.connect(cluster.registration) as kubelet:
            assert await kubelet.prepare(wanted) == before
        assert await cluster.slices() == slices

    async def test_a_second_driver_on_the_node_is_refused(self, cluster: Cluster) -> None:
        async with cluster.driver(), Kubelet.connect(cluster.registration):
            with pytest.raises(SocketError, match="held by another process of this driver"):
                await run(cluster.options)

    async def test_during_a_rolling_update_both_serve_and_know_each_others_claims(self, cluster: Cluster) -> None:
        first, second = await cluster.allocate("gpu-0", name="a"), await cluster.allocate("gpu-0", name="b")
        registry = cluster.path / "registry"
        async with (
            cluster.driver(pod_uid="old"),
            cluster.driver(pod_uid="new"),
            Kubelet.connect(registry / "gpu.fairlead.dev-old-reg.sock") as old,
            Kubelet.connect(registry / "gpu.fairlead.dev-new-reg.sock") as new,
        ):
            assert (await old.prepare(first))[first.metadata.uid].error == ""
            assert "held by ResourceClaim default/a" in (await new.prepare(second))[second.metadata.uid].error
            assert (await new.unprepare(first))[first.metadata.uid].error == ""
            assert (await old.prepare(second))[second.metadata.uid].error == ""

    async def test_a_claim_that_vanished_from_the_cluster_is_given_back(self, cluster: Cluster) -> None:
        wanted = await cluster.allocate("gpu-0")
        async with cluster.driver(sweep_interval_s=0.02), Kubelet.connect(cluster.registration) as kubelet:
            await kubelet.prepare(wanted)
            await cluster.client.delete(CLAIMS, "train", "default")

            again = await cluster.allocate("gpu-0", name="next")

            async def given() -> bool:
                """As kubelet does: asked again until the device is free."""
                return bool((await kubelet.prepare(again))[again.metadata.uid].error == "")

            await cluster.until(given)
            assert [path.name for path in (cluster.path / "cdi").iterdir() if wanted.metadata.uid in path.name] == []


class TestStart:
    async def test_an_unknown_profile_is_refused_with_those_that_are_known(self, cluster: Cluster) -> None:
        with pytest.raises(ProfileError, match=r"did you mean 'hgx-h100'\? known profiles: .*dgx-a100.*l40s"):
            await run(dataclasses.replace(cluster.options, backend="simulated:hgx-h10"))

    @pytest.mark.parametrize("spec", ["simulated", "simulated:", "amd", "", "nvml:0"])
    async def test_an_unknown_backend_is_refused(self, cluster: Cluster, spec: str) -> None:
        with pytest.raises(BackendSpecError, match="write"):
            await run(dataclasses.replace(cluster.options, backend=spec))

    async def test_a_path_too_long_for_a_socket_is_refused_with_the_way_out(self, cluster: Cluster) -> None:
        with pytest.raises(SocketError, match="choose a shorter --plugins-dir"):
            await run(dataclasses.replace(cluster.options, plugins_dir=cluster.path / ("x" * 100)))

    async def test_a_long_pod_uid_is_shortened_to_fit(self, cluster: Cluster) -> None:
        registry = cluster.path / ("r" * 40)
        async with cluster.driver(pod_uid="0b0a9e0c-6d5e-4f0e-9a53-3f3a8d6e7c11", registry_dir=registry):
            [path] = registry.iterdir()
            async with Kubelet.connect(path) as kubelet:
                assert await kubelet.prepare() == {}

    async def test_metrics_count_claims_and_devices(self, cluster: Cluster) -> None:
        wanted, bind = await cluster.allocate("gpu-0"), free_port()
        async with (
            cluster.driver(metrics_bind=bind, dcgm_metrics=True),
            Kubelet.connect(cluster.registration) as kubelet,
            aiohttp.ClientSession() as http,
        ):
            await kubelet.prepare(wanted)
            async with http.get(f"http://{bind}/metrics") as response:
                text = await response.text()
        assert 'fairlead_driver_claims_total{operation="NodePrepareResources",result="ok"} 1.0' in text
        assert 'fairlead_driver_claims_held{state="prepared"} 1.0' in text
        assert 'fairlead_driver_devices{type="mig"} 10.0' in text
        assert 'fairlead_driver_resourceslice_writes_total{result="ok",verb="create"} 1.0' in text
        [uuid] = [
            device["attributes"]["uuid"]["string"]
            for stored in await cluster.slices()
            for device in stored["spec"]["devices"]
            if device["name"] == "gpu-0"
        ]
        assert f'fairlead_driver_gpu_power_watts{{device="gpu-0",uuid="{uuid}"}} 60.0' in text
        held = f'device="gpu-0",namespace="default",share="",uuid="{uuid}"'
        assert f'fairlead_driver_device_claim{{claim="train",{held}}} 1.0' in text
        assert "DCGM_FI_DEV_POWER_USAGE{" in text


class TestSlices:
    async def test_wiped_slices_come_back(self, cluster: Cluster) -> None:
        async with cluster.driver():
            [before] = await cluster.slices()
            await cluster.client.delete(SLICES, before["metadata"]["name"])

            async def back() -> bool:
                return len(await cluster.slices()) == 1

            await cluster.until(back)
            [after] = await cluster.slices()
            assert after["spec"]["devices"] == before["spec"]["devices"]

    async def test_an_edited_slice_is_put_right_in_place(self, cluster: Cluster) -> None:
        async with cluster.driver():
            [before] = await cluster.slices()
            edited = json.loads(json.dumps(before))
            edited["spec"]["devices"][0]["name"] = "gpu-99"
            await cluster.client.replace(SLICES, edited)

            async def right() -> bool:
                return bool((await cluster.slices())[0]["spec"] == before["spec"])

            await cluster.until(right)
            [after] = await cluster.slices()
            assert after["metadata"]["name"] == before["metadata"]["name"]
            assert after["spec"]["pool"]["generation"] == 1

    async def test_publishing_goes_on_when_the_apiserver_is_back(self, cluster: Cluster) -> None:
        cluster.server.faults.fail(500, verb="create", resource="resourceslices", count=2)
        async with cluster.driver():
            assert len(await cluster.slices()) == 1

    async def test_a_fault_taints_the_slice_until_it_is_mended(self, cluster: Cluster) -> None:
        faults = cluster.path / "plugins/gpu.fairlead.dev/simulated-faults.json"

        async def taints() -> dict[str, list[str]]:
            [stored] = await cluster.slices()
            return {
                device["name"]: [f"{taint['key']}:{taint['effect']}" for taint in device["taints"]]
                for device in stored["spec"]["devices"]
                if device.get("taints")
            }

        async def tainted() -> bool:
            found = await taints()
            return found == {"gpu-1": ["gpu.fairlead.dev/gpu-lost:NoExecute"]}

        async def well() -> bool:
            found = await taints()
            return found == {}

        async with cluster.driver(hardware_interval_s=0.02):
            faultfile.inject(faults, 1, lost=True)
            await cluster.until(tainted)
            faultfile.mend(faults)
            await cluster.until(well)
            [stored] = await cluster.slices()
            assert stored["spec"]["pool"]["generation"] == 1

    async def test_a_lost_gpu_is_given_to_nobody_new_and_its_claims_are_answered(self, cluster: Cluster) -> None:
        faults = cluster.path / "plugins/gpu.fairlead.dev/simulated-faults.json"
        old, new = await cluster.allocate("gpu-1", name="old"), await cluster.allocate("gpu-2", name="new")

        async def tainted() -> bool:
            [stored] = await cluster.slices()
            return sum(1 for device in stored["spec"]["devices"] if device.get("taints")) == 2

        async with (
            cluster.driver(hardware_interval_s=0.02),
            Kubelet.connect(cluster.registration) as kubelet,
        ):
            before = await kubelet.prepare(old)
            faultfile.inject(faults, 1, lost=True)
            faultfile.inject(faults, 2, lost=True)
            await cluster.until(tainted)
            assert await kubelet.prepare(old) == before
            error = (await kubelet.prepare(new))[new.metadata.uid].error
            assert "gpu-2 cannot be used: the GPU has fallen off the bus; delete the pod" in error
            assert (await kubelet.unprepare(old))[old.metadata.uid].error == ""

    async def test_slices_stay_when_the_driver_stops(self, cluster: Cluster) -> None:
        async with cluster.driver():
            pass
        assert len(await cluster.slices()) == 1
