"""What every Backend has to do on hardware as it finds it: simulated, NVML over a stand-in, and NVML itself.

The last needs a GPU, or NVIDIA's mock library (`LD_LIBRARY_PATH=… MOCK_NVML_CONFIG=…`), and skips without. Nothing here changes
the hardware: no MIG device is made, no mode is set. What needs levers (losing a GPU, filling placements) is in
test_backend_contract.py.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.driver.backend import device_names, profiles
from fairlead.driver.backend.interface import Backend, BackendError, DeviceGone
from fairlead.driver.backend.nvml.backend import NvmlBackend
from fairlead.driver.backend.nvml.sysfs import Kernel
from fairlead.driver.backend.profiles import recording
from fairlead.driver.backend.simulated.backend import SimulatedBackend
from fairlead.driver.publish import slices
from fairlead.driver.publish.slices import ALL_KEPT
from tests.support.driver.claims import claim
from tests.support.driver.fake_nvml import FakeNvml
from tests.support.driver.node import Node
from tests.support.driver.slices import check_limits

NAMES = ("hgx-h100", "dgx-a100", "l40s")
KINDS = (*(f"simulated:{name}" for name in NAMES), *(f"stand-in:{name}" for name in NAMES), "nvml")


@pytest.fixture(params=KINDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    kind, _, name = str(request.param).partition(":")
    if kind == "simulated":
        found: Backend = SimulatedBackend(profiles.load(name), node="n1")
    elif kind == "stand-in":
        kernel = Kernel(sys=tmp_path / "sys", proc=tmp_path / "proc", dev=tmp_path / "dev")
        found = NvmlBackend(FakeNvml(profiles.load(name), node="n1", root=tmp_path), kernel=kernel)
    else:
        try:
            found = NvmlBackend.open()
        except BackendError as error:
            pytest.skip(f"no GPU and no mock library: {error}")
    yield found
    found.close()


def test_it_is_sorted_and_repeats(backend: Backend) -> None:
    inventory = backend.inventory()
    assert inventory.gpus
    assert [gpu.minor for gpu in inventory.gpus] == sorted({gpu.minor for gpu in inventory.gpus})
    assert len({gpu.uuid for gpu in inventory.gpus}) == len(inventory.gpus)
    assert backend.inventory() == inventory


def test_it_publishes_within_the_apis_limits_partitioned_or_not(backend: Backend) -> None:
    inventory = backend.inventory()
    check_limits(slices.build(inventory), "split")
    everything = frozenset(gpu.uuid for gpu in inventory.gpus)
    for layout in ("split", "combined"):
        check_limits(
            slices.build(
                inventory,
                slices.Facts(
                    partitionable=everything,
                    kept=dataclasses.replace(ALL_KEPT, counters=layout),
                    offer=slices.Offer(shared=True),
                ),
            ),
            layout,
        )


def test_every_gpu_answers_and_says_how_busy_it_is(backend: Backend) -> None:
    gpus = backend.inventory().gpus
    uuids = sorted(gpu.uuid for gpu in gpus)
    assert [(status.uuid, status.responds) for status in backend.statuses()] == [(uuid, True) for uuid in uuids]
    migs = [mig.uuid for gpu in gpus for mig in gpu.mig_devices]
    assert [reading.uuid for reading in backend.telemetry()] == sorted([*uuids, *migs])
    assert backend.xids() == ()


def test_profiles_have_placements_and_live_devices_stand_on_them(backend: Backend) -> None:
    for gpu in backend.inventory().gpus:
        names = [device_names.mig_name(gpu.minor, p, start) for p in gpu.mig_profiles for start in p.starts]
        assert len(names) == len(set(names))
        for mig in gpu.mig_devices:
            assert mig.start in mig.profile.starts
            assert mig.parent_uuid == gpu.uuid
        assert backend.mig_devices(gpu.uuid) == gpu.mig_devices


def test_a_recorded_node_publishes_the_same_when_it_is_simulated(backend: Backend, tmp_path: Path) -> None:
    inventory = backend.inventory()
    path = tmp_path / "node.yaml"
    path.write_text(recording.to_yaml(recording.record(inventory, uuids=True)))
    again = SimulatedBackend(profiles.load(str(path)), node="n1").inventory()

    def comparable(of: slices.PoolSlices) -> list[Any]:
        """MIG devices get other UUIDs, and memory whole MiB."""
        return [
            (device.name, {n: a for n, a in device.attributes.items() if n != "uuid" or "mig" not in device.name})
            for device in of.devices
        ]

    assert comparable(slices.build(again)) == comparable(slices.build(inventory))


def test_a_device_is_prepared_and_unprepared_and_nothing_stays(
    backend: Backend, tmp_path: Path, valid_cdi: Callable[[dict[str, Any]], None]
) -> None:
    before = backend.inventory()
    device = slices.build(before).devices[0].name
    node = Node(tmp_path / "node", backend)
    driver = node.start()
    record = driver.prepare(claim("u1", device))
    spec = json.loads(node.cdi_files.path("u1").read_bytes())
    valid_cdi(spec)
    [added] = spec["devices"]
    assert added["containerEdits"]["deviceNodes"][0]["path"] == f"/dev/nvidia{record.devices[0].minor}"
    assert added["containerEdits"]["env"][0].endswith(f"={record.devices[0].uuid}")
    driver.unprepare("u1")
    assert not node.leftovers()
    assert backend.inventory() == before


def test_a_gpu_that_is_not_here_is_gone(backend: Backend) -> None:
    backend.inventory()
    for ask in (backend.mig_devices, backend.compute_mode):
        with pytest.raises(DeviceGone, match="no GPU GPU-00000000"):
            ask("GPU-00000000-0000-0000-0000-000000000000")
