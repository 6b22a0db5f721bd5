"""WATCH: what a watcher sees, from when, and how it ends. Time is real here but nothing waits for it to pass."""

import asyncio
import json
from random import Random

import pytest

from fairlead.sandbox.apiserver.store import WatchLag
from fairlead.sandbox.apiserver.wire.exchange import Stream
from tests.support.apiserver.inside import Inside

CM = "/api/v1/namespaces/ml/configmaps"


class Watcher:
    """Reads a watch, event by event."""

    def __init__(self, stream: Stream) -> None:
        self._chunks = stream.chunks
        self._lines: list[bytes] = []

    async def next(self):
        async with asyncio.timeout(5):
            while not self._lines:
                self._lines = (await anext(self._chunks)).splitlines()
        return json.loads(self._lines.pop(0))

    async def take(self, count):
        found = [await self.next() for _ in range(count)]
        return [(event["type"], event["object"].get("metadata", {}).get("name")) for event in found]

    async def ends(self):
        assert not self._lines
        async with asyncio.timeout(5):
            with pytest.raises(StopAsyncIteration):
                await anext(self._chunks)

    async def close(self):
        await self._chunks.aclose()


async def watch(inside: Inside, query: str = "", target: str = CM, **more) -> Watcher:
    return Watcher(await inside.watch(f"{target}?watch=true&{query}", **more))


async def put(inside, name, labels=None, **data):
    body = {"metadata": {"name": name, "labels": labels or {}}, "data": data}
    status, found = await inside.put(f"{CM}/{name}", body)
    if status == 404:
        status, found = await inside.post(CM, body)
    assert status in {200, 201}
    return found


async def test_a_watch_without_a_revision_begins_with_what_is_there(inside):
    await put(inside, "b")
    await put(inside, "a")
    watcher = await watch(inside)
    assert await watcher.take(2) == [("ADDED", "a"), ("ADDED", "b")]
    await put(inside, "b", x="1")
    await inside.delete(f"{CM}/a")
    assert await watcher.take(2) == [("MODIFIED", "b"), ("DELETED", "a")]
    await watcher.close()


async def test_a_watch_from_a_revision_tells_all_since_then_and_nothing_before(inside):
    await put(inside, "a")
    then = inside.state.store.revision
    await put(inside, "a", x="1")
    await put(inside, "b")
    watcher = await watch(inside, f"resourceVersion={then}")
    assert await watcher.take(2) == [("MODIFIED", "a"), ("ADDED", "b")]
    await put(inside, "c")
    assert await watcher.take(1) == [("ADDED", "c")]
    await watcher.close()


async def test_a_selector_turns_labels_that_come_and_go_into_added_and_deleted(inside):
    await put(inside, "a")
    watcher = await watch(inside, f"labelSelector=on&resourceVersion={inside.state.store.revision}")
    await put(inside, "a", {"on": "1"}, v="1")
    await put(inside, "a", {"on": "1"}, v="2")
    left = await put(inside, "a", {}, v="3")
    await put(inside, "a", {}, v="4")
    await put(inside, "b", {"on": "1"})
    added, modified, deleted, other = [await watcher.next() for _ in range(4)]
    assert [added["type"], modified["type"], deleted["type"]] == ["ADDED", "MODIFIED", "DELETED"]
    assert deleted["object"]["data"] == {"v": "2"}, "the last state that matched"
    assert deleted["object"]["metadata"]["resourceVersion"] == left["metadata"]["resourceVersion"]
    assert other["object"]["metadata"]["name"] == "b"
    await watcher.close()


async def test_initial_events_end_with_a_bookmark_that_says_so(inside):
    await put(inside, "a")
    query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    watcher = await watch(inside, query)
    assert await watcher.take(1) == [("ADDED", "a")]
    bookmark = await watcher.next()
    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["metadata"] == {
        "resourceVersion": str(inside.state.store.revision),
        "annotations": {"k8s.io/initial-events-end": "true"},
    }
    await put(inside, "b")
    assert await watcher.take(1) == [("ADDED", "b")]
    await watcher.close()


async def test_bookmarks_tell_the_revision_though_nothing_of_the_kind_changed(inside):
    inside.state.bookmark_interval_s = 0.01
    watcher = await watch(inside, f"resourceVersion={inside.state.store.revision}&allowWatchBookmarks=true")
    await inside.post("/api/v1/namespaces/ml/secrets", {"metadata": {"name": "s"}})
    event = await watcher.next()
    assert event["type"] == "BOOKMARK"
    assert event["object"]["metadata"]["resourceVersion"] == str(inside.state.store.revision)
    await watcher.close()


SECRETS = "/api/v1/namespaces/ml/secrets"


async def test_watch_caches_lag_each_by_itself_so_that_a_later_write_of_another_resource_is_seen_first(inside):
    inside.state.lag = WatchLag(0.05, least_s=0.05, random=Random(1), resources=("configmaps",))
    inside.state.bookmark_interval_s = 0.01
    then = inside.state.store.revision
    query = f"resourceVersion={then}&allowWatchBookmarks=true"
    late, prompt = await watch(inside, query), await watch(inside, query, SECRETS)
    await put(inside, "a")
    await put(inside, "b")
    await inside.post(SECRETS, {"metadata": {"name": "s"}})
    assert await prompt.take(1) == [("ADDED", "s")]
    before = await late.next()
    assert (before["type"], before["object"]["metadata"]["resourceVersion"]) == ("BOOKMARK", str(then))
    resumed = await watch(inside, query)
    for watcher in (late, resumed):
        seen: list[str] = []
        while len(seen) < 2:
            event = await watcher.next()
            if event["type"] != "BOOKMARK":
                seen.append(event["object"]["metadata"]["name"])
        assert seen == ["a", "b"]
    assert len((await inside.get(CM))[1]["items"]) == 2
    for watcher in (late, resumed, prompt):
        await watcher.close()


async def test_a_compacted_revision_is_an_error_event_and_the_end(inside):
    then = inside.state.store.revision
    await put(inside, "a")
    inside.state.store.compact()
    watcher = await watch(inside, f"resourceVersion={then}")
    event = await watcher.next()
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
    await watcher.ends()


async def test_a_watcher_that_does_not_read_is_let_go(inside):
    inside.state.watch_queue_limit = 2
    watcher = await watch(inside, f"resourceVersion={inside.state.store.revision}")
    first = asyncio.create_task(watcher.next())
    await asyncio.sleep(0)
    for index in range(5):
        await put(inside, f"c{index}")
    assert (await first)["object"]["metadata"]["name"] == "c0"
    assert await watcher.take(1) == [("ADDED", "c1")]
    await watcher.ends()


async def test_the_watches_of_a_kind_that_is_no_longer_served_end(inside):
    watcher = await watch(inside, target="/apis/example.com/v1/widgets")
    ending = asyncio.create_task(watcher.ends())
    await asyncio.sleep(0)
    inside.state.registry.remove("example.com", "v1", "widgets")
    await ending
