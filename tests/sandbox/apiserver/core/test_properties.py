"""Whatever happens: a watcher that follows a list knows what a later list shows, and ownership says what is there."""

import asyncio
import json
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.sandbox.apiserver.kinds.base import Kind
from fairlead.sandbox.apiserver.ownership import typed
from fairlead.sandbox.apiserver.ownership.fieldsets import FieldSet
from fairlead.sandbox.apiserver.store import WatchLag
from tests.support.apiserver.inside import Inside, WithGeneration, open_kinds
from tests.support.engine.examples import examples

CM = "/api/v1/namespaces/ml/configmaps"
STEP = st.tuples(st.sampled_from("abc"), st.sampled_from(["on", "off", "delete", "read"]), st.integers(0, 2))


async def follow(steps, selector, lag_s):
    """Lists, then applies what a watch from there says at every "read"; the end must agree with a list."""
    inside = Inside()
    if lag_s:
        inside.state.lag = WatchLag(lag_s, random=Random(1))
    inside.state.bookmark_interval_s = 0
    await inside.post("/api/v1/namespaces", {"metadata": {"name": "ml"}})
    query = f"labelSelector={selector}" if selector else ""
    known: dict[str, str] = {}
    _, listed = await inside.get(f"{CM}?{query}")
    revision = listed["metadata"]["resourceVersion"]
    for name, what, value in [*steps, ("a", "read", 0)]:
        if what == "read":
            query_now = f"watch=true&allowWatchBookmarks=true&resourceVersion={revision}&{query}"
            stream = await inside.watch(f"{CM}?{query_now}")
            synced = False
            while not synced:
                for line in (await anext(stream.chunks)).splitlines():
                    event = json.loads(line)
                    metadata = event["object"]["metadata"]
                    revision = metadata["resourceVersion"]
                    if event["type"] == "BOOKMARK":
                        synced = int(revision) == inside.state.store.revision  # all that has happened
                        if synced:
                            break
                        continue
                    if event["type"] == "DELETED":
                        assert known.pop(metadata["name"])
                    else:
                        assert (metadata["name"] in known) == (event["type"] == "MODIFIED")
                        known[metadata["name"]] = revision
            await stream.chunks.aclose()
        elif what == "delete":
            await inside.delete(f"{CM}/{name}")
        else:
            body = {"metadata": {"name": name, "labels": {"x": what}}, "data": {"v": str(value)}}
            if (await inside.put(f"{CM}/{name}", body))[0] == 404:
                await inside.post(CM, body)
    _, listed = await inside.get(f"{CM}?{query}")
    assert known == {one["metadata"]["name"]: one["metadata"]["resourceVersion"] for one in listed["items"]}


@settings(deadline=None, max_examples=examples(60))
@given(st.lists(STEP, max_size=25), st.sampled_from(["", "x%3Don", "x%21%3Doff"]), st.sampled_from([0, 0.002]))
def test_following_a_watch_is_as_good_as_listing_again(steps, selector, lag_s):
    asyncio.run(follow(steps, selector, lag_s))


SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "n": {"type": "integer"},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                "boxes": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {"type": "object", "properties": {"name": {}, "v": {}}},
                },
            },
        }
    },
}
WORD = st.sampled_from("xyz")
SPEC = st.fixed_dictionaries(
    {},
    optional={
        "n": st.integers(0, 2),
        "labels": st.dictionaries(WORD, WORD, min_size=1, max_size=2),
        "tags": st.lists(WORD, unique=True, min_size=1, max_size=3),
        "boxes": st.lists(
            st.fixed_dictionaries({"name": WORD}, optional={"v": st.integers(0, 1)}),
            unique_by=lambda box: box["name"],
            min_size=1,
            max_size=3,
        ),
    },
)


class Apps(WithGeneration):
    schema = SCHEMA


async def apply_all(applications):
    inside = Inside([*open_kinds(), Kind("test.io", "v1", "apps", "App", False, Apps())])
    for manager, spec, force in applications:
        config = {"apiVersion": "test.io/v1", "kind": "App", "metadata": {"name": "a"}, "spec": spec}
        target = f"/apis/test.io/v1/apps/a?fieldManager={manager}{'&force=true' if force else ''}"
        _, before = await inside.get("/apis/test.io/v1/apps/a")
        status, body = await inside.patch(target, config, "apply")
        if status == 409:
            assert not force, body
            assert (await inside.get("/apis/test.io/v1/apps/a"))[1] == before, "a refused apply changes nothing"
            continue
        assert status in {200, 201}, body
        revision = inside.state.store.revision
        assert await inside.patch(target, config, "apply") == (200, body), "the same again is no change"
        assert inside.state.store.revision == revision
        has = typed.set_of({"metadata": {}, "spec": body.get("spec", {})}, SCHEMA)
        for entry in body["metadata"].get("managedFields", []):
            owned = FieldSet.from_fields(entry["fieldsV1"])
            assert not owned.difference(has).difference(FieldSet.of(("f:spec",))), (
                "a field that does not exist is owned"
            )
        for path in typed.set_of({"metadata": {}, "spec": spec}, SCHEMA).paths():
            if path == ("f:spec",):
                continue  # an empty one: owned, and no leaf of what others have put in
            assert FieldSet.of(path).intersection(has), "all that was applied is there"


@settings(deadline=None, max_examples=examples(100))
@given(st.lists(st.tuples(st.sampled_from(["m1", "m2", "m3"]), SPEC, st.booleans()), max_size=8))
def test_applying_is_idempotent_and_ownership_is_of_what_is_there(applications):
    asyncio.run(apply_all(applications))
