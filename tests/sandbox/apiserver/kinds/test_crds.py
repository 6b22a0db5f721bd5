"""Custom kinds: from a definition to discovery, validation, rules, columns, versions, and back to nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.apiserver.served import Served

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
THINGS = "/apis/example.com/v1/namespaces/ml/things"


def definition(spec: dict[str, Any], **version: Any) -> dict[str, Any]:
    properties = {
        "spec": {"type": "object", **spec},
        "status": {"type": "object", "properties": {"n": {"type": "integer"}}},
    }
    schema = {"openAPIV3Schema": {"type": "object", "properties": properties}}
    one = {"name": "v1", "served": True, "storage": True, "schema": schema, "subresources": {"status": {}}, **version}
    names = {"kind": "Thing", "plural": "things", "shortNames": ["th"]}
    return {
        "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [one]},
    }


async def define(api: Served, spec: dict[str, Any], **version: Any) -> None:
    code, answer = await api.post(CRDS, definition(spec, **version))
    assert code == 201, str(answer)


def thing(name: str = "t", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": spec}


@pytest.mark.parametrize(
    ("schema", "value", "complaint"),
    [
        (
            {"type": "string", "pattern": "^a+$"},
            "b",
            "spec.x: Invalid value: \"b\": spec.x in body should match '^a+$'",
        ),
        ({"type": "string", "maxLength": 2}, "abc", "spec.x: Too long: may not be more than 2 bytes"),
        (
            {"type": "string", "minLength": 2},
            "a",
            'spec.x: Invalid value: "a": spec.x in body should be at least 2 chars long',
        ),
        (
            {"type": "string", "format": "date-time"},
            "now",
            'spec.x: Invalid value: "now": spec.x in body must be of type date-time: "now"',
        ),
        (
            {"type": "integer", "maximum": 3, "exclusiveMaximum": True},
            3,
            "spec.x: Invalid value: 3: spec.x in body should be less than 3",
        ),
        ({"type": "number", "multipleOf": 2}, 3, "spec.x: Invalid value: 3: spec.x in body should be a multiple of 2"),
        (
            {"type": "array", "maxItems": 1, "items": {"type": "string"}},
            ["a", "b"],
            "spec.x: Too many: 2: must have at most 1 items",
        ),
        (
            {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            ["a", "a"],
            'spec.x[1]: Duplicate value: "a"',
        ),
        (
            {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}}},
            },
            [{"k": "a"}, {"k": "a"}],
            'spec.x[1]: Duplicate value: {"k":"a"}',
        ),
        (
            {"type": "object", "additionalProperties": {"type": "integer"}},
            {"a": "b"},
            'spec.x.a: Invalid value: "string": spec.x.a in body must be of type integer: "string"',
        ),
        (
            {"x-kubernetes-int-or-string": True},
            True,
            'spec.x: Invalid value: "boolean": spec.x in body must be of type integer,string: "boolean"',
        ),
        (
            {"type": "integer", "oneOf": [{"minimum": 5}, {"maximum": 2}]},
            3,
            '<nil>: Invalid value: "": "spec.x" must validate one and only one schema (oneOf). Found none valid',
        ),
        ({"type": "string"}, None, 'spec.x: Invalid value: "null": spec.x in body must be of type string: "null"'),
    ],
)
async def test_a_bad_value_is_told_in_the_real_words(
    api: Served, schema: dict[str, Any], value: Any, complaint: str
) -> None:
    await define(api, {"properties": {"x": schema}})
    assert await api.refused(THINGS, thing(x=value)) == [complaint]


async def test_what_the_schema_does_not_know_is_dropped_and_what_it_defaults_is_filled_in(api: Served) -> None:
    inner = {"type": "object", "default": {}, "properties": {"b": {"type": "string", "default": "c"}}}
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    await define(api, {"properties": {"a": inner, "free": free, "n": {"type": "string", "nullable": True}}})
    code, made = await api.post(THINGS, thing(unknown=1, free={"any": [1]}, n=None))
    assert code == 201
    assert made["spec"] == {"a": {"b": "c"}, "free": {"any": [1]}, "n": None}
    assert api.last is not None
    assert api.last.warnings == ['unknown field "spec.unknown"']


async def test_a_transition_rule_waits_for_an_old_value(api: Served) -> None:
    rule = {"rule": "self >= oldSelf", "message": "may only grow", "reason": "FieldValueForbidden"}
    items = {
        "type": "object",
        "required": ["k"],
        "properties": {"k": {"type": "string", "maxLength": 20}, "v": {"type": "integer"}},
    }
    immutable = {"rule": "self.v == oldSelf.v", "messageExpression": "'v of ' + self.k + ' is immutable'"}
    listed = {
        "type": "array",
        "maxItems": 10,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["k"],
        "items": {**items, "x-kubernetes-validations": [immutable]},
    }
    await define(api, {"properties": {"n": {"type": "integer", "x-kubernetes-validations": [rule]}, "l": listed}})
    assert (await api.post(THINGS, thing(n=3, l=[{"k": "a", "v": 1}])))[0] == 201
    assert (await api.patch(f"{THINGS}/t", {"spec": {"n": 4}}))[0] == 200
    code, answer = await api.patch(f"{THINGS}/t", {"spec": {"n": 2, "l": [{"k": "b", "v": 9}, {"k": "a", "v": 2}]}})
    assert code == 422
    assert [f"{one['field']}: {one['message']}" for one in answer["details"]["causes"]] == [
        "spec.n: Forbidden: may only grow",
        "spec.l[1]: Invalid value: v of a is immutable",
    ]


async def test_a_rule_that_could_cost_too_much_is_refused(api: Served) -> None:
    rule = {"rule": "self.all(x, self.all(y, x == y))"}
    items: dict[str, Any] = {"type": "array", "items": {"type": "string"}, "x-kubernetes-validations": [rule]}
    complaint = (await api.refused(CRDS, definition({"properties": {"l": items}})))[0]
    assert complaint.endswith(
        "properties[l].x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of more "
        "than 100x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and "
        "strings are declared)"
    )
    items |= {"maxItems": 10, "items": {"type": "string", "maxLength": 20}}
    await define(api, {"properties": {"l": items}})


async def test_status_is_written_apart_and_counted_out_of_the_generation(api: Served) -> None:
    await define(api, {"properties": {"x": {"type": "integer"}}})
    _, made = await api.post(THINGS, {**thing(x=1), "status": {"n": 1}})
    assert "status" not in made
    _, made = await api.patch(f"{THINGS}/t/status", {"spec": {"x": 2}, "status": {"n": 1}})
    assert (made["spec"]["x"], made["status"]["n"], made["metadata"]["generation"]) == (1, 1, 1)
    _, made = await api.patch(f"{THINGS}/t", {"spec": {"x": 2}, "status": {"n": 2}})
    assert (made["spec"]["x"], made["status"]["n"], made["metadata"]["generation"]) == (2, 1, 2)
    code, _ = await api.patch(f"{THINGS}/t/status", {"status": {"n": "x"}})
    assert code == 422


async def test_scale_reads_and_writes_where_the_definition_says(api: Served) -> None:
    paths = {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.n"}
    await define(api, {"properties": {"size": {"type": "integer"}}}, subresources={"status": {}, "scale": paths})
    await api.post(THINGS, thing(size=2))
    _, scale = await api.get(f"{THINGS}/t/scale")
    assert (scale["kind"], scale["spec"]["replicas"]) == ("Scale", 2)
    await api.patch(f"{THINGS}/t/scale", {"spec": {"replicas": 5}})
    assert (await api.get(f"{THINGS}/t"))[1]["spec"]["size"] == 5


async def test_columns_follow_their_paths(api: Served) -> None:
    columns = [
        {"name": "First", "type": "string", "jsonPath": ".spec.list[0]"},
        {"name": "Ready", "type": "string", "jsonPath": '.spec.conditions[?(@.type=="Ready")].status'},
        {"name": "Map", "type": "string", "jsonPath": ".spec.map", "priority": 1},
        {"name": "Missing", "type": "integer", "jsonPath": ".spec.none"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    open_ = {"x-kubernetes-preserve-unknown-fields": True}
    await define(api, open_, additionalPrinterColumns=columns)
    conditions = [{"type": "Other", "status": "a"}, {"type": "Ready", "status": "True"}]
    await api.post(THINGS, thing(list=["x", "y"], conditions=conditions, map={"a": 1}))
    accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    _, table = await api.get(THINGS, headers=accept)
    assert table["rows"][0]["cells"] == ["t", "x", "True", '{"a":1}', None, "0s"]
    assert [one["priority"] for one in table["columnDefinitions"]] == [0, 0, 0, 1, 0, 0]


async def test_a_definition_waits_for_objects_that_something_holds(api: Served) -> None:
    await define(api, {})
    held = thing("held")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    await api.post(THINGS, held)
    await api.post(THINGS, thing("free"))
    code, going = await api.delete(f"{CRDS}/things.example.com")
    assert (code, going["metadata"]["finalizers"]) == (200, ["customresourcecleanup.apiextensions.k8s.io"])
    assert going["status"]["conditions"][-1]["type"] == "Terminating"
    code, answer = await api.post(THINGS, thing("late"))
    assert (code, answer["reason"]) == (405, "MethodNotAllowed")
    _, left = await api.get(THINGS)
    assert [one["metadata"]["name"] for one in left["items"]] == ["held"]
    assert (await api.patch(f"{THINGS}/held", {"metadata": {"finalizers": None}}))[0] == 200
    assert (await api.get(f"{CRDS}/things.example.com"))[0] == 404
    assert (await api.get(THINGS))[0] == 404


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (
            lambda d: d["metadata"].update(name="x.example.com"),
            'metadata.name: Invalid value: "x.example.com": must be spec.',
        ),
        (lambda d: d["spec"].update(scope="World"), 'spec.scope: Unsupported value: "World"'),
        (lambda d: d["spec"]["versions"][0].pop("schema"), "spec.versions[0].schema.openAPIV3Schema: Required value"),
        (lambda d: d["spec"]["versions"][0].update(storage=False), "spec.versions: Invalid value: "),
        (
            lambda d: _root(d)["properties"].update(x={"properties": {}}),
            "spec.versions[0].schema.openAPIV3Schema.properties[x].type: Required value",
        ),
        (
            lambda d: _root(d)["properties"].update(x={"type": "string", "pattern": "("}),
            'spec.versions[0].schema.openAPIV3Schema.properties[x].pattern: Invalid value: "("',
        ),
        (
            lambda d: _root(d).update({"x-kubernetes-validations": [{"rule": "self.x =="}]}),
            "spec.versions[0].schema.openAPIV3Schema.x-kubernetes-validations[0].rule: Invalid value: ",
        ),
        (
            lambda d: d["spec"]["versions"][0].update(
                additionalPrinterColumns=[{"name": "a", "type": "text", "jsonPath": "spec"}]
            ),
            'spec.versions[0].additionalPrinterColumns[0].type: Unsupported value: "text"',
        ),
    ],
)
async def test_a_bad_definition_is_refused(api: Served, change: Any, complaint: str) -> None:
    body = definition({})
    change(body)
    assert (await api.refused(CRDS, body))[0].startswith(complaint)


def _root(body: dict[str, Any]) -> dict[str, Any]:
    root: dict[str, Any] = body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return root
