"""The words of refusals: names, metadata of the wrong type, JSON that is none, as the real decoder and validator say it."""

import pytest

from fairlead.sandbox.apiserver import names
from fairlead.sandbox.apiserver.kinds.errors import (
    OMIT,
    ErrorType,
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_found,
    not_supported,
    quote,
    required,
    too_long,
    too_many,
)
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
    ("name", "fine"), [("a", True), ("1a", True), ("a.b", False), ("a" * 63, True), ("a" * 64, False)]
)
def test_labels(name, fine):
    assert (names.label_complaints(name) == []) is fine


def test_labels_of_rfc_1035_begin_with_a_letter():
    assert names.label_1035_complaints("a1") == []
    assert "DNS-1035" in names.label_1035_complaints("1a")[0]


def test_a_prefix_may_end_in_a_dash_and_a_name_may_not():
    assert names.subdomain_complaints("job-", prefix=True) == []
    assert names.subdomain_complaints("job-") == [names.SUBDOMAIN_COMPLAINT]


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


def test_names_in_paths_have_no_slash():
    assert names.path_segment_complaints("system:a") == []
    assert names.path_segment_complaints("a/b") == ["may not contain '/'"]
    assert names.path_segment_complaints("..") == ["may not be '..'"]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (required("a"), "a: Required value"),
        (required("a", "say it"), "a: Required value: say it"),
        (invalid("a", "x", "no"), 'a: Invalid value: "x": no'),
        (invalid("a", 5, "no"), "a: Invalid value: 5: no"),
        (invalid("a", {"b": [1]}, "no"), 'a: Invalid value: {"b":[1]}: no'),
        (invalid("a", None, "no"), "a: Invalid value: null: no"),
        (FieldError(ErrorType.INVALID, "a", "no", OMIT), "a: Invalid value: no"),
        (forbidden("a", "never"), "a: Forbidden: never"),
        (duplicate("a", "x"), 'a: Duplicate value: "x"'),
        (not_found("a", "x"), 'a: Not found: "x"'),
        (not_supported("a", "x", ["y", "z"]), 'a: Unsupported value: "x": supported values: "y", "z"'),
        (too_long("a", 64), "a: Too long: may not be more than 64 bytes"),
        (too_many("a", 129, 128), "a: Too many: 129: must have at most 128 items"),
    ],
)
def test_field_errors_read_as_gos(error, words):
    assert str(error) == words


def test_strings_are_quoted_as_go_quotes_them():
    assert quote('a"\\\n\x01é\u200b') == '"a\\"\\\\\\n\\x01é\\u200b"'


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


async def test_nulls_and_empties_in_metadata_are_as_if_not_given(inside):
    metadata: dict[str, object] = {
        "name": "a",
        "labels": {},
        "annotations": None,
        "creationTimestamp": None,
        "finalizers": [],
    }
    _, body = await inside.post(CM, {"metadata": metadata})
    assert not {"labels", "annotations", "finalizers"} & set(body["metadata"])


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


def test_double_fields_are_told_by_path():
    body = bodies.parse_json(b'{"a":{"b":1,"b":2},"c":[{"d":1,"d":2}],"a":{"b":3}}')
    assert body.value == {"a": {"b": 3}, "c": [{"d": 2}]}
    assert set(body.duplicates) == {"a", "a.b", "c[0].d"}


@pytest.mark.parametrize("query", ["limit=x", "limit=0.1s", "watch=true&timeoutSeconds=soon"])
async def test_numbers_that_are_none_are_refused(inside, query):
    status, body = await inside.get(f"{CM}?{query}")
    assert (status, "strconv.ParseInt: parsing" in body["message"]) == (400, True)


async def test_a_revision_that_is_no_number_is_a_500_as_in_the_real_one(inside):
    status, body = await inside.get(f"{CM}?resourceVersion=-1")
    assert (status, "reason" in body) == (500, False)
    assert body["message"] == 'resourceVersion: Invalid value: "-1": strconv.ParseUint: parsing "-1": invalid syntax'


async def test_a_put_must_name_its_object(inside):
    await inside.post(CM, {"metadata": {"name": "a"}})
    status, body = await inside.put(f"{CM}/a", {"metadata": {}})
    assert status == 400
    assert body["message"] == "the name of the object (a based on URL) was undeterminable: name must be provided"


async def test_a_patch_of_too_many_operations_is_413(inside):
    await inside.post(CM, {"metadata": {"name": "a"}})
    operation = {"op": "test", "path": "/metadata/name", "value": "a"}
    status, body = await inside.patch(f"{CM}/a", [operation] * 10_001, "json")
    assert (status, body["reason"]) == (413, "RequestEntityTooLarge")
