"""Bodies in protobuf, as kubectl's own commands write them."""

import pytest

from fairlead.sandbox.apiserver.wire import protobuf

MAGIC = b"k8s\x00"


def field(number, value):
    """One field: bytes, str, int, or a message as bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint(value):
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def wrapped(api_version, kind, raw):
    return MAGIC + field(1, field(1, api_version) + field(2, kind)) + field(2, raw) + field(3, "") + field(4, "")


META = field(1, "a") + field(3, "") + field(8, b"") + field(11, field(1, "k") + field(2, "v"))


def test_numbers_flags_times_quantities_and_either_or_values_read_as_in_json():
    quota = field(1, META) + field(2, field(1, field(1, "pods") + field(2, field(1, "5"))))
    assert protobuf.decode(wrapped("v1", "ResourceQuota", quota))["spec"] == {"hard": {"pods": "5"}}
    budget = field(2, field(1, field(1, 0) + field(2, 1) + field(3, "")) + field(3, field(1, 1) + field(3, "50%")))
    spec = protobuf.decode(wrapped("policy/v1", "PodDisruptionBudget", budget))["spec"]
    assert spec == {"minAvailable": 1, "maxUnavailable": "50%"}
    lease = field(2, field(1, "me") + field(2, 15) + field(3, field(1, 1_700_000_000) + field(2, 5_000)))
    spec = protobuf.decode(wrapped("coordination.k8s.io/v1", "Lease", lease))["spec"]
    assert spec == {"holderIdentity": "me", "leaseDurationSeconds": 15, "acquireTime": "2023-11-14T22:13:20.000005Z"}
    account = field(1, META) + field(4, 0)
    assert protobuf.decode(wrapped("v1", "ServiceAccount", account))["automountServiceAccountToken"] is False
    secret = field(2, field(1, "k") + field(2, b"\x00\xff"))
    assert protobuf.decode(wrapped("v1", "Secret", secret))["data"] == {"k": "AP8="}
    priority = field(2, (1 << 64) - 5)
    assert protobuf.decode(wrapped("scheduling.k8s.io/v1", "PriorityClass", priority))["value"] == -5


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (wrapped("v1", "Mystery", b""), "Kind=Mystery in protobuf is not understood"),
        (wrapped("v1", "Namespace", field(99, 1)), "field 99 of Namespace"),
    ],
)
def test_what_is_not_in_the_tables_is_refused_by_name(data, message):
    with pytest.raises(protobuf.UnsupportedError, match=message):
        protobuf.decode(data)


async def test_the_server_takes_it_and_answers_in_json(inside):
    raw = wrapped("v1", "ConfigMap", field(1, META) + field(2, field(1, "x") + field(2, "1")))
    status, body = await inside.post("/api/v1/namespaces/ml/configmaps", raw, content_type=protobuf.MEDIA_TYPE)
    assert (status, body["data"]) == (201, {"x": "1"})
    unknown = wrapped("v1", "ConfigMap", field(77, 1))
    status, body = await inside.post("/api/v1/namespaces/ml/configmaps", unknown, content_type=protobuf.MEDIA_TYPE)
    assert (status, "send JSON" in body["message"]) == (415, True)
