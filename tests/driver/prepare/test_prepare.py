"""Prepare and unprepare, without kubelet and apiserver: answers, refusals, idempotence, concurrency."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from fairlead.driver.backend.interface import BackendError
from fairlead.driver.backend.simulated.backend import SimulatedBackend
from fairlead.driver.prepare import cdi
from fairlead.driver.prepare.claims import ClaimError
from fairlead.driver.prepare.preparer import PrepareError
from tests.support.driver.claims import claim, gpu_config, time_slicing
from tests.support.driver.node import Node


def share(memory: str) -> dict[str, Any]:
    return {"device": "gpu-0", "shareID": "a", "consumedCapacity": {"memory": memory}}


def spec(node: Node, uid: str) -> dict[str, object]:
    loaded: dict[str, object] = json.loads(node.cdi_files.path(uid).read_bytes())
    return loaded


def environment(node: Node, uid: str) -> list[str]:
    return [entry for device in spec(node, uid)["devices"] for entry in device["containerEdits"]["env"]]  # type: ignore[attr-defined]


class TestWholeGpus:
    def test_a_prepared_claim_has_a_record_and_a_cdi_file_that_names_its_gpus(self, node: Node) -> None:
        record = node.start().prepare(claim("u1", "gpu-0", "gpu-3"))
        assert [cdi.device_id("u1", device) for device in record.devices] == [
            "k8s.gpu.fairlead.dev/claim=u1-gpu-0",
            "k8s.gpu.fairlead.dev/claim=u1-gpu-3",
        ]
        uuids = {gpu.minor: gpu.uuid for gpu in node.backend.inventory().gpus}
        assert environment(node, "u1") == [f"FAIRLEAD_DEVICE_GPU_0={uuids[0]}", f"FAIRLEAD_DEVICE_GPU_3={uuids[3]}"]

    def test_a_cdi_file_that_was_removed_is_written_again(self, node: Node) -> None:
        driver = node.start()
        driver.prepare(claim("u1", "gpu-0"))
        written = node.cdi_files.path("u1").read_bytes()
        node.cdi_files.remove("u1")
        driver.prepare(claim("u1", "gpu-0"))
        assert node.cdi_files.path("u1").read_bytes() == written

    def test_a_claim_with_a_new_allocation_releases_its_old_devices(self, node: Node) -> None:
        driver = node.start()
        driver.prepare(claim("u1", "gpu-0"))
        driver.prepare(claim("u1", "gpu-1"))
        driver.prepare(claim("u2", "gpu-0"))
        assert [record.devices[0].device for record in driver.records()] == ["gpu-1", "gpu-0"]

    def test_results_of_other_drivers_are_skipped(self, node: Node) -> None:
        other = {"driver": "dra.net", "pool": "n1", "device": "eth1", "request": "nic"}
        record = node.start().prepare(claim("u1", other, "gpu-0"))
        assert [device.device for device in record.devices] == ["gpu-0"]

    def test_a_claim_with_nothing_of_ours_is_answered_and_leaves_no_trace(self, node: Node) -> None:
        driver = node.start()
        assert driver.prepare(claim("u1", "eth1", driver="dra.net")).devices == ()
        assert driver.records() == ()
        assert not node.leftovers()

    def test_a_subrequest_is_answered_by_its_main_request(self, node: Node) -> None:
        record = node.start().prepare(claim("u1", {"request": "main/h100", "device": "gpu-0"}))
        assert record.devices[0].request_name == "main"


class TestRefusals:
    def test_a_device_of_another_claim_is_refused_by_that_claims_name(self, node: Node) -> None:
        driver = node.start()
        driver.prepare(claim("u1", "gpu-0", name="train"))
        with pytest.raises(PrepareError, match=r"gpu-0 is held by ResourceClaim ml/train \(u1\), which is prepared"):
            driver.prepare(claim("u2", "gpu-1", "gpu-0"))
        driver.prepare(claim("u3", "gpu-1"))  # the refused claim holds nothing

    def test_a_uid_that_would_leave_the_directory_is_refused(self, node: Node) -> None:
        with pytest.raises(ClaimError, match="cannot be part of a file's name"):
            node.start().prepare(claim("../../etc/passwd", "gpu-0"))
        assert node.start().unprepare("../../etc/passwd") is False


MIG_CONFIG = gpu_config(kind="MigDeviceConfig", sharing={"strategy": "MPS"})
REFUSED: dict[str, tuple[list[str | dict[str, Any]], list[dict[str, Any]], str]] = {
    "a device twice": (
        ["gpu-0", {"device": "gpu-0", "request": "other"}],
        [],
        "'gpu-0' overlaps 'gpu-0' of the same claim",
    ),
    "a GPU that is not here": (["gpu-8"], [], "'gpu-8' is not on this node, which has gpu-0, gpu-1"),
    "a device of another kind": (["tpu-1"], [], "'tpu-1' is not on this node"),
    "a placement that is none": (["gpu-0-mig-1g10gb-19-7"], [], "is no MIG placement that gpu-0 has"),
    "a profile that is none": (["gpu-0-mig-9g99gb-19-0"], [], "is no MIG placement that gpu-0 has"),
    "another node's pool": ([{"device": "gpu-0", "pool": "n2"}], [], r"results\[0\]\.pool: 'n2' is not on this node"),
    "a request's name that leads elsewhere": (
        [{"device": "gpu-0", "request": "a/../../x"}],
        [],
        r"\.request: .* is no request's name",
    ),
    "one with an empty part": (
        [{"device": "gpu-0", "request": "a//b"}],
        [],
        r"results\[0\]\.request: .* is no request's name",
    ),
    "one with a zero byte": (
        [{"device": "gpu-0", "request": "a\x00"}],
        [],
        r"results\[0\]\.request: .* is no request's name",
    ),
    "an empty one": ([{"device": "gpu-0", "request": ""}], [], r"results\[0\]\.request: .* is no request's name"),
    "a share of a MIG device on demand": (
        [{"device": "gpu-0-mig-3g40gb-9-4", "shareID": "a", "consumedCapacity": {"memory": "1Gi"}}],
        [],
        r"results\[0\]\.shareID: 'gpu-0-mig-3g40gb-9-4' is made on demand for one claim",
    ),
    "a negative amount": ([share("-1Gi")], [], r"results\[0\]\.consumedCapacity\[memory\]"),
    "an amount that is none": ([share("lots")], [], r"results\[0\]\.consumedCapacity\[memory\]"),
    "a config of the other kind by request": (["gpu-0"], [MIG_CONFIG | {"requests": ["gpu"]}], "write GpuConfig"),
    "a config that is none": (
        ["gpu-0"],
        [gpu_config(kind="Nonsense")],
        r"config\[0\]\.opaque\.parameters: kind: 'Nonsense' is none of",
    ),
    "a time slice for a share": (
        [{"device": "gpu-0", "shareID": "a"}],
        [time_slicing("Long")],
        "would change gpu-0 for the other claims",
    ),
    "a time slice for an observer": (
        [{"device": "gpu-0", "adminAccess": True}],
        [time_slicing("Long")],
        "adminAccess only observes its device",
    ),
}
OTHERS = {"source": "FromClaim", "opaque": {"driver": "gpu.nvidia.com", "parameters": {"kind": "X"}}}
MPS_OF_CLASS = gpu_config(sharing={"strategy": "MPS"}) | {"source": "FromClass"}
TAKEN: dict[str, list[dict[str, Any]]] = {
    "one of another driver is skipped": [OTHERS],
    "one for all requests skips devices of the other kind": [MIG_CONFIG],
    "the claim's overrides the class's": [gpu_config(sharing={"strategy": "TimeSlicing"}), MPS_OF_CLASS],
    "fields of a newer version are tolerated": [gpu_config(colour="red")],
}


@pytest.mark.parametrize(("devices", "config", "words"), REFUSED.values(), ids=REFUSED)
def test_a_claim_that_cannot_be_is_refused_by_its_field_and_leaves_nothing(
    node: Node, devices: list[str | dict[str, Any]], config: list[dict[str, Any]], words: str
) -> None:
    with pytest.raises(ClaimError, match=words):
        node.start().prepare(claim("u1", *devices, config=config))
    assert not node.leftovers()


@pytest.mark.parametrize("config", TAKEN.values(), ids=TAKEN)
def test_a_config_is_taken(node: Node, config: list[dict[str, Any]]) -> None:
    assert node.start().prepare(claim("u1", "gpu-0", config=config)).mps is None


class TestTimeSlices:
    def test_a_gpu_has_the_claims_time_slice_while_the_claim_has_the_gpu(
        self, node: Node, hgx: SimulatedBackend
    ) -> None:
        driver = node.start()
        driver.prepare(claim("u1", "gpu-0", "gpu-2", config=[time_slicing("Long")]))
        assert hgx.state.time_slices == {0: "Long", 2: "Long"}
        driver.unprepare("u1")
        assert hgx.state.time_slices == {0: "Default", 2: "Default"}
        assert not node.leftovers()

    def test_one_for_a_request_leaves_the_others_alone(self, node: Node, hgx: SimulatedBackend) -> None:
        config = time_slicing("Short") | {"requests": ["a"]}
        devices = ({"device": "gpu-0", "request": "a"}, {"device": "gpu-1", "request": "b"})
        node.start().prepare(claim("u1", *devices, config=[config]))
        assert hgx.state.time_slices == {0: "Short"}

    def test_one_that_cannot_be_set_leaves_nothing_and_holds_nothing(self, node: Node, hgx: SimulatedBackend) -> None:
        def fail(operation: str, minor: int) -> None:
            if operation == "set_time_slice":
                raise BackendError("time slices need nvidia-smi")

        hgx.faults.before = fail
        driver = node.start()
        with pytest.raises(PrepareError, match="time slices need nvidia-smi"):
            driver.prepare(claim("u1", "gpu-0", config=[time_slicing("Long")]))
        assert driver.records() == ()
        assert not node.leftovers()


class TestStaticMig:
    def test_a_mig_device_gets_its_gpu_and_the_capabilities_of_its_instances(self, static_node: Node) -> None:
        static_node.start().prepare(claim("u1", "gpu-6-mig-1g10gb-19-2"))
        [device] = spec(static_node, "u1")["devices"]  # type: ignore[misc]
        paths = [node["path"] for node in device["containerEdits"]["deviceNodes"]]  # type: ignore[has-type]
        assert paths[0] == "/dev/nvidia6"
        assert len(paths) == 3
        assert all(path.startswith("/dev/nvidia-caps/nvidia-cap") for path in paths[1:])

    def test_a_static_mig_device_is_not_destroyed(self, static_node: Node) -> None:
        driver = static_node.start()
        before = static_node.backend.inventory()
        driver.prepare(claim("u1", "gpu-6-mig-1g10gb-19-2"))
        driver.unprepare("u1")
        assert static_node.backend.inventory() == before

    def test_a_partitioned_gpu_is_not_allocated_whole(self, static_node: Node) -> None:
        with pytest.raises(ClaimError, match="partitioned into MIG devices"):
            static_node.start().prepare(claim("u1", "gpu-6"))

    def test_a_mig_device_that_is_not_there_is_refused_with_those_that_are(self, static_node: Node) -> None:
        with pytest.raises(ClaimError, match="gpu-7 has gpu-7-mig-3g40gb-9-0, gpu-7-mig-2g20gb-14-4"):
            static_node.start().prepare(claim("u1", "gpu-7-mig-1g10gb-19-6"))


class TestDynamicMig:
    def test_a_mig_device_is_created_and_destroyed(self, node: Node) -> None:
        driver = node.start()
        record = driver.prepare(claim("u1", "gpu-0-mig-3g40gb-9-4"))
        [gpu] = [gpu for gpu in node.backend.inventory().gpus if gpu.mig_devices]
        assert gpu.mig_devices[0].uuid == record.devices[0].mig.uuid  # type: ignore[union-attr]
        assert environment(node, "u1") == [f"FAIRLEAD_DEVICE_GPU_0_MIG_3G40GB_9_4={gpu.mig_devices[0].uuid}"]
        driver.unprepare("u1")
        assert not node.leftovers()

    def test_a_creation_that_fails_undoes_those_before_it(self, node: Node, hgx: SimulatedBackend) -> None:
        def fail_on_gpu_1(operation: str, minor: int) -> None:
            if (operation, minor) == ("create_mig", 1):
                raise BackendError("gpu-1: no resources")

        driver = node.start()
        hgx.faults.before = fail_on_gpu_1
        with pytest.raises(PrepareError, match="gpu-1: no resources"):
            driver.prepare(claim("u1", "gpu-0-mig-1g10gb-19-0", "gpu-1-mig-1g10gb-19-0"))
        assert not node.leftovers()
        assert driver.records() == ()

    def test_an_administrators_mig_device_at_the_placement_is_not_used_and_not_destroyed(self, node: Node) -> None:
        driver = node.start()
        gpu = node.backend.inventory().gpus[0]
        node.backend.create_mig(gpu.uuid, 19, 0)
        with pytest.raises(
            PrepareError, match=r"MIG device \S+ is at this placement: no claim of this driver holds it"
        ):
            driver.prepare(claim("u1", "gpu-0-mig-1g10gb-19-0"))
        assert len(node.backend.mig_devices(gpu.uuid)) == 1

    def test_a_foreign_mig_device_that_overlaps_is_not_destroyed_by_the_undo(self, node: Node) -> None:
        driver = node.start()
        gpu = node.backend.inventory().gpus[0]
        node.backend.create_mig(gpu.uuid, 19, 0)
        with pytest.raises(PrepareError, match=r"overlaps 1g\.10gb@0"):
            driver.prepare(claim("u1", "gpu-0-mig-4g40gb-5-0"))
        assert len(node.backend.mig_devices(gpu.uuid)) == 1

    def test_a_busy_mig_device_fails_unprepare_until_it_is_free(self, node: Node, hgx: SimulatedBackend) -> None:
        driver = node.start()
        driver.prepare(claim("u1", "gpu-0-mig-1g10gb-19-0"))
        hgx.faults.busy.add((0, 0))
        with pytest.raises(PrepareError, match="in use by another client"):
            driver.unprepare("u1")
        with pytest.raises(PrepareError, match="held by"):
            driver.prepare(claim("u2", "gpu-0-mig-1g10gb-19-0"))
        hgx.faults.busy.clear()
        driver.unprepare("u1")
        assert not node.leftovers()

    def test_a_mig_device_that_an_administrator_destroyed_is_created_again(self, node: Node) -> None:
        driver = node.start()
        before = driver.prepare(claim("u1", "gpu-0-mig-1g10gb-19-0"))
        node.backend.destroy_mig(before.devices[0].gpu_uuid, 19, 0)
        after = driver.prepare(claim("u1", "gpu-0-mig-1g10gb-19-0"))
        assert after.devices[0].mig.uuid != before.devices[0].mig.uuid  # type: ignore[union-attr]

    def test_what_replaced_the_claims_mig_device_is_left_alone(self, node: Node) -> None:
        driver = node.start()
        gpu = driver.prepare(claim("u1", "gpu-0-mig-1g10gb-19-0")).devices[0].gpu_uuid
        node.backend.destroy_mig(gpu, 19, 0)
        foreign = node.backend.create_mig(gpu, 19, 0)
        driver.unprepare("u1")
        assert node.backend.mig_devices(gpu) == (foreign,)

    def test_a_lost_gpu_does_not_keep_its_claim_from_ending(self, node: Node, hgx: SimulatedBackend) -> None:
        driver = node.start()
        driver.prepare(claim("u1", "gpu-0-mig-1g10gb-19-0"))
        hgx.faults.lost.add(0)
        assert driver.unprepare("u1") is True
        assert driver.records() == ()


class TestManyAtOnce:
    def test_of_two_claims_at_once_for_one_gpu_exactly_one_gets_it(self, node: Node) -> None:
        driver = node.start()
        start = threading.Barrier(8)

        def attempt(number: int) -> bool:
            start.wait()
            try:
                driver.prepare(claim(f"u{number}", "gpu-0"))
            except PrepareError:
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(attempt, range(8))) == 1
        assert len(node.leftovers()["claims"]) == len(node.leftovers()["cdi"]) == 1

    def test_a_slow_gpu_does_not_hold_up_another(self, node: Node, hgx: SimulatedBackend) -> None:
        hang = threading.Event()

        def before(operation: str, minor: int) -> None:
            if (operation, minor) == ("create_mig", 0):
                hang.wait(30)

        driver = node.start()
        hgx.faults.before = before
        with ThreadPoolExecutor(2) as pool:
            slow = pool.submit(driver.prepare, claim("u1", "gpu-0-mig-1g10gb-19-0"))
            driver.prepare(claim("u2", "gpu-1-mig-1g10gb-19-0"))
            assert not slow.done()
            hang.set()
            slow.result(timeout=30)

    def test_two_claims_over_the_same_gpus_in_opposite_order_do_not_wait_for_each_other(self, node: Node) -> None:
        driver = node.start()
        wanted = [f"gpu-{minor}-mig-1g10gb-19-{start}" for minor in range(8) for start in range(2)]
        with ThreadPoolExecutor(2) as pool:
            one = pool.submit(driver.prepare, claim("u1", *wanted[::2]))
            two = pool.submit(driver.prepare, claim("u2", *reversed(wanted[1::2])))
            assert len(one.result(timeout=30).devices) == len(two.result(timeout=30).devices) == 8
