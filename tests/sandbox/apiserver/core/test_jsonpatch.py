"""RFC 6902 and RFC 7386, by the examples of their appendices."""

import copy

import pytest

from fairlead.sandbox.apiserver.patches import jsonpatch


@pytest.mark.parametrize(
    ("document", "patch", "wanted"),
    [
        ({"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "qux"}], {"baz": "qux", "foo": "bar"}),
        ({"foo": ["a", "c"]}, [{"op": "add", "path": "/foo/1", "value": "b"}], {"foo": ["a", "b", "c"]}),
        ({"baz": 1, "foo": 2}, [{"op": "remove", "path": "/baz"}], {"foo": 2}),
        ({"foo": ["a", "b"]}, [{"op": "remove", "path": "/foo/0"}], {"foo": ["b"]}),
        ({"baz": 1}, [{"op": "replace", "path": "/baz", "value": 2}], {"baz": 2}),
        (
            {"foo": {"bar": 1, "waldo": 2}, "qux": {}},
            [{"op": "move", "from": "/foo/waldo", "path": "/qux/thud"}],
            {"foo": {"bar": 1}, "qux": {"thud": 2}},
        ),
        ({"foo": [1, 2, 3]}, [{"op": "move", "from": "/foo/1", "path": "/foo/2"}], {"foo": [1, 3, 2]}),
        ({"foo": {"a": [1]}}, [{"op": "copy", "from": "/foo/a", "path": "/b"}], {"foo": {"a": [1]}, "b": [1]}),
        ({"baz": "q"}, [{"op": "test", "path": "/baz", "value": "q"}], {"baz": "q"}),
        ({"a": 1}, [{"op": "test", "path": "/b", "value": None}], {"a": 1}),
        ({"foo": [1]}, [{"op": "add", "path": "/foo/-", "value": [2]}], {"foo": [1, [2]]}),
        ({"/": 9, "~1": 10}, [{"op": "test", "path": "/~01", "value": 10}], {"/": 9, "~1": 10}),
        ({"a": {"b/c": 1}}, [{"op": "remove", "path": "/a/b~1c"}], {"a": {}}),
        ({"a": 1}, [{"op": "add", "path": "", "value": {"b": 2}}], {"b": 2}),
    ],
)
def test_json_patches_apply_as_in_the_rfc(document, patch, wanted):
    before = copy.deepcopy(document)
    assert jsonpatch.apply(document, patch) == wanted
    assert document == before


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/none"},
        {"op": "replace", "path": "/none", "value": 1},
        {"op": "add", "path": "/none/deep", "value": 1},
        {"op": "add", "path": "/list/5", "value": 1},
        {"op": "remove", "path": "/list/-"},
        {"op": "add", "path": "/list/x", "value": 1},
        {"op": "test", "path": "/a", "value": 2},
        {"op": "test", "path": "/a", "value": True},
        {"op": "move", "from": "/none", "path": "/b"},
        {"op": "move", "from": "/list", "path": "/list/0"},
        {"op": "add", "path": "/a"},
        {"op": "frobnicate", "path": "/a"},
        {"op": "add", "path": "a", "value": 1},
        {"op": "add"},
        {"op": "add", "path": "/a/b", "value": 1},
    ],
)
def test_an_operation_that_does_not_fit_is_an_error(operation):
    with pytest.raises(jsonpatch.PatchError):
        jsonpatch.apply({"a": 1, "list": [1]}, [operation])


@pytest.mark.parametrize(
    ("document", "patch", "wanted"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a"], {"a": 1}, {"a": 1}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patches_apply_as_in_the_rfc(document, patch, wanted):
    assert jsonpatch.merge(document, patch) == wanted
