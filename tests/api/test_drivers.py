"""The table of the drivers' names, and what holds for a driver that is not in it."""

from __future__ import annotations

import pytest

from fairlead.api import drivers, legacy, names
from fairlead.api.drivers import AMD, DRIVERS, EXAMPLE, INTEL, NVIDIA, attributes_of


def test_the_smallest_islands_that_hold_the_request_are_those_that_join_it():
    nvidia = attributes_of(NVIDIA)
    assert [nvidia.island(count) for count in (1, 2, 3, 4, 8, 9)] == [
        f"gpu.nvidia.com/partition{size}" for size in (2, 2, 4, 4, 8, 8)
    ]
    assert {attributes_of(names.DRIVER).island(count) for count in (1, 4, 16)} == {"gpu.fairlead.dev/nvlinkDomain"}
    assert [attributes_of(driver).island(4) for driver in (AMD, INTEL, EXAMPLE, "gpu.unknown.dev")] == [""] * 4


@pytest.mark.parametrize(
    ("driver", "whole", "part"),
    [(names.DRIVER, "gpu", "mig"), (NVIDIA, "gpu", "mig"), (AMD, "amdgpu", "amdgpu-partition"), (INTEL, "gpu", "vf")],
)
def test_the_type_says_what_is_a_part(driver, whole, part):
    known = attributes_of(driver)
    assert (known.is_part(whole), known.is_part(part), known.is_part(None)) == (False, True, False)


def test_of_an_unknown_driver_nothing_is_a_part_and_a_sentence_says_what_that_means():
    known = attributes_of("gpu.unknown.dev")
    assert (known.known, known.is_part("mig"), known.numa) == (False, False, (names.NUMA_NODE,))
    sentence = drivers.unknown_driver("gpu.unknown.dev")
    assert sentence is not None
    assert sentence.startswith(
        "driver gpu.unknown.dev is not one whose attributes are known to Fairlead (gpu.fairlead.dev, gpu.nvidia.com,"
    )
    assert [drivers.unknown_driver(driver) for driver in DRIVERS] == [None] * len(DRIVERS)


def test_legacy_limits_go_to_a_driver_that_has_such_gpus():
    assert drivers.legacy_driver([AMD, NVIDIA]) == NVIDIA
    assert drivers.legacy_driver([names.DRIVER, NVIDIA]) == names.DRIVER
    assert drivers.legacy_driver([AMD, "gpu.unknown.dev"]) == "gpu.unknown.dev"
    assert [drivers.serve_nvidia(managed) for managed in ([AMD, INTEL], [AMD, NVIDIA], ["gpu.unknown.dev"])] == [
        False,
        True,
        True,
    ]


def test_where_a_class_holds_parts_too_whole_gpus_are_asked_for_by_their_type():
    (request,) = legacy.template_manifest("fairlead-gpu-2", "ml", driver=AMD)["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"]["deviceClassName"] == "gpu.amd.com"
    assert request["exactly"]["selectors"] == [
        {"cel": {"expression": "device.attributes['gpu.amd.com'].type == 'amdgpu'"}}
    ]
