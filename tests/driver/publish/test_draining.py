"""Draining a GPU: no new claims, those of before are prepared, none while it is changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlead.driver.backend.simulated.backend import SimulatedBackend
from fairlead.driver.common.threads import Threads
from fairlead.driver.prepare.preparer import PrepareError
from fairlead.driver.publish.monitor import Drain, Drains
from tests.support.driver.claims import claim
from tests.support.driver.monitors import monitor_of
from tests.support.driver.node import Node


def uuid_of(hgx: SimulatedBackend, minor: int) -> str:
    return next(gpu.uuid for gpu in hgx.inventory().gpus if gpu.minor == minor)


async def test_a_gpu_that_is_drained_is_tainted_and_the_others_are_not(hgx: SimulatedBackend, threads: Threads) -> None:
    drains = Drains()
    monitor = monitor_of(hgx, threads, drains=drains)
    await monitor.poll()
    drains.replace("mig-config", {uuid_of(hgx, 2): Drain(value="all-1g.10gb")})
    assert await monitor.poll(full=False)
    tainted = {device.name: device.taints for device in monitor.built.devices if device.taints}
    assert list(tainted) == ["gpu-2"]
    [taint] = tainted["gpu-2"]
    assert (taint.key, taint.value, taint.effect) == ("gpu.fairlead.dev/mig-config", "all-1g.10gb", "NoSchedule")

    drains.replace("repair", {uuid_of(hgx, 2): Drain()})
    drains.replace("mig-config", {})
    await monitor.poll(full=False)
    assert [t.key for d in monitor.built.devices for t in d.taints] == ["gpu.fairlead.dev/repair"]


def test_a_claim_is_prepared_while_its_gpu_drains_and_not_while_it_is_closed(
    tmp_path: Path, hgx: SimulatedBackend
) -> None:
    drains = Drains()
    driver = Node(tmp_path, hgx, closed=drains.closed).start()
    drains.replace("mig-config", {uuid_of(hgx, 0): Drain()})
    driver.prepare(claim("u1", "gpu-0"))
    driver.unprepare("u1")
    drains.replace("mig-config", {uuid_of(hgx, 0): Drain(closed="gpu-0 is being cut into MIG devices")})
    with pytest.raises(PrepareError, match="gpu-0 is being cut into MIG devices; kubelet asks again"):
        driver.prepare(claim("u1", "gpu-0"))
    assert driver.records() == ()
    driver.prepare(claim("u2", "gpu-1"))
    drains.replace("mig-config", {})
    driver.prepare(claim("u1", "gpu-0"))


def test_who_changes_a_gpu_sees_the_claims_that_hold_it(tmp_path: Path, hgx: SimulatedBackend) -> None:
    driver = Node(tmp_path, hgx).start()
    driver.prepare(claim("u1", "gpu-0"))
    with driver.exclusively(uuid_of(hgx, 0)) as holders:
        assert [record.uid for record in holders] == ["u1"]
    with driver.exclusively(uuid_of(hgx, 1)) as holders:
        assert holders == ()
