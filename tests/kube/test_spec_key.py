"""A spec's key: equal for equal specs, whatever they hold and in whatever order it was written."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fairlead.kube.resource import ResourceClaimSpec
from fairlead.kube.spec_key import spec_key


def spec(parameters: dict[str, Any], capacity: dict[str, str]) -> ResourceClaimSpec:
    exactly = {"deviceClassName": "gpu", "capacity": {"requests": capacity}}
    config = [{"opaque": {"driver": "gpu", "parameters": parameters}}]
    return msgspec.convert(
        {"devices": {"requests": [{"name": "r", "exactly": exactly}], "config": config}}, ResourceClaimSpec
    )


def test_a_spec_that_cannot_be_hashed_has_a_key():
    made = spec({"sharing": {"strategy": "TimeSlicing"}}, {"memory": "10Gi"})
    with pytest.raises(TypeError, match="unhashable"):
        hash(made)
    assert {spec_key(made): 1}[spec_key(spec({"sharing": {"strategy": "TimeSlicing"}}, {"memory": "10Gi"}))] == 1


def test_the_order_in_which_maps_were_written_plays_no_part():
    one = spec({"a": {"x": 1, "y": 2}, "b": []}, {"memory": "1Gi", "cores": "2"})
    other = spec({"b": [], "a": {"y": 2, "x": 1}}, {"cores": "2", "memory": "1Gi"})
    assert spec_key(one) == spec_key(other)
    assert spec_key((one.devices, other)) == spec_key((other.devices, one))
