"""The whole driver: how kubelet finds it, and how it comes and goes with its sockets."""

from __future__ import annotations

import dataclasses
import socket
import stat
from collections.abc import Callable

import aiohttp
import pytest

from fairlead.driver.app import run
from fairlead.driver.backend.factory import BackendSpecError
from fairlead.driver.backend.profiles.loading import ProfileError
from fairlead.driver.kubelet import protocol, server
from fairlead.driver.kubelet.server import SelfCheck, SocketError
from tests.support.driver.cluster import DriverCluster
from tests.support.driver.kubelet import Kubelet


class TestRegistration:
    async def test_kubelet_reads_the_drivers_name_and_endpoint(self, cluster: DriverCluster) -> None:
        async with cluster.driver(), Kubelet.connect(cluster.registration) as kubelet:
            info = await kubelet.registration.GetInfo(protocol.pluginregistration_v1_pb2.InfoRequest())
        assert info.type == "DRAPlugin"
        assert info.name == "gpu.fairlead.dev"
        assert info.endpoint == str(cluster.path / "plugins/gpu.fairlead.dev/dra.sock")
        assert list(info.supported_versions) == ["v1.DRAPlugin", "v1beta1.DRAPlugin", "v1alpha1.DRAResourceHealth"]

    async def test_readiness_reports_kubelets_registration(
        self, cluster: DriverCluster, free_port: Callable[[], int]
    ) -> None:
        bind = f"127.0.0.1:{free_port()}"

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

    async def test_a_socket_that_was_removed_is_a_reason_to_restart(self, cluster: DriverCluster) -> None:
        paths = server.plugin_paths(
            driver="gpu.fairlead.dev",
            plugins_dir=cluster.options.plugins_dir,
            registry_dir=cluster.options.registry_dir,
            pod_uid=None,
        )
        check = SelfCheck(paths)
        async with cluster.driver():
            assert await check.check() is None
            paths.dra.unlink()
            assert f"{paths.dra}: the driver's own socket does not answer" in str(await check.check())

    async def test_sockets_are_private_and_gone_after_a_clean_stop(self, cluster: DriverCluster) -> None:
        dra = cluster.path / "plugins/gpu.fairlead.dev/dra.sock"
        async with cluster.driver():
            for path in (dra, cluster.registration):
                assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert not dra.exists()
        assert not cluster.registration.exists()

    async def test_sockets_of_a_killed_process_are_replaced(self, cluster: DriverCluster) -> None:
        for path in (cluster.path / "plugins/gpu.fairlead.dev/dra.sock", cluster.registration):
            path.parent.mkdir(parents=True, exist_ok=True)
            with socket.socket(socket.AF_UNIX) as dead:
                dead.bind(str(path))
        async with cluster.driver(), Kubelet.connect(cluster.registration):
            pass


class TestStart:
    async def test_an_unknown_profile_is_refused_with_those_that_are_known(self, cluster: DriverCluster) -> None:
        with pytest.raises(ProfileError, match=r"did you mean 'hgx-h100'\? known profiles: .*dgx-a100.*l40s"):
            await run(dataclasses.replace(cluster.options, backend="simulated:hgx-h10"))

    @pytest.mark.parametrize("spec", ["simulated", "simulated:", "amd", "", "nvml:0"])
    async def test_an_unknown_backend_is_refused(self, cluster: DriverCluster, spec: str) -> None:
        with pytest.raises(BackendSpecError, match="write"):
            await run(dataclasses.replace(cluster.options, backend=spec))

    async def test_a_path_too_long_for_a_socket_is_refused_with_the_way_out(self, cluster: DriverCluster) -> None:
        with pytest.raises(SocketError, match="choose a shorter --plugins-dir"):
            await run(dataclasses.replace(cluster.options, plugins_dir=cluster.path / ("x" * 100)))

    async def test_a_long_pod_uid_is_shortened_to_fit(self, cluster: DriverCluster) -> None:
        registry = cluster.path / ("r" * 40)
        async with cluster.driver(pod_uid="0b0a9e0c-6d5e-4f0e-9a53-3f3a8d6e7c11", registry_dir=registry):
            [path] = registry.iterdir()
            async with Kubelet.connect(path) as kubelet:
                assert await kubelet.prepare() == {}
