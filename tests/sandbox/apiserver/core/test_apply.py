"""Server-side apply: which manager owns which field, what goes, what conflicts."""

import json

import pytest

from fairlead.sandbox.apiserver.kinds.base import Kind
from fairlead.sandbox.apiserver.ownership import managed
from fairlead.sandbox.apiserver.ownership.fieldsets import FieldSet
from tests.support.apiserver.inside import Inside, WithGeneration, open_kinds

APPS = "/apis/test.io/v1/namespaces/ml/apps"
STRINGS = {"type": "object", "additionalProperties": {"type": "string"}}
SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "replicas": {"type": "integer"},
                "labels": STRINGS,
                "selector": {**STRINGS, "x-kubernetes-map-type": "atomic"},
                "args": {"type": "array", "items": {"type": "string"}},
                "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                "boxes": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {"type": "object", "properties": {"name": {}, "image": {}, "env": STRINGS}},
                },
            },
        },
        "status": {"type": "object"},
    },
}


class Apps(WithGeneration):
    schema = SCHEMA


@pytest.fixture
async def inside():
    found = Inside([*open_kinds(), Kind("test.io", "v1", "apps", "App", True, Apps())])
    await found.post("/api/v1/namespaces", {"metadata": {"name": "ml"}})
    return found


async def apply(inside, manager, spec, *, name="a", force=False, query="", subresource="", **more):
    config = {"apiVersion": "test.io/v1", "kind": "App", "metadata": {"name": name, **more.pop("metadata", {})}, **more}
    if spec is not None:
        config["spec"] = spec
    target = f"{APPS}/{name}{subresource}?fieldManager={manager}{'&force=true' if force else ''}{query}"
    return await inside.patch(target, config, "apply")


def owners(body, operation=None):
    """Manager → the paths it owns."""
    found: dict[str, set[str]] = {}
    for entry in body["metadata"].get("managedFields", []):
        if operation in {None, entry["operation"]}:
            found.setdefault(entry["manager"], set()).update(paths(entry["fieldsV1"]))
    return found


def paths(fields):
    return {
        "".join(part[1:] if part.startswith("f:") else part for part in path)
        for path in FieldSet.from_fields(fields).paths()
    }


async def test_applying_creates_and_owns_exactly_what_it_says(inside):
    status, body = await apply(inside, "m1", {"replicas": 1, "labels": {"x": "1"}})
    assert (status, body["spec"]) == (201, {"replicas": 1, "labels": {"x": "1"}})
    (entry,) = body["metadata"]["managedFields"]
    assert {k: entry[k] for k in ("manager", "operation", "apiVersion", "fieldsType")} == {
        "manager": "m1",
        "operation": "Apply",
        "apiVersion": "test.io/v1",
        "fieldsType": "FieldsV1",
    }
    assert entry["fieldsV1"] == {"f:spec": {"f:replicas": {}, "f:labels": {"f:x": {}}}}


async def test_what_a_manager_leaves_out_goes_and_what_others_own_stays(inside):
    await apply(inside, "m1", {"replicas": 1, "labels": {"x": "1", "y": "1"}})
    await apply(inside, "m2", {"labels": {"y": "1"}})
    _, body = await apply(inside, "m1", {"replicas": 2})
    assert body["spec"] == {"replicas": 2, "labels": {"y": "1"}}
    assert owners(body) == {"m1": {":spec:replicas"}, "m2": {":spec:labels:y"}}


async def test_a_field_that_another_owns_is_a_conflict_unless_it_is_the_same(inside):
    await apply(inside, "m1", {"replicas": 1, "labels": {"x": "1"}})
    status, body = await apply(inside, "m2", {"replicas": 1})
    assert status == 200
    assert owners(body)["m2"] == {":spec:replicas"}
    status, body = await apply(inside, "m3", {"replicas": 3, "labels": {"x": "2"}})
    assert (status, body["reason"]) == (409, "Conflict")
    assert body["message"] == (
        'Apply failed with 3 conflicts: conflicts with "m1":\n- .spec.labels.x\n- .spec.replicas\nconflicts with "m2":\n- .spec.replicas'
    )
    assert body["details"]["causes"][0] == {
        "reason": "FieldManagerConflict",
        "message": 'conflict with "m1"',
        "field": ".spec.labels.x",
    }


async def test_list_items_are_owned_by_key_and_go_with_their_owner(inside):
    await apply(inside, "m1", {"boxes": [{"name": "a", "image": "1"}]})
    _, body = await apply(inside, "m2", {"boxes": [{"name": "b", "image": "2"}]})
    assert body["spec"]["boxes"] == [{"name": "a", "image": "1"}, {"name": "b", "image": "2"}]
    _, body = await apply(inside, "m1", {"boxes": []})
    assert body["spec"]["boxes"] == [{"name": "b", "image": "2"}]
    _, body = await apply(inside, "m3", {"boxes": [{"name": "b", "env": {"X": "1"}}]})
    assert body["spec"]["boxes"] == [{"name": "b", "image": "2", "env": {"X": "1"}}]
    status, body = await apply(inside, "m3", {"boxes": [{"name": "b", "image": "3"}]})
    assert (status, body["details"]["causes"][0]["field"]) == (409, '.spec.boxes[name="b"].image')


