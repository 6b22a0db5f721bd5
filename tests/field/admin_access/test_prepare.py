"""The driver changes nothing on hardware for admin access, whatever was allocated: it shows what exists, or says that it does not."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.driver.prepare.claims import ClaimError
from fairlead.driver.prepare.preparer import PrepareError
from tests.support.driver.claims import claim, gpu_config, time_slicing
from tests.support.driver.node import Node

MIG = {"device": "gpu-0-mig-3g40gb-9-4"}
ADMIN = {"request": "watch", "adminAccess": True}
CHANGES = ("create_mig", "destroy_mig", "set_mig_mode", "set_time_slice", "set_compute_mode", "reset")


def watch(device: str, **more: Any) -> dict[str, Any]:
    return {"device": device, **ADMIN, **more}


def hardware(node: Node) -> object:
    """All that a claim could change of it."""
    state = node.backend.state  # type: ignore[attr-defined]
    return node.backend.inventory(), dict(state.time_slices), dict(state.compute_modes)


@pytest.fixture
def unchanged(node: Node) -> object:
    """Fails when an operation that changes hardware is called; armed by `node.backend.faults.before`."""

    def refuse(operation: str, minor: int) -> None:
        assert operation not in CHANGES, (operation, minor)

    node.backend.faults.before = refuse  # type: ignore[attr-defined]
    return hardware(node)


@pytest.mark.parametrize("holder", [None, "gpu-0", "gpu-0-mig-1g10gb-19-0"])
def test_a_mig_device_that_does_not_exist_is_refused_and_not_made(node: Node, holder: str | None) -> None:
    driver = node.start()
    if holder is not None:
        driver.prepare(claim("u1", holder))
    before = hardware(node)
    with pytest.raises(
        ClaimError, match=r"'gpu-0-mig-3g40gb-9-4' does not exist: gpu-0 has .*adminAccess sees what exists"
    ) as told:
        driver.prepare(claim("u2", watch(MIG["device"])))
    assert "nvidia-smi" not in str(told.value)
    assert "destroy" not in str(told.value)
    assert hardware(node) == before
    assert [record.uid for record in driver.records()] == (["u1"] if holder else [])


@pytest.mark.parametrize("restart", [False, True])
def test_the_mig_device_of_another_claim_is_seen_and_left_to_it(node: Node, restart: bool) -> None:
    driver = node.start()
    made = driver.prepare(claim("u1", MIG)).devices[0]
    seen = driver.prepare(claim("u2", watch(MIG["device"]))).devices[0]
    assert seen.uuid == made.uuid
    before = hardware(node)
    if restart:
        driver = node.start()
    driver.unprepare("u2")
    assert hardware(node) == before
    driver.prepare(claim("u3", watch(MIG["device"])))
    driver.unprepare("u1")
    assert hardware(node) != before
    driver.unprepare("u3")
    assert not node.leftovers()


def test_one_that_is_gone_is_not_shown_again(node: Node) -> None:
    driver = node.start()
    driver.prepare(claim("u1", MIG))
    driver.prepare(claim("u2", watch(MIG["device"])))
    driver.unprepare("u1")
    with pytest.raises(ClaimError, match="does not exist"):
        driver.prepare(claim("u2", watch(MIG["device"])))
    assert driver.records() == ()
    driver.prepare(claim("u3", "gpu-0"))


def test_the_whole_gpu_is_seen_while_it_is_cut_and_given_out_whole_while_it_is_seen(node: Node) -> None:
    driver = node.start()
    driver.prepare(claim("u1", MIG))
    before = hardware(node)
    driver.prepare(claim("u2", watch("gpu-0")))
    assert hardware(node) == before
    driver.unprepare("u1")
    driver.prepare(claim("u3", "gpu-0"))
    assert not node.backend.inventory().gpus[0].mig_devices


@pytest.mark.parametrize("device", ["gpu-0", "gpu-1"])
def test_nothing_is_set_or_reset_for_it(node: Node, unchanged: object, device: str) -> None:
    driver = node.start()
    driver.prepare(claim("u1", "gpu-0"))
    driver.prepare(claim("u2", watch(device)))
    driver.unprepare("u2")
    assert hardware(node) == unchanged


@pytest.mark.parametrize("config", [time_slicing("Long"), gpu_config(sharing={"strategy": "MPS"})])
def test_how_a_class_shares_its_devices_is_not_said_to_admin_access(
    node: Node, unchanged: object, config: dict[str, Any]
) -> None:
    driver = node.start()
    driver.prepare(claim("u1", watch("gpu-0"), config=[{**config, "source": "FromClass", "requests": ["watch"]}]))
    assert hardware(node) == unchanged
    with pytest.raises(ClaimError, match="adminAccess only observes its device"):
        driver.prepare(claim("u2", watch("gpu-0"), config=[config]))
    assert hardware(node) == unchanged


def test_a_share_of_a_full_gpu_is_seen(node: Node, unchanged: object) -> None:
    driver = node.start()
    whole = {"device": "gpu-0", "shareID": "a", "consumedCapacity": {"memory": "80Gi"}}
    driver.prepare(claim("u1", watch("gpu-0", shareID="b", consumedCapacity={"memory": "70Gi"})))
    driver.prepare(claim("u2", whole | {"consumedCapacity": {"memory": "60Gi"}}))
    assert hardware(node) == unchanged


def test_no_error_advises_to_destroy_what_a_lost_record_may_hold(node: Node) -> None:
    driver = node.start()
    driver.prepare(claim("u1", MIG))
    [record] = (node.path / "claims").glob("*.json")
    record.write_text("torn")
    for path in (node.path / "cdi").iterdir():
        path.unlink()
    driver = node.start()
    with pytest.raises(PrepareError, match=r"may be of a claim whose record could not be read .*u1\.json") as told:
        driver.prepare(claim("u2", MIG))
    assert "destroy" not in str(told.value)
    assert len(node.backend.inventory().gpus[0].mig_devices) == 1
