"""Shapes: what Go's decoder says of a wrong type, and which zero values an object is printed with."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.sandbox.apiserver.kinds.decode import decode
from fairlead.sandbox.apiserver.kinds.request import DecodeError


@pytest.mark.parametrize(
    ("model", "obj", "text"),
    [
        (
            "V1Pod",
            {"spec": {"containers": [{"name": 1}]}},
            "json: cannot unmarshal number into Go struct field Container.spec.containers.name of type string",
        ),
        (
            "V1Job",
            {"spec": {"parallelism": "2"}},
            "json: cannot unmarshal string into Go struct field JobSpec.spec.parallelism of type int32",
        ),
        (
            "V1Pod",
            {"spec": {"containers": {}}},
            "json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type []v1.Container",
        ),
        (
            "V1ResourceSlice",
            {"spec": {"pool": {"generation": 1.5}}},
            "json: cannot unmarshal number 1.5 into Go struct field ResourcePool.spec.pool.generation of type int64",
        ),
        (
            "V1Pod",
            {"spec": {"hostNetwork": "yes"}},
            "json: cannot unmarshal string into Go struct field PodSpec.spec.hostNetwork of type bool",
        ),
        ("V1Secret", {"data": {"a": "a b"}}, "illegal base64 data at input byte 1"),
        (
            "V1Lease",
            {"spec": {"renewTime": "noon"}},
            'parsing time "noon" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "noon" as "2006"',
        ),
    ],
)
def test_a_wrong_type_is_told_as_go_tells_it(model: str, obj: dict[str, Any], text: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(obj, model)
    assert str(caught.value) == text


def test_unknown_fields_are_dropped_and_named_with_their_index() -> None:
    pod = {"spec": {"containers": [{"name": "a"}, {"name": "b", "imag": "x"}], "nodeNam": "n"}, "stat": 1}
    assert decode(pod, "V1Pod") == [
        'unknown field "spec.containers[1].imag"',
        'unknown field "spec.nodeNam"',
        'unknown field "stat"',
    ]
    assert "nodeNam" not in pod["spec"]  # type: ignore[operator]


@pytest.mark.parametrize(
    ("model", "given", "printed"),
    [
        ("V1Pod", {}, {"spec": {"containers": None}, "status": {}}),
        ("ResourceV1ResourceClaim", {}, {"spec": {"devices": {"requests": None}}, "status": {}}),
        ("V1ConfigMap", {"data": {}, "immutable": False}, {"immutable": False}),
        (
            "V1Lease",
            {"spec": {"holderIdentity": "", "leaseTransitions": 0}},
            {"spec": {"holderIdentity": "", "leaseTransitions": 0}},
        ),
        ("V1DeviceAttribute", {"int": 0, "bool": False, "string": ""}, {"int": 0, "bool": False, "string": ""}),
        (
            "V1PodCondition",
            {"type": "Ready", "status": "True", "reason": ""},
            {"type": "Ready", "status": "True", "lastProbeTime": None, "lastTransitionTime": None},
        ),
        ("V1Container", {"name": "c", "stdin": False, "tty": True}, {"name": "c", "tty": True, "resources": {}}),
    ],
)
def test_zero_values_are_kept_added_or_left_out_as_in_go(
    model: str, given: dict[str, Any], printed: dict[str, Any]
) -> None:
    decode(given, model)
    assert given == printed


def test_times_and_quantities_are_canonical() -> None:
    lease = {"spec": {"renewTime": "2026-11-20T11:00:00.5+01:00"}}
    decode(lease, "V1Lease")
    assert lease["spec"]["renewTime"] == "2026-11-20T10:00:00.500000Z"
    node: dict[str, Any] = {"status": {"capacity": {"memory": 1024, "cpu": "1000m"}}}
    decode(node, "V1Node")
    assert node["status"]["capacity"] == {"memory": "1024", "cpu": "1"}
