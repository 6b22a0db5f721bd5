"""The publisher over time: retries, other people's edits, and an apiserver that drops what it does not know."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from random import Random
from typing import cast

import pytest

from fairlead.driver.publish.keeping import Keeping
from fairlead.driver.publish.publisher import Publisher
from fairlead.driver.publish.slices import SliceBody
from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.resource import Device, DeviceTaint
from tests.support.driver.slice_api import SliceApi
from tests.support.kube import VirtualTime, settle


class Running:
    def __init__(self, api: SliceApi) -> None:
        self.api = api
        self.time = VirtualTime()
        self.publisher = Publisher(
            cast("Client", api),
            node_name="n1",
            keeping=Keeping(
                cast("Client", api),
                node_name="n1",
                wanted={"taints"},
                changed=lambda _found: None,
                sleep=self.time.sleep,
                random=Random(1),
            ),
            sync_delay_s=2.0,
            sleep=self.time.sleep,
            wall=self.time.clock,
        )

    async def publish(self, *bodies: SliceBody) -> list[str]:
        """The writes that this leads to at once."""
        self.api.writes.clear()
        self.publisher.publish(bodies)
        await settle()
        return list(self.api.writes)


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    found = Running(SliceApi())
    task = asyncio.create_task(found.publisher.run())
    await settle()
    yield found
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def body(*names: str, taints: tuple[DeviceTaint, ...] = ()) -> SliceBody:
    return SliceBody(devices=tuple(Device(name=name, taints=taints) for name in names))


async def test_what_is_wanted_is_written_once(running: Running) -> None:
    assert await running.publish(body("gpu-0")) == ["create"]
    assert running.publisher.problem is None
    assert running.publisher.published.is_set()
    assert await running.publish(body("gpu-0")) == []
    await running.time.advance(60)
    assert running.api.writes == []


@pytest.mark.parametrize(
    "error",
    [
        errors.Conflict("the object has been modified", status=409),
        errors.ServerError("etcd is gone", status=500),
        errors.Forbidden("no", status=403),
        errors.Invalid("devices[0].name: too long", status=422),
        errors.Unreachable("connection refused"),
    ],
)
async def test_an_error_is_shown_and_tried_again(running: Running, error: errors.ApiError) -> None:
    running.api.fail = [error, error]
    assert await running.publish(body("gpu-0")) == ["create"]
    assert str(running.publisher.problem).startswith("ResourceSlices of node n1: ")
    await running.time.advance(120)
    assert running.api.writes == ["create", "create", "create"]
    assert running.publisher.problem is None


async def test_a_wiped_slice_comes_back_after_a_while(running: Running) -> None:
    await running.publish(body("gpu-0"))
    await running.time.advance(10)
    [name] = running.api.stored
    gone = running.api.stored.pop(name)
    gone["metadata"]["resourceVersion"] = "1000"
    running.api.tell("DELETED", gone)
    running.api.writes.clear()
    await running.time.advance(1)
    assert running.api.writes == []
    await running.time.advance(2)
    assert running.api.writes == ["create"]


async def test_what_the_apiserver_drops_is_reported_once_and_not_written_forever(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    running.api.drops = {"bindsToNode"}
    bound = SliceBody(devices=(Device(name="gpu-0", binds_to_node=True),))
    assert await running.publish(bound) == ["create"]
    assert running.publisher.dropped == ("devices[].bindsToNode (feature gate DRADeviceBindingConditions)",)
    await running.time.advance(600)
    assert running.api.writes == ["create"]
    assert caplog.text.count("did not store all fields of the slices") == 1
    assert await running.publish(SliceBody(devices=(*bound.devices, Device(name="gpu-1")))) == ["update"]
    await running.time.advance(600)
    assert running.api.writes == ["update"]


async def test_fields_that_a_later_apiserver_adds_are_kept_and_not_written_forever(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    running.api.adds = {"later": "default"}
    assert await running.publish(body("gpu-0")) == ["create"]
    await running.time.advance(600)
    assert running.api.writes == ["create"]
    assert "did not store" not in caplog.text
    running.api.adds = {}
    assert await running.publish(body("gpu-0", "gpu-1")) == ["update"]
    (stored,) = running.api.stored.values()
    assert stored["spec"]["later"] == "default"
    assert stored["spec"]["pool"]["later"] == "default"


class TestSynced:
    """`synced_at_s` advances with each confirmation as long as the stored slices are known to be the desired ones."""

    async def confirmed(self, running: Running, after_s: float = 10.0) -> bool:
        await running.time.advance(after_s)
        running.publisher.confirm(running.time.now)
        return running.publisher.synced_at_s == running.time.now

    async def test_it_begins_with_the_first_sync_and_advances_without_a_change(self, running: Running) -> None:
        assert not await self.confirmed(running)
        assert running.publisher.synced_at_s is None
        await running.publish(body("gpu-0"))
        assert await self.confirmed(running)
        assert await self.confirmed(running, after_s=3600)

    async def test_it_stands_while_the_apiserver_refuses_and_goes_on_afterwards(self, running: Running) -> None:
        await running.publish(body("gpu-0"))
        assert await self.confirmed(running)
        since = running.time.now
        running.api.fail = [errors.Forbidden("no", status=403)] * 3
        await running.publish(body("gpu-0", "gpu-1"))
        assert not await self.confirmed(running, after_s=0.1)
        assert running.publisher.synced_at_s == since
        assert await self.confirmed(running, after_s=300)

    async def test_it_stands_while_the_slices_cannot_be_watched(self, running: Running) -> None:
        await running.publish(body("gpu-0"))
        assert await self.confirmed(running)
        running.publisher._stored.failures = 3
        assert not await self.confirmed(running)
