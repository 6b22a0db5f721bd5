"""The chart's MIG layouts: each is one that some GPU can have, and the driver can follow and report them with its own rights."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from fairlead.api import names
from fairlead.driver.app import DriverOptions
from fairlead.driver.backend import profiles
from fairlead.driver.backend.simulated.backend import SimulatedBackend
from fairlead.driver.layouts import config
from fairlead.driver.layouts.config import LayoutError
from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.resources import NODES, RESOURCE_SLICES, raw
from fairlead.sandbox.apiserver.server import ApiServer
from fairlead.sandbox.install.apply import Applier
from tests.support.driver.cluster import DriverCluster
from tests.support.kubernetes import of_this_run

GROUPS = ("system:serviceaccounts", f"system:serviceaccounts:{names.NAMESPACE}", "system:authenticated")
VALUES = {"driver": {"migLayouts": {"enabled": True}}}
SCALES = {"all-disabled", "all-enabled"}


def layouts_of(objects: list[dict[str, Any]]) -> bytes:
    (found,) = (each for each in objects if each["metadata"]["name"] == "fairlead-mig-layouts")
    return str(found["data"]["config.yaml"]).encode()


def test_every_layout_of_the_chart_is_one_that_a_gpu_can_have(template: Callable[..., Any]) -> None:
    layouts = config.parse(layouts_of(template(values=VALUES)), path="values")
    fitting: dict[str, set[str]] = {name: set() for name in layouts}
    for node in profiles.known():
        inventory = SimulatedBackend(profiles.load(node), node="n1").inventory()
        for name, entries in layouts.items():
            with contextlib.suppress(LayoutError):
                if any(wanted.counts or name in SCALES for wanted in config.resolve(entries, inventory)):
                    fitting[name].add(node)
    assert {name for name, nodes in fitting.items() if not nodes} == set()
    assert fitting["all-balanced"] >= {
        "hgx-h100",
        "dgx-a100",
        "dgx-a100-40",
        "a30",
        "hgx-h200",
        "hgx-b200",
        "gb200-nvl72",
    }
    assert fitting["all-1g.10gb"] >= {"hgx-h100", "dgx-a100"}


def test_layouts_are_added_to_by_name_and_a_config_map_of_ones_own_takes_their_place(
    template: Callable[..., Any],
) -> None:
    mine = {"mine": [{"devices": [0], "mig-enabled": False}], "all-balanced": None}
    values = {"driver": {"migLayouts": {"enabled": True, "layouts": mine}}}
    found = config.parse(layouts_of(template(values=values)), path="values")
    assert "mine" in found
    assert "all-balanced" not in found
    objects = template(values={"driver": {"migLayouts": {"enabled": True, "configMap": "ours"}}})
    assert [each for each in objects if each["metadata"]["name"] == "fairlead-mig-layouts"] == []
    (driver,) = (each for each in objects if each["kind"] == "DaemonSet")
    volumes = driver["spec"]["template"]["spec"]["volumes"]
    assert {"name": "mig-layouts", "configMap": {"name": "ours"}} in volumes


def test_without_layouts_the_driver_may_only_read_nodes(template: Callable[..., Any]) -> None:
    objects = template()
    (role,) = (
        each for each in objects if (each["kind"], each["metadata"]["name"]) == ("ClusterRole", "fairlead-driver")
    )
    assert [rule["verbs"] for rule in role["rules"] if rule["resources"] == ["nodes"]] == [["get"]]
    assert "mig" not in str([each for each in objects if each["kind"] == "DaemonSet"])


@pytest.fixture
async def cluster(short_path: Path, template: Callable[..., Any]) -> AsyncIterator[DriverCluster]:
    """As the chart installs it; its kubeconfig is that of the driver on node n1, its client an administrator's."""
    async with ApiServer(workdir=short_path, release=of_this_run()) as server:
        admin = short_path / "admin"
        admin.write_text(server.kubeconfig())
        kubeconfig = short_path / "kubeconfig"
        extra = {"authentication.kubernetes.io/node-name": ["n1"]}
        kubeconfig.write_text(server.kubeconfig(names.DRIVER_USER, groups=GROUPS, extra=extra))
        async with Client.connect(admin) as client:
            objects = [each for each in template(values=VALUES) if each["kind"] not in {"Deployment", "DaemonSet"}]
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": names.NAMESPACE}}
            await Applier(client).apply([namespace, *objects])
            for name in ("n1", "n2"):
                await client.create(raw(NODES), {"metadata": {"name": name, "labels": {"zone": "a"}}})
            yield DriverCluster(server, client, short_path, kubeconfig)


async def test_the_driver_follows_the_label_and_reports_with_its_own_rights(
    cluster: DriverCluster, template: Callable[..., Any]
) -> None:
    file = cluster.path / "config.yaml"
    file.write_bytes(layouts_of(template(values=VALUES)))
    options: dict[str, Any] = {
        "backend": "simulated:hgx-h100",
        "mig_config_file": file,
        "mig_settle_s": 0.05,
        "hardware_interval_s": 0.05,
    }
    assert set(options) <= set(DriverOptions.__dataclass_fields__)
    async with cluster.driver(**options):
        await cluster.client.patch(NODES, "n1", {"metadata": {"labels": {names.MIG_CONFIG: "all-balanced"}}})

        async def done() -> bool:
            node = await cluster.client.get(NODES, "n1")
            return node.metadata.labels.get(names.MIG_CONFIG_STATE) == "success"

        await cluster.until(done)
        slices = (await cluster.client.list(raw(RESOURCE_SLICES))).items
        assert sum(len(each["spec"].get("devices", [])) for each in slices) == 8 * 4


@pytest.mark.parametrize(
    ("node", "change", "message"),
    [
        (
            "n2",
            {"metadata": {"labels": {names.MIG_CONFIG_STATE: "success"}}},
            "Node 'n2' is not the driver's node 'n1'",
        ),
        ("n1", {"metadata": {"labels": {names.MIG_CONFIG: "all-disabled"}}}, "writes nvidia.com/mig.config.state only"),
        ("n1", {"metadata": {"labels": {"zone": None}}}, "writes nvidia.com/mig.config.state only"),
        ("n1", {"metadata": {"labels": {"zone": "b"}}}, "writes nvidia.com/mig.config.state only"),
        ("n1", {"metadata": {"annotations": {"a": "b"}}}, "writes fairlead.dev/mig-config-message only"),
        ("n1", {"spec": {"unschedulable": True}}, "one label and one annotation only"),
        ("n1", {"metadata": {"finalizers": ["a.example.com/b"]}}, "one label and one annotation only"),
    ],
)
async def test_of_nodes_the_driver_writes_how_far_its_own_is_and_nothing_else(
    cluster: DriverCluster, node: str, change: dict[str, Any], message: str
) -> None:
    async with Client.connect(cluster.kubeconfig) as driver:
        with pytest.raises(errors.ApiError, match=message):
            await driver.patch(NODES, node, change)
        state = {"labels": {names.MIG_CONFIG_STATE: "pending"}, "annotations": {names.MIG_CONFIG_MESSAGE: "gpu-0"}}
        await driver.patch(NODES, "n1", {"metadata": state})
