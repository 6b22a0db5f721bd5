"""Forecasts and comparisons of gangs whose claims hold maps: everyday manifests, such as a time-slicing config or a request for capacity."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.api import names
from fairlead.engine.forecast.forecast import forecast
from fairlead.engine.forecast.what_if import Change, compare
from fairlead.engine.types.gangs import GangRequest
from tests.engine.forecast.test_forecast import HOUR, NOW, full_world, whole_nodes
from tests.engine.forecast.test_what_if import TIMES, new_node
from tests.support.engine.objects import claim_spec, device_request, gang

TIME_SLICING = {"opaque": {"driver": names.DRIVER, "parameters": {"sharing": {"strategy": "TimeSlicing"}}}}


def configured(name: str) -> GangRequest:
    return gang(name, 1, claim_spec(device_request(), config=[TIME_SLICING]))


def with_capacity(name: str) -> GangRequest:
    return gang(name, 1, claim_spec(device_request(capacity={"requests": {"memory": "10Gi"}})))


@pytest.mark.parametrize("made", [configured, with_capacity])
def test_a_claim_that_holds_a_map_ends_no_forecast(made: Any):
    world = full_world(1)
    found = forecast(world.snapshot(made("a"), made("b"), whole_nodes("c")), NOW, TIMES, seed=1, samples=4)
    assert found.samples == 4
    assert set(found.gangs) == {"ml/a", "ml/b", "ml/c"}
    assert all(each.p50 is not None for each in found.gangs.values())


@pytest.mark.parametrize("made", [configured, with_capacity])
def test_a_claim_that_holds_a_map_ends_no_comparison(made: Any):
    found = compare(
        full_world(1).snapshot(made("a")), NOW, Change(add=(new_node("extra"),)), TIMES, horizon_s=24 * HOUR
    )
    assert found.after.starts["ml/a"].p50_s == 0.0
