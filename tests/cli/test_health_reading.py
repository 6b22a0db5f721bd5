"""How a cluster is read for `doctor` and `check readiness`: as far as the user's rights go, and as far as the apiserver answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairlead.api import names
from fairlead.cli.health import reading
from fairlead.cli.health.doctor import diagnosis
from fairlead.cli.health.doctor.diagnosis import diagnose, gaps
from fairlead.cli.health.readiness.model import LOOK_INTO, NODE_POOLS, OPTIONAL, SCALED_OBJECTS
from fairlead.kube import errors
from fairlead.kube.resources import DEPLOYMENTS, NODES, Raw
from fairlead.ui.reading.cluster import Cluster as Reader
from fairlead.ui.reading.cluster import NotReadError
from tests.support import health
from tests.support.commands import invoke
from tests.support.discovery import Discovery


def test_a_cluster_that_does_not_answer_has_a_status_of_its_own(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        "{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}], "
        "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:9'}}], users: [{name: u, user: {token: t}}]}"
    )
    done = invoke(["doctor", "--kubeconfig", str(config)])
    assert done.exit_code == diagnosis.NOT_REACHED
    assert "does not answer" in done.output


class Refusing:
    """A client whose every answer is one error, but of the version."""

    def __init__(self, error: errors.ApiError) -> None:
        self._error = error

    async def request(self, method: str, path: str, **_: Any) -> bytes:
        if path == "/version":
            return b'{"gitVersion": "v1.36.2"}'
        raise self._error

    async def list(self, *_: Any, **__: Any) -> Any:
        raise self._error

    async def create(self, *_: Any, **__: Any) -> Any:
        raise self._error


async def test_an_apiserver_that_fails_at_everything_is_read_as_far_as_it_goes() -> None:
    client: Any = Refusing(errors.ServerError("etcdserver: request timed out", status=500))
    found = await reading.read(Reader(client), diagnosis.KINDS, parts=("gates", "rights"), try_webhook="default")
    assert diagnose(found) == []
    assert any("etcdserver: request timed out" in each for each in gaps(found))


async def test_a_cluster_that_knows_no_kind_of_ours_has_no_fairlead() -> None:
    client: Any = Refusing(errors.NotFound("404 page not found", status=404))
    found = await reading.read(Reader(client), diagnosis.KINDS)
    assert diagnose(found)[0].code == "NotInstalled"


async def test_an_apiserver_that_goes_away_meanwhile_ends_it() -> None:
    client: Any = Refusing(errors.Unreachable("connection reset"))
    with pytest.raises(NotReadError, match="does not answer"):
        await reading.read(Reader(client), diagnosis.KINDS)


class Answering:
    """A client that answers paths by a table, refuses others, and lists one node with GPUs."""

    def __init__(self, table: dict[str, Any]) -> None:
        self._table = table

    async def request(self, method: str, path: str, *, body: Any = None, **_: Any) -> bytes:
        if path not in self._table:
            raise errors.Forbidden("forbidden", status=403)
        found = self._table[path]
        return found if isinstance(found, bytes) else json.dumps(found(body) if callable(found) else found).encode()

    async def list(self, resource: Any, *_: Any, each: Callable[[Raw], None], **__: Any) -> None:
        if resource.plural == "nodes":
            each(health.node("n"))


async def test_gates_rights_and_kubelets_are_read_where_they_may_be() -> None:
    def review(body: Any) -> Any:
        wanted = body["spec"]["resourceAttributes"]
        return {"status": {"allowed": wanted.get("subresource") != "binding"}}

    metrics = b"""# TYPE kubernetes_feature_enabled gauge
