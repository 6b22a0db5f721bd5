"""Labels as GPU feature discovery's, from what the hardware reports; and the file in which Node Feature Discovery reads them."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

import pytest

from fairlead.driver.backend.types import Gpu, Inventory, MigDevice, MigProfile
from fairlead.driver.common.threads import Threads
from fairlead.driver.publish.node_labels import EXPIRES_S, FILE, NodeLabels, feature_file, labels

GIB = 2**30
NOW = 1_800_000_000.0
SMALL = MigProfile(
    name="1g.10gb+me",
    id=20,
    compute_slices=1,
    memory_slices=1,
    starts=(0,),
    memory_bytes=10 * GIB,
    multiprocessors=16,
    copy_engines=1,
    decoders=1,
    encoders=0,
    jpeg_engines=1,
    ofa_engines=1,
)
LARGE = replace(SMALL, name="3g.40gb", compute_slices=3, memory_slices=4, memory_bytes=40 * GIB, multiprocessors=60)


def gpu(minor: int, *cut: MigProfile, mig: bool | None = False, product: str = "NVIDIA H100 80GB HBM3") -> Gpu:
    made = tuple(
        MigDevice(
            uuid=f"MIG-{minor}-{place}",
            parent_uuid=f"GPU-{minor}",
            parent_minor=minor,
            profile=profile,
            start=place,
            gi_id=place,
            ci_id=0,
        )
        for place, profile in enumerate(cut)
    )
    return Gpu(
        minor=minor,
        uuid=f"GPU-{minor}",
        product_name=product,
        architecture="Hopper",
        cuda_compute_capability="9.0",
        memory_bytes=81559 * 2**20,
        mig_enabled=bool(cut) or mig,
        mig_devices=made,
    )


def node(*gpus: Gpu) -> Inventory:
    return Inventory(driver_version="580.105.08", cuda_driver_version="13.0", gpus=gpus)


def of_gpus(found: dict[str, str]) -> dict[str, str]:
    return {
        name.removeprefix("nvidia.com/gpu."): value
        for name, value in found.items()
        if name.startswith("nvidia.com/gpu.")
    }


def test_whole_gpus_have_the_labels_of_feature_discovery():
    assert labels(node(*(gpu(minor) for minor in range(8)))) == {
        "nvidia.com/cuda.driver-version.full": "580.105.08",
        "nvidia.com/cuda.driver-version.major": "580",
        "nvidia.com/cuda.driver-version.minor": "105",
        "nvidia.com/cuda.driver-version.revision": "08",
        "nvidia.com/cuda.driver.major": "580",
        "nvidia.com/cuda.driver.minor": "105",
        "nvidia.com/cuda.driver.rev": "08",
        "nvidia.com/cuda.runtime-version.full": "13.0",
        "nvidia.com/cuda.runtime-version.major": "13",
        "nvidia.com/cuda.runtime-version.minor": "0",
        "nvidia.com/cuda.runtime.major": "13",
        "nvidia.com/cuda.runtime.minor": "0",
        "nvidia.com/gpu.compute.major": "9",
        "nvidia.com/gpu.compute.minor": "0",
        "nvidia.com/gpu.count": "8",
        "nvidia.com/gpu.family": "hopper",
        "nvidia.com/gpu.memory": "81559",
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
        "nvidia.com/gpu.replicas": "1",
        "nvidia.com/mig.capable": "true",
    }


def test_what_is_not_reported_or_no_label_value_is_left_out():
    bare = replace(
        gpu(0, product="A" * 64, mig=None), memory_bytes=None, architecture=None, cuda_compute_capability=None
    )
    bare = replace(bare, mig_enabled=None)
    assert labels(Inventory(gpus=(bare,))) == {
        "nvidia.com/gpu.count": "1",
        "nvidia.com/gpu.replicas": "1",
        "nvidia.com/mig.capable": "false",
    }
    assert labels(Inventory()) == {}


def test_single_shows_mig_devices_where_all_are_of_one_profile():
    found = labels(node(gpu(0, SMALL, SMALL), gpu(1, SMALL)), "single")
    assert found["nvidia.com/mig.strategy"] == "single"
    of_devices = of_gpus(found)
    assert (of_devices["product"], of_devices["count"]) == ("NVIDIA-H100-80GB-HBM3-MIG-1g.10gb.me", "3")
    assert (of_devices["memory"], of_devices["multiprocessors"]) == ("10240", "16")
    assert (of_devices["slices.gi"], of_devices["engines.copy"]) == ("1", "1")


@pytest.mark.parametrize(
    "gpus",
    [(gpu(0, SMALL), gpu(1, LARGE)), (gpu(0, SMALL), gpu(1)), (gpu(0, mig=True),)],
    ids=["mixed", "partly", "empty"],
)
def test_single_with_anything_else_is_invalid(gpus: tuple[Gpu, ...]):
    found = of_gpus(labels(node(*gpus), "single"))
    assert found["product"] == "NVIDIA-H100-80GB-HBM3-MIG-INVALID"
    assert (found["count"], found["replicas"], found["memory"]) == ("0", "0", "0")


def test_mixed_shows_each_profile_and_the_gpus_that_are_not_cut():
    found = labels(node(gpu(0, SMALL, SMALL, LARGE), gpu(1)), "mixed")
    assert of_gpus(found)["count"] == "1"
    assert found["nvidia.com/mig-1g.10gb.me.count"] == "2"
    assert found["nvidia.com/mig-3g.40gb.count"] == "1"
    assert found["nvidia.com/mig-3g.40gb.memory"] == "40960"
    assert found["nvidia.com/mig-3g.40gb.product"] == "NVIDIA-H100-80GB-HBM3-MIG-3g.40gb"
    assert "gpu.count" not in of_gpus(labels(node(gpu(0, SMALL)), "mixed"))


async def test_the_file_is_written_when_labels_change_and_before_it_expires(tmp_path: Path):
    inventory, now = node(gpu(0)), NOW
    with contextlib.closing(Threads()) as threads:
        kept = NodeLabels(tmp_path, "none", lambda: inventory, threads, wall=lambda: now)
        await kept.update()
        path = tmp_path / FILE
        first = path.stat().st_ino
        assert b"nvidia.com/gpu.count=1\n" in path.read_bytes()
        assert path.stat().st_mode & 0o777 == 0o644
        await kept.update()
        assert path.stat().st_ino == first
        now += EXPIRES_S / 2
        await kept.update()
        assert feature_file({}, now + EXPIRES_S).strip() in path.read_bytes()
        inventory = node(gpu(0), gpu(1))
        await kept.update()
        assert b"nvidia.com/gpu.count=2\n" in path.read_bytes()
        assert [each.name for each in tmp_path.iterdir()] == [FILE]
