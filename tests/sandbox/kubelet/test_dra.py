"""Kubelet's rules towards a DRA driver, with a fake driver behind real unix sockets."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from fairlead.driver.kubelet import protocol
from fairlead.sandbox.kubelet.dra import DraManager, PrepareError
from fairlead.sandbox.kubelet.plugins import PluginError, PluginManager
from tests.support.kubelet import FakeDriver

Obj = dict[str, Any]


def pod(name: str = "p", *claims: str) -> Obj:
    return {
        "metadata": {"name": name, "namespace": "ml", "uid": f"uid-{name}"},
        "spec": {
            "resourceClaims": [{"name": each, "resourceClaimName": each} for each in claims or ("c",)],
            "containers": [{"name": "main", "resources": {"claims": [{"name": each} for each in claims or ("c",)]}}],
        },
    }


def claim(name: str = "c", *pods: str, uid: str = "", driver: str = "gpu.example.com") -> Obj:
    consumers = [{"resource": "pods", "name": each, "uid": f"uid-{each}"} for each in pods or ("p",)]
    results = [{"request": "gpu", "driver": driver, "pool": "n1", "device": f"dev-{name}"}]
    return {
        "metadata": {"name": name, "namespace": "ml", "uid": uid or f"uid-{name}"},
        "status": {"allocation": {"devices": {"results": results}}, "reservedFor": consumers},
    }


class Node:
    """Plugin manager and DRA manager of one node, and the claims that the API would return."""

    def __init__(self, root: Path, *claims: Obj) -> None:
        self.root = root
        self.claims = {each["metadata"]["name"]: each for each in claims}
        self.heard: list[str] = []
        self.plugins = PluginManager(
            registry_dir=root / "reg",
            on_found=lambda driver: self.heard.append(f"found {driver}"),
            on_lost=lambda driver: self.heard.append(f"lost {driver}"),
        )
        self.dra = self.new_manager()

    def new_manager(self) -> DraManager:
        async def get(_namespace: str, name: str) -> Obj | None:
            return self.claims.get(name)

        return DraManager(state_dir=self.root, get_claim=get, plugin=self.plugins.get)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["Node"]:
        task = asyncio.create_task(self.plugins.run())
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def until(condition: Callable[[], object], timeout_s: float = 5.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - what is waited for happens behind sockets
            await asyncio.sleep(0.01)


@pytest.fixture
async def node(short_dir: Path) -> AsyncIterator[Node]:
    async with Node(short_dir, claim()).running() as made:
        yield made


@pytest.fixture
async def driver(node: Node) -> AsyncIterator[FakeDriver]:
    async with FakeDriver(root=node.root).serving() as made:
        await until(lambda: node.heard)
        yield made


# -- registration ----------------------------------------------------------------------------------------------------


async def test_a_driver_is_registered_with_the_first_of_its_versions_that_kubelet_knows(node: Node) -> None:
    fake = FakeDriver(root=node.root, versions=("v9.DRAPlugin", protocol.DRA_V1BETA1, protocol.DRA_V1))
    async with fake.serving():
        await until(lambda: node.heard == ["found gpu.example.com"])
        assert fake.registered == [(True, "")]
        assert node.plugins.get("gpu.example.com").version == protocol.DRA_V1BETA1
        await node.dra.prepare(pod())
        assert fake.calls == [("prepare", ("c",))]


async def test_a_registration_that_ends_by_an_error_is_tried_again(node: Node) -> None:
    found: list[str] = []

    def failing_once(driver: str) -> None:
        found.append(driver)
        if len(found) == 1:
            raise OSError("the disk is full")

    node.plugins.on_found = failing_once
    fake = FakeDriver(root=node.root)
    async with fake.serving():
        await until(lambda: len(found) == 2)
        await node.dra.prepare(pod())
    assert fake.registered == [(True, ""), (True, "")]


async def prepared_after_retries(node: Node) -> None:
    """As kubelet does: the first connection to a driver that came back may still be the old one, which is then closed."""
    async with asyncio.timeout(10):
        while True:
            with contextlib.suppress(PluginError):
                await node.dra.prepare(pod())
                return
            await asyncio.sleep(0.05)


async def test_a_driver_whose_socket_goes_is_lost_and_found_when_it_is_back(node: Node) -> None:
    async with FakeDriver(root=node.root).serving():
        await until(lambda: node.heard == ["found gpu.example.com"])
    await until(lambda: node.heard == ["found gpu.example.com", "lost gpu.example.com"])
    await until(lambda: not node.plugins.is_connected("gpu.example.com"))
    async with FakeDriver(root=node.root).serving():
        await until(lambda: node.heard[-1] == "found gpu.example.com" and len(node.heard) >= 3)
        await prepared_after_retries(node)


# -- preparing -------------------------------------------------------------------------------------------------------


async def test_all_claims_of_a_pod_go_in_one_call(node: Node, driver: FakeDriver) -> None:
    node.claims["d"] = claim("d")
    await node.dra.prepare(pod("p", "c", "d"))
    assert driver.calls == [("prepare", ("c", "d"))]
    assert driver.prepared() == ["uid-c", "uid-d"]
    subject = pod("p", "c", "d")
    assert node.dra.cdi_ids(subject, subject["spec"]["containers"][0]) == [
        "example.com/claim=uid-c-dev",
        "example.com/claim=uid-d-dev",
    ]


async def test_a_container_gets_only_the_requests_that_it_names(node: Node, driver: FakeDriver) -> None:
    await node.dra.prepare(pod())
    assert node.dra.cdi_ids(pod(), {"resources": {"claims": [{"name": "c", "request": "gpu"}]}}) != []
    assert node.dra.cdi_ids(pod(), {"resources": {"claims": [{"name": "c", "request": "nic"}]}}) == []
    assert node.dra.cdi_ids(pod(), {}) == []


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (None, "not found"),
        (claim("c", "somebody-else"), "is not allowed to use"),
        ({**claim(), "status": {"reservedFor": claim()["status"]["reservedFor"]}}, "has no allocation"),
    ],
)
async def test_a_claim_that_the_pod_may_not_use_is_never_prepared(
    node: Node, driver: FakeDriver, found: Obj | None, why: str
) -> None:
    node.claims = {"c": found} if found else {}
    with pytest.raises(PrepareError, match=why):
        await node.dra.prepare(pod())
    assert driver.calls == []


async def test_an_error_of_the_driver_is_the_pods_error_and_asked_again(node: Node, driver: FakeDriver) -> None:
    driver.errors["c"] = "GPU fell off the bus"
    with pytest.raises(PrepareError, match="GPU fell off the bus"):
        await node.dra.prepare(pod())
    driver.errors.clear()
    await node.dra.prepare(pod())
    assert [kind for kind, _ in driver.calls] == ["prepare", "prepare"]


# -- sharing, giving back, restarting --------------------------------------------------------------------------------


async def test_a_shared_claim_is_prepared_once_and_unprepared_after_its_last_pod(
    node: Node, driver: FakeDriver
) -> None:
    node.claims["c"] = claim("c", "p", "q")
    await asyncio.gather(node.dra.prepare(pod("p")), node.dra.prepare(pod("q")))
    assert driver.calls == [("prepare", ("c",))]
    await node.dra.unprepare("uid-p")
    assert driver.calls == [("prepare", ("c",))]
    await node.dra.unprepare("uid-q")
    assert driver.calls[-1] == ("unprepare", ("c",))
    assert node.dra.claims == []


async def test_a_restarted_kubelet_prepares_again_and_unprepares_what_the_api_forgot(
    node: Node, driver: FakeDriver
) -> None:
    await node.dra.prepare(pod())
    again = node.new_manager()
    await again.prepare(pod())
    assert driver.calls == [("prepare", ("c",)), ("prepare", ("c",))]
    node.claims.clear()
    last = node.new_manager()
    await last.reconcile([])
    assert driver.calls[-1] == ("unprepare", ("c",))
    assert driver.prepared() == []


async def test_a_failed_unprepare_keeps_the_claim_for_the_next_try(node: Node, driver: FakeDriver) -> None:
    await node.dra.prepare(pod())

    def refuse(request: Any, answer: Any) -> Any:
        answer.claims["uid-c"].error = "busy"
        return answer

    driver.answer = refuse
    with pytest.raises(PrepareError, match="busy"):
        await node.dra.unprepare("uid-p")
    driver.answer = None
    await node.dra.unprepare("uid-p")
    assert node.dra.claims == []


async def test_a_claim_made_anew_under_the_same_name_waits_for_the_old_one(node: Node, driver: FakeDriver) -> None:
    await node.dra.prepare(pod())
    node.claims["c"] = claim("c", "q", uid="another")
    with pytest.raises(PrepareError, match="old ResourceClaim with same name"):
        await node.dra.prepare(pod("q"))
    await node.dra.unprepare("uid-p")
    await node.dra.prepare(pod("q"))