kubernetes_feature_enabled{name="DRADeviceTaints",stage="BETA"} 0
kubernetes_feature_enabled{name="DRAPartitionableDevices",stage=""} 1
other{name="DRAX",stage="BETA"} 1
"""
    table = {
        "/version": {"gitVersion": "v1.36.2"},
        "/apis": {"groups": [{"name": "resource.k8s.io", "versions": [{"version": "v1"}]}]},
        "/metrics": metrics,
        "/apis/authorization.k8s.io/v1/subjectaccessreviews": review,
        "/api/v1/nodes/n/proxy/configz": {"kubeletconfig": {"topologyManagerPolicy": "none"}},
    }
    client: Any = Answering(table)
    found = await reading.read(Reader(client), [NODES], parts=("gates", "rights", "kubelets"))
    assert found.gates == {"DRADeviceTaints": False, "DRAPartitionableDevices": True}
    assert [right for right, allowed in found.allowed.items() if not allowed] == ["update resourceclaims/binding"]
    assert found.kubelets == {"n": {"topologyManagerPolicy": "none"}}
    assert (found.release, found.minor, found.serves("resource.k8s.io", "v1")) == ("v1.36.2", (1, 36), True)
    refused = Answering({"/version": b"[]"})
    client = refused
    found = await reading.read(Reader(client), [NODES], parts=("gates", "rights", "kubelets"))
    assert (found.release, found.groups) == ("", None)
    assert found.gates_gap == "you may not get /metrics"
    assert found.allowed_gap == "you may not create subjectaccessreviews.authorization.k8s.io"
    assert found.kubelets_gap == "you may not get nodes/proxy"


@pytest.mark.parametrize(
    ("arguments", "drivers"),
    [
        (["controller", "--managed-driver=gpu.nvidia.com"], ("gpu.nvidia.com",)),
        (
            ["controller", "--managed-driver", "a.example.com", "--managed-driver=b.example.com"],
            ("a.example.com", "b.example.com"),
        ),
        (["controller"], (names.DRIVER,)),
    ],
)
async def test_managed_drivers_are_those_that_the_controller_was_started_with(
    arguments: list[str], drivers: tuple[str, ...]
) -> None:
    class Lists(Answering):
        async def list(self, resource: Any, *_: Any, each: Callable[[Raw], None], **__: Any) -> None:
            for found in health.healthy()[str(resource)]:
                if found["metadata"]["name"] == names.CONTROLLER_ACCOUNT:
                    found["spec"]["template"]["spec"]["containers"][0]["args"] = arguments
                each(found)

    client: Any = Lists({"/version": {}})
    assert (await reading.read(Reader(client), [DEPLOYMENTS])).drivers == drivers
    assert (await reading.read(Reader(client), [DEPLOYMENTS], drivers=["mine"])).drivers == ("mine",)


async def test_drivers_shared_in_claims_are_those_that_the_controller_was_started_with() -> None:
    class Lists(Answering):
        async def list(self, resource: Any, *_: Any, each: Callable[[Raw], None], **__: Any) -> None:
            for found in health.healthy()[str(resource)]:
                if found["metadata"]["name"] == names.CONTROLLER_ACCOUNT:
                    args = found["spec"]["template"]["spec"]["containers"][0]["args"]
                    args.append("--shared-claim-driver=dra.net")
                each(found)

    client: Any = Lists({"/version": {}})
    found = await reading.read(Reader(client), [DEPLOYMENTS])
    assert (found.drivers, found.shared_drivers) == ((names.DRIVER,), ("dra.net",))
    assert (await reading.read(Reader(client), [DEPLOYMENTS], shared_drivers=["mine"])).shared_drivers == ("mine",)


async def test_a_namespace_that_the_webhook_leaves_out_tells_nothing() -> None:
    client: Any = Refusing(errors.Forbidden("no", status=403))
    found = await reading.read(Reader(client), (), try_webhook=names.NAMESPACE)
    assert found.trial.answered is None
    assert "leaves namespace fairlead-system out" in found.trial.message


async def test_kinds_of_other_systems_are_listed_in_the_version_that_is_served() -> None:
    asked: list[str] = []

    class Serves(Discovery):
        async def request(self, method: str, path: str, **more: Any) -> bytes:
            if path == "/apis":
                found = [{"name": "karpenter.sh", "versions": [{"version": "v1"}]}]
                return json.dumps({"groups": found}).encode()
            return await super().request(method, path, **more)

        async def list(self, resource: Any, *_: Any, **__: Any) -> None:
            asked.append(f"{resource.api_version}/{resource.plural}")
            raise errors.Forbidden("no")

    client: Any = Serves("1.36", {"karpenter.sh": {"v1": ("nodepools", "nodepools/status")}})
    found = await reading.read(Reader(client), (), look_into=LOOK_INTO, optional=OPTIONAL)
    assert asked == ["karpenter.sh/v1/nodepools"]
    assert found.gap(NODE_POOLS) == "you may not list nodepools.karpenter.sh"
    assert not found.listed(SCALED_OBJECTS).served
