"""A constraint grows and shrinks with the search: what was undone leaves no trace."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.api import names
from fairlead.engine.allocator.search_space import Constraint, add_all
from tests.support.engine.examples import examples
from tests.support.engine.objects import claim_spec, device_request, gang, gpu, mig_gpu
from tests.support.engine.world import World, devices_of

ATTRIBUTES = ("example.com/a", "example.com/b")


class Fake:
    """As much of a device as a constraint reads."""

    def __init__(self, *values: frozenset[int]) -> None:
        self._values = dict(zip(ATTRIBUTES, values, strict=True))

    def values(self, attribute: str) -> frozenset[Any]:
        return self._values[attribute]


def constraints() -> tuple[Constraint, ...]:
    first, second = ATTRIBUTES
    return (
        Constraint(first, distinct=False, requests=frozenset()),
        Constraint(second, distinct=True, requests=frozenset()),
        Constraint(second, distinct=False, requests=frozenset()),
        Constraint(first, distinct=True, requests=frozenset()),
    )


def accepted(held: list[Fake], attribute: str, *, distinct: bool) -> bool:
    """By definition, from scratch."""
    sets = [device.values(attribute) for device in held]
    if not all(sets):
        return False
    if not distinct:
        return bool(frozenset.intersection(*sets))
    return sum(map(len, sets)) == len(frozenset[Any]().union(*sets))


fakes = st.builds(Fake, *(st.frozensets(st.integers(0, 2), min_size=1, max_size=2) for _ in ATTRIBUTES))


@settings(max_examples=examples(300))
@given(steps=st.lists(st.one_of(st.none(), fakes), max_size=12), which=st.integers(0, 3))
def test_after_any_adding_and_undoing_it_checks_the_devices_held_and_no_others(steps: list[Fake | None], which: int):
    constraint, held = constraints()[which], list[Fake]()
    for step in steps:
        if step is None:
            if held:
                constraint.remove(held.pop())  # type: ignore[arg-type]
            continue
        verdict = constraint.add(step)  # type: ignore[arg-type]
        assert verdict == accepted([*held, step], constraint.attribute, distinct=constraint.distinct)
        if verdict:
            held.append(step)


@given(steps=st.lists(fakes, max_size=8))
def test_a_device_that_breaks_one_constraint_leaves_no_trace_in_the_others(steps: list[Fake]):
    together, held = constraints()[:2], list[Fake]()
    for step in steps:
        wanted = all(accepted([*held, step], each.attribute, distinct=each.distinct) for each in together)
        assert add_all(together, step) == wanted  # type: ignore[arg-type]
        if wanted:
            held.append(step)


def test_the_alternative_is_the_one_that_upstreams_order_of_devices_gives():
    """gpu-1 is alone in its island and the better pick for r0, but upstream takes gpu-0, and so the second alternative."""
    made = World()
    made.add_node("node", [gpu(0, product="a"), gpu(1, product="b", island=1), gpu(2, product="c")])
    model = f'device.attributes["{names.DRIVER}"].productName'
    options = {
        "firstAvailable": [
            device_request(name="first", cel=f'{model} == "a"'),
            device_request(name="second", cel=f'{model} != "a"'),
        ]
    }
    plan = made.decide(gang("job", 1, claim_spec(device_request(), options)))
    results = plan.admissions[0].claims[0].allocation.devices.results
    assert [result.request for result in results] == ["r0", "r1/second"]


def test_two_admin_requests_of_one_claim_never_share_a_device():
    made = World()
    made.add_node("node", [gpu(0), gpu(1)])
    admin = device_request(adminAccess=True)
    plan = made.decide(gang("job", 1, claim_spec(admin, admin)))
    assert sorted(devices_of(plan, "job")) == ["gpu-0", "gpu-1"]
    assert not made.decide(gang("three", 1, claim_spec(admin, admin, admin))).admissions


@pytest.mark.parametrize("wanted", [0, 1])
def test_a_device_that_was_tried_for_one_request_is_there_for_the_next(wanted: int):
    made = World()
    made.add_node("node", [gpu(0), gpu(1)])
    one = device_request(cel=f'device.attributes["{names.DRIVER}"].uuid == "GPU-{wanted}"')
    plan = made.decide(gang("job", 1, claim_spec(device_request(), one)))
    assert devices_of(plan, "job") == [f"gpu-{1 - wanted}", f"gpu-{wanted}"]


@pytest.mark.parametrize("whole", [0, 1])
def test_alike_partitions_that_consume_counters_of_different_gpus_are_not_interchangeable(whole: int):
    """The partition has to come from the other GPU than the one wanted whole, though nothing else tells them apart."""
    made = World()
    (first, first_counters), (second, second_counters) = mig_gpu(0), mig_gpu(1)
    for device in (*first, *second):
        device["attributes"].pop("parentIndex", None)
        device["attributes"].pop("parentUUID", None)
    made.add_node("node", [*first, *second], counters=[first_counters, second_counters])
    profile = f'device.attributes["{names.DRIVER}"].profile'
    half = device_request(device_class=names.MIG_CLASS, cel=f'{profile} == "4g.40gb"')
    one = device_request(cel=f'device.attributes["{names.DRIVER}"].uuid == "GPU-{whole}"')
    plan = made.decide(gang("job", 1, claim_spec(half, one)))
    assert devices_of(plan, "job") == [f"gpu-{1 - whole}-mig-4g-40gb-0", f"gpu-{whole}"]
