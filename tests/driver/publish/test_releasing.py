"""Devices of claims that are gone: what overlaps with them is tainted, and nothing else."""

from __future__ import annotations

import dataclasses

from fairlead.api import withheld
from fairlead.driver.backend import profiles
from fairlead.driver.backend.simulated.backend import SimulatedBackend
from fairlead.driver.publish import slices
from fairlead.driver.publish.slices import ALL_KEPT, PoolSlices

INVENTORY = SimulatedBackend(profiles.load("hgx-h100"), node="n1").inventory()
GPU = INVENTORY.gpus[0]


def tainted(built: PoolSlices) -> set[str]:
    return {each.name for each in built.devices if any(taint.key == withheld.RELEASING for taint in each.taints)}


def test_of_a_gpu_cut_on_demand_only_what_overlaps() -> None:
    built = slices.build(
        INVENTORY, slices.Facts(partitionable=frozenset({GPU.uuid}), releasing={GPU.uuid: frozenset({(4, 4)})})
    )
    found = tainted(built)
    of_gpu = {each.name for each in built.devices if each.name.startswith("gpu-0")}
    assert "gpu-0" in found
    assert found < of_gpu
    starts = {name.rpartition("-")[2] for name in found if "-1g10gb-" in name}
    assert starts == {"4", "5", "6"}
    assert all(not name.endswith("-9-0") for name in found)  # 3g.40gb at 0


def test_the_whole_gpu() -> None:
    assert tainted(slices.build(INVENTORY, slices.Facts(releasing={GPU.uuid: frozenset({None})}))) == {"gpu-0"}


def test_where_taints_are_not_kept_it_leaves_the_slices_with_its_reason() -> None:
    kept = dataclasses.replace(ALL_KEPT, taints=False)
    built = slices.build(INVENTORY, slices.Facts(releasing={GPU.uuid: frozenset({None})}, kept=kept))
    assert {each.name for each in built.devices} == {f"gpu-{minor}" for minor in range(1, 8)}
    [said] = built.notes["gpu-0"]
    assert (said.key, said.effect) == (withheld.RELEASING, "NoSchedule")
    assert "containers that use it are being stopped" in said.reason
