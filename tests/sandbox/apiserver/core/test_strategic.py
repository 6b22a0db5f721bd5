"""Strategic merge patch on a pod-like schema: keys, directives, order."""

import copy

import pytest

from fairlead.sandbox.apiserver.patches import strategic

MERGE = {"x-kubernetes-patch-strategy": "merge", "x-kubernetes-patch-merge-key": "name"}
SCHEMA = {
    "properties": {
        "spec": {
            "properties": {
                "containers": {
                    **MERGE,
                    "items": {
                        "properties": {
                            "env": {**MERGE, "items": {}},
                            "args": {},
                            "ports": {**MERGE, "x-kubernetes-patch-merge-key": "containerPort", "items": {}},
                        }
                    },
                },
                "finalizers": {"x-kubernetes-patch-strategy": "merge", "items": {"type": "string"}},
                "strategy": {"x-kubernetes-patch-strategy": "retainKeys"},
                "selector": {"x-kubernetes-patch-strategy": "replace"},
                "volumes": {**MERGE, "x-kubernetes-patch-strategy": "merge,retainKeys", "items": {}},
            }
        }
    }
}


def patched(spec, patch):
    document, given = {"spec": copy.deepcopy(spec)}, {"spec": copy.deepcopy(patch)}
    outcome = strategic.apply(document, given, SCHEMA)["spec"]
    assert (document, given) == ({"spec": spec}, {"spec": patch}), "the inputs stay as they were"
    return outcome


def box(name, **more):
    return {"name": name, **more}


def test_list_elements_merge_by_their_key():
    outcome = patched(
        {"containers": [box("a", image="1", env=[box("X", value="1")]), box("b")]},
        {"containers": [box("a", image="2", env=[box("Y", value="2")])]},
    )
    assert outcome["containers"] == [box("a", image="2", env=[box("Y", value="2"), box("X", value="1")]), box("b")]


def test_new_elements_come_before_those_that_only_the_server_has():
    outcome = patched({"containers": [box("a"), box("b")]}, {"containers": [box("c"), box("b", x=1)]})
    assert [one["name"] for one in outcome["containers"]] == ["c", "a", "b"]


def test_an_element_is_deleted_by_directive():
    outcome = patched({"containers": [box("a"), box("b")]}, {"containers": [{"name": "a", "$patch": "delete"}]})
    assert outcome["containers"] == [box("b")]


def test_a_list_is_replaced_by_directive():
    outcome = patched({"containers": [box("a"), box("b")]}, {"containers": [{"$patch": "replace"}, box("c")]})
    assert outcome["containers"] == [box("c")]


def test_a_map_is_replaced_or_emptied_by_directive():
    assert patched({"strategy": {"a": 1}}, {"strategy": {"$patch": "replace", "b": 2}})["strategy"] == {"b": 2}
    assert patched({"strategy": {"a": 1}}, {"strategy": {"$patch": "delete"}})["strategy"] == {}


def test_null_removes_a_field_and_is_not_stored():
    assert patched({"a": 1, "b": {"c": 1}}, {"a": None, "b": {"c": None}, "n": None, "d": {"e": None}}) == {
        "b": {},
        "d": {},
    }


def test_primitives_are_added_once_and_deleted_by_directive():
    assert patched({"finalizers": ["a"]}, {"finalizers": ["b", "a"]})["finalizers"] == ["b", "a"]
    outcome = patched({"finalizers": ["a", "b"]}, {"$deleteFromPrimitiveList/finalizers": ["a"]})
    assert outcome["finalizers"] == ["b"]


def test_the_order_directive_orders_what_it_names_and_leaves_the_rest_in_place():
    outcome = patched(
        {"containers": [box("a"), box("b"), box("server")]},
        {
            "$setElementOrder/containers": [{"name": "b"}, {"name": "c"}, {"name": "a"}],
            "containers": [box("c", image="1")],
        },
    )
    assert [one["name"] for one in outcome["containers"]] == ["b", "c", "a", "server"]


def test_retained_keys_are_all_that_stays():
    outcome = patched(
        {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"x": 1}}},
        {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}},
    )
    assert outcome["strategy"] == {"type": "Recreate"}


@pytest.mark.parametrize(
    "patch",
    [
        {"containers": [{"image": "no-name"}]},
        {"strategy": {"$patch": "explode"}},
        {"containers": [{"name": "a", "$patch": "explode"}]},
        {"containers": [{"$patch": "delete"}]},
        {"$setElementOrder/containers": "a"},
        {"$deleteFromPrimitiveList/finalizers": "a"},
    ],
)
def test_nonsense_is_refused(patch):
    with pytest.raises(strategic.StrategicPatchError):
        patched({"containers": [box("a")], "strategy": {}, "finalizers": []}, patch)
