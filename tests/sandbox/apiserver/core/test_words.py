"""The words of refusals: names, metadata of the wrong type, JSON that is none, as the real decoder and validator say it."""

import pytest

from fairlead.sandbox.apiserver import names
from fairlead.sandbox.apiserver.wire import bodies
from fairlead.sandbox.apiserver.wire.bodies import ParseError

CM = "/api/v1/namespaces/ml/configmaps"


@pytest.mark.parametrize(
    ("name", "fine"),
    [
        ("a", True),
        ("a.b-c", True),
        ("", False),
        ("A", False),
        ("a_b", False),
        ("-a", False),
        ("a" * 253, True),
        ("a" * 254, False),
    ],
)
def test_subdomains(name, fine):
    assert (names.subdomain_complaints(name) == []) is fine


@pytest.mark.parametrize(
    ("key", "fine"),
    [
        ("a", True),
        ("A_b.c", True),
        ("x.io/a", True),
        ("/a", False),
        ("x/", False),
        ("a/b/c", False),
        ("X/a", False),
        ("a" * 64, False),
    ],
)
def test_qualified_names(key, fine):
    assert (names.qualified_name_complaints(key) == []) is fine


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ("x", "json: cannot unmarshal string into Go struct field ConfigMap.metadata of type v1.ObjectMeta"),
        ({"name": 5}, "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.name of type string"),
        (
            {"labels": []},
            "cannot unmarshal array into Go struct field ObjectMeta.metadata.labels of type map[string]string",
        ),
        (
            {"labels": {"a": True}},
            "cannot unmarshal bool into Go struct field ObjectMeta.metadata.labels of type string",
        ),
        (
            {"generation": "1"},
            "cannot unmarshal string into Go struct field ObjectMeta.metadata.generation of type int64",
        ),
        (
            {"finalizers": {}},
            "cannot unmarshal object into Go struct field ObjectMeta.metadata.finalizers of type []string",
        ),
        (
            {"finalizers": [1]},
            "cannot unmarshal number into Go struct field ObjectMeta.metadata.finalizers of type string",
        ),
        (
            {"ownerReferences": ["x"]},
            "cannot unmarshal string into Go struct field ObjectMeta.metadata.ownerReferences",
        ),
    ],
)
async def test_metadata_of_the_wrong_type_is_a_bad_request(inside, metadata, message):
    status, body = await inside.post(CM, {"metadata": metadata})
    assert (status, body["reason"]) == (400, "BadRequest")
    assert message in body["message"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "unexpected end of JSON input"),
        (b'{"a":', "unexpected end of JSON input"),
        (b'{"a":"b', "unexpected end of JSON input"),
        (b"{'a':1}", "invalid character '\\'' looking for beginning of object key string"),
        (b'{"a" 1}', "invalid character '1' after object key"),
        (b'{"a":1 "b":2}', "invalid character '\"' after object key:value pair"),
        (b'{"a":x}', "invalid character 'x' looking for beginning of value"),
        (b'{"a":NaN}', "invalid character 'N' looking for beginning of value"),
        (b"{} {}", "invalid character '{' after top-level value"),
        (b"\xff", "invalid UTF-8"),
        (b"[" * 100_000, "exceeded max depth"),
    ],
)
def test_what_is_no_json_is_told_as_encoding_json_tells_it(data, message):
    with pytest.raises(ParseError) as error:
        bodies.parse_json(data)
    assert message in str(error.value)