async def test_sets_are_shared_and_atomic_lists_and_maps_are_not(inside):
    await apply(inside, "m1", {"tags": ["x"], "args": ["1"], "selector": {"a": "1"}})
    _, body = await apply(inside, "m2", {"tags": ["y"]})
    assert body["spec"]["tags"] == ["x", "y"]
    _, body = await apply(inside, "m1", {"tags": [], "args": ["1"], "selector": {"a": "1"}})
    assert body["spec"]["tags"] == ["y"]
    for change in ({"args": ["2"]}, {"selector": {"b": "2"}}):
        status, body = await apply(inside, "m2", {"tags": ["y"], **change})
        assert (status, body["details"]["causes"][0]["field"]) == (409, f".spec.{next(iter(change))}")


async def test_an_update_takes_ownership_and_its_owner_is_told_in_the_conflict(inside):
    await apply(inside, "m1", {"replicas": 1})
    status, body = await inside.patch(f"{APPS}/a?fieldManager=hand", {"spec": {"replicas": 5}})
    assert owners(body) == {"hand": {":spec:replicas"}}
    status, body = await apply(inside, "m1", {"replicas": 1})
    assert status == 409
    assert body["message"] == 'Apply failed with 1 conflict: conflict with "hand" using test.io/v1: .spec.replicas'


async def test_status_is_owned_at_its_own_door(inside):
    await apply(inside, "m1", {"replicas": 1})
    _, body = await inside.patch(
        f"{APPS}/a/status?fieldManager=loop", {"status": {"ready": 1}, "spec": {"replicas": 9}}
    )
    (entry,) = [one for one in body["metadata"]["managedFields"] if one["manager"] == "loop"]
    assert (entry["subresource"], entry["fieldsV1"]) == ("status", {"f:status": {".": {}, "f:ready": {}}})
    status, body = await apply(inside, "m1", {"replicas": 2}, status={"ready": 2})
    assert (status, body["status"]) == (200, {"ready": 1})
    status, body = await apply(inside, "m2", {"replicas": 7}, subresource="/status", status={"other": 1})
    assert (status, body["spec"]["replicas"], body["status"]) == (200, 2, {"ready": 1, "other": 1})


async def test_what_was_there_before_the_first_apply_belongs_to_who_came_before(inside):
    await inside.post(f"{APPS}?fieldManager=x", {"metadata": {"name": "a"}, "spec": {"replicas": 1}})
    await inside.patch(f"{APPS}/a", {"metadata": {"managedFields": [{}]}})
    _, body = await inside.get(f"{APPS}/a")
    assert "managedFields" not in body["metadata"]
    status, body = await apply(inside, "m1", {"replicas": 2})
    assert (status, 'conflict with "before-first-apply"' in body["message"]) == (409, True)


async def test_kubectl_may_take_over_what_its_annotation_says_it_applied(inside):
    last = json.dumps({"metadata": {"name": "a"}, "spec": {"replicas": 1}})
    annotations = {managed.LAST_APPLIED: last}
    await inside.post(
        f"{APPS}?fieldManager=kubectl-client-side-apply",
        {"metadata": {"name": "a", "annotations": annotations}, "spec": {"replicas": 1, "labels": {"x": "1"}}},
    )
    status, body = await apply(inside, "kubectl", {"replicas": 2})
    assert (status, body["spec"]["replicas"]) == (200, 2)
    config = json.loads(body["metadata"]["annotations"][managed.LAST_APPLIED])
    assert config["spec"] == {"replicas": 2}
    status, _ = await apply(inside, "kubectl", {"replicas": 2, "labels": {"x": "2"}})
    assert status == 409


@pytest.mark.parametrize(
    ("target", "config", "status"),
    [
        (f"{APPS}/a", {"apiVersion": "test.io/v1", "kind": "App"}, 422),
        (f"{APPS}/a?fieldManager=m", {"kind": "App"}, 400),
        (f"{APPS}/a?fieldManager=m", {"apiVersion": "test.io/v1"}, 400),
        (f"{APPS}/a?fieldManager=m", {"apiVersion": "test.io/v2", "kind": "App"}, 400),
        (f"{APPS}/a?fieldManager=m", ["x"], 400),
        (f"{APPS}/a?fieldManager=m", {"apiVersion": "test.io/v1", "kind": "App", "metadata": {"name": "b"}}, 400),
        (
            f"{APPS}/a?fieldManager=m",
            {"apiVersion": "test.io/v1", "kind": "App", "metadata": {"managedFields": [{"manager": "x"}]}},
            400,
        ),
        (f"{APPS}/a?fieldManager=m", {"apiVersion": "test.io/v1", "kind": "App", "metadata": {"bogus": 1}}, 500),
        (f"{APPS}/a/status?fieldManager=m", {"apiVersion": "test.io/v1", "kind": "App"}, 404),
    ],
)
async def test_what_cannot_be_applied_is_refused(inside, target, config, status):
    assert (await inside.patch(target, config, "apply"))[0] == status
