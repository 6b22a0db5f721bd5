"""Attributes with lists of values (KEP-5491): devices match by a value that all have, and are distinct where no two have one in common.

The cases are those of upstream's allocator under "list-attributes-…", of each kind of value.
Source: k8s.io/dynamic-resource-allocation/structured/internal/allocatortesting (3d03671), with ListTypeAttributes on.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.engine.objects import claim_spec, device_request, gang, gpu, slice_of
from tests.support.engine.world import World, devices_of

Json = dict[str, Any]
CPUS = "dra.cpu"
ROOT = "resource.kubernetes.io/pcieRoot"
KINDS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "string": ("strings", ("v1", "v2", "v3", "v4", "v5")),
    "int": ("ints", (0, 1, 2, 3, 4)),
    "version": ("versions", ("1.0.0", "1.1.0", "2.0.0", "2.1.0", "3.0.0")),
    "bool": ("bools", (True, False)),
}
# Of each device its values, by their place in KINDS: a number is a single value, a tuple is a list. Then the devices that two or all get.
Case = tuple[tuple[int | tuple[int, ...], ...], list[int]]
ALIKE: tuple[Case, ...] = (
    ((0, 0), [0, 1]),
    (((0, 1, 2), (1, 2, 3)), [0, 1]),
    (((0, 1), (1, 2), (2, 0)), []),
    (((0, 1), (2, 3)), []),
    ((0, (0, 1)), [0, 1]),
    ((0, (0, 1), (1, 2)), []),
    ((0, (1, 2)), []),
    ((0, ()), []),
)
DISTINCT: tuple[Case, ...] = (
    ((0, 1), [0, 1]),
    ((0, 0), []),
    (((0, 1), (1, 2), (2, 3)), [0, 2]),
    (((0, 1, 2), (1, 3, 4)), []),
    ((0, (0, 1), (1, 2)), [0, 2]),
    ((0, (0, 1)), []),
    (((0, 1), ()), []),
)
CASES = [
    *(("matchAttribute", kind, *case) for kind in ("string", "int", "version") for case in ALIKE),
    *(("distinctAttribute", kind, *case) for kind in ("string", "int", "version") for case in DISTINCT),
    ("matchAttribute", "bool", ((0, 1), (0,)), [0, 1]),
    ("distinctAttribute", "bool", ((0,), (0, 1), (1,)), [0, 2]),
]


def device(number: int, kind: str, value: int | tuple[int, ...]) -> Json:
    many, known = KINDS[kind]
    written = {kind: known[value]} if isinstance(value, int) else {many: [known[each] for each in value]}
    return {"name": f"d{number}", "attributes": {"alike": written}}


def with_class(made: World, driver: str) -> World:
    made.add_class(driver, {"selectors": [{"cel": {"expression": f'device.driver == "{driver}"'}}]})
    return made


@pytest.mark.parametrize(("constraint", "kind", "values", "expected"), CASES)
def test_constraints_compare_lists_as_sets(
    constraint: str, kind: str, values: tuple[int | tuple[int, ...], ...], expected: list[int]
) -> None:
    made = with_class(World(), CPUS)
    made.add_node("node")
    made.add_slices(
        slice_of("node", [device(*each) for each in ((n, kind, v) for n, v in enumerate(values))], driver=CPUS)
    )
    count = len(values) if constraint == "matchAttribute" else 2
    asked = claim_spec(device_request(count, device_class=CPUS), constraints=[{constraint: f"{CPUS}/alike"}])
    plan = made.decide(gang("job", 1, asked))
    assert (devices_of(plan, "job") if plan.admissions else []) == [f"d{number}" for number in expected]


def groups(*roots: tuple[str, ...]) -> list[Json]:
    """CPUs of a NUMA node each, as dra-driver-cpu publishes them with --expose-pcie-roots."""
    return [
        {
            "name": f"cpudevnuma00{number}",
            "attributes": {ROOT: {"strings": list(each)}},
            "capacity": {f"{CPUS}/cpu": {"value": "8"}},
            "allowMultipleAllocations": True,
        }
        for number, each in enumerate(roots)
    ]


def test_cpus_are_those_of_the_gpus_pcie_root() -> None:
    """The GPU has one root, the CPUs have several. Each group has CPUs for two pods: the fifth of five pods has none near a free GPU."""
    made = with_class(World(), CPUS)
    gpus = [gpu(number) for number in range(6)]
    for number, each in enumerate(gpus):
        each["attributes"] = each["attributes"] | {ROOT: {"string": f"pci{number % 3}"}}
    made.add_node("node", gpus)
    made.add_slices(slice_of("node", groups(("pci9", "pci0"), ("pci1", "pci2")), driver=CPUS))
    cpus = device_request(device_class=CPUS, capacity={"requests": {f"{CPUS}/cpu": "4"}})
    asked = claim_spec(device_request(), cpus, constraints=[{"matchAttribute": ROOT}])
    plan = made.decide(gang("four", 4, asked))
    pairs = [tuple(each.device for each in claim.allocation.devices.results) for claim in plan.admissions[0].claims]
    near = {f"gpu-{number}": f"cpudevnuma00{min(number % 3, 1)}" for number in range(6)}
    assert all(near[one] == other for one, other in pairs)
    assert not made.decide(gang("five", 5, asked)).admissions


@pytest.mark.parametrize(("root", "group"), [("pci0", "cpudevnuma000"), ("pci2", "cpudevnuma001")])
def test_selectors_look_into_lists(root: str, group: str) -> None:
    made = with_class(World(), CPUS)
    made.add_node("node", [gpu(0)])
    made.add_slices(slice_of("node", groups(("pci9", "pci0"), ("pci1", "pci2")), driver=CPUS))
    attribute = 'device.attributes["resource.kubernetes.io"].pcieRoot'
    for text in (f'{attribute}.includes("{root}")', f'"{root}" in {attribute}'):
        asked = claim_spec(device_request(), device_request(device_class=CPUS, cel=text))
        assert devices_of(made.decide(gang("job", 1, asked)), "job") == ["gpu-0", group]
