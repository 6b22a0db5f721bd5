"""The local copy stays true through every way a watch can go wrong. In virtual time, on a fake source."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from random import Random
from typing import Any

import msgspec
import pytest

from fairlead.kube import errors
from fairlead.kube.core import Pod
from fairlead.kube.informer import Change, Informer
from fairlead.kube.listing import Listing
from fairlead.kube.resources import PODS, Resource
from fairlead.kube.watching import Bookmark, WatchEvent
from tests.support.kube import VirtualTime, settle


def pod(name: str, version: int, *, uid: str = "", node: str = "") -> Pod:
    metadata = {"name": name, "namespace": "ml", "uid": uid or f"uid-{name}", "resourceVersion": str(version)}
    return msgspec.convert({"metadata": metadata, "spec": {"nodeName": node}}, Pod)


class FakeSource:
    """Lists what `pods` holds; a watch yields what the test puts in, `None` ends it, an error is raised."""

    def __init__(self) -> None:
        self.pods: list[Pod] = []
        self.version = "10"
        self.lists = 0
        self.watched_from: list[str] = []
        self.list_error: errors.ApiError | None = None
        self.stream: asyncio.Queue[WatchEvent[Any] | Bookmark | errors.ApiError | None] = asyncio.Queue()

    async def list(
        self, resource: Resource[Any], namespace=None, *, labels=None, fields=None, each=None
    ) -> Listing[Any]:
        self.lists += 1
        if self.list_error:
            raise self.list_error
        if each is not None:
            for one in self.pods:
                each(one)
            return Listing(items=[], resource_version=self.version)
        return Listing(items=[*self.pods], resource_version=self.version)

    async def watch(
        self, resource: Resource[Any], namespace=None, *, resource_version: str, labels=None, fields=None
    ) -> AsyncIterator[WatchEvent[Any] | Bookmark]:
        self.watched_from.append(resource_version)
        while (item := await self.stream.get()) is not None:
            if isinstance(item, errors.ApiError):
                raise item
            yield item

    def say(self, kind: str, obj: Pod) -> None:
        self.stream.put_nowait(WatchEvent(kind, obj))


@pytest.fixture
def source() -> FakeSource:
    return FakeSource()


@pytest.fixture
def time() -> VirtualTime:
    return VirtualTime()


@pytest.fixture
async def informer(source: FakeSource, time: VirtualTime) -> Informer[Pod]:
    return Informer(
        source,
        PODS,
        indexes={"node": lambda pod: [pod.spec.node_name] if pod.spec.node_name else []},
        clock=time.clock,
        sleep=time.sleep,
        random=Random(1),
    )


@contextlib.asynccontextmanager
async def running(informer: Informer[Pod]) -> AsyncIterator[list[tuple[str, str, str | None, str | None]]]:
    changes: list[tuple[str, str, str | None, str | None]] = []

    def note(change: Change[Pod]) -> None:
        version: Callable[[Pod | None], str | None] = lambda obj: obj.metadata.resource_version if obj else None  # noqa: E731
        changes.append((change.type, change.key, version(change.old), version(change.new)))

    informer.subscribe(note)
    task = asyncio.create_task(informer.run())
    await settle()
    yield changes
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_it_lists_then_follows(informer, source):
    source.pods = [pod("a", 5)]
    async with running(informer) as changes:
        assert informer.synced.is_set()
        assert source.watched_from == ["10"]
        source.say("ADDED", pod("b", 11))
        source.say("MODIFIED", pod("a", 12))
        source.say("DELETED", pod("b", 13))
        await settle()
    assert changes == [
        ("ADDED", "ml/a", None, "5"),
        ("ADDED", "ml/b", None, "11"),
        ("MODIFIED", "ml/a", "5", "12"),
        ("DELETED", "ml/b", "13", None),
    ]


async def test_a_watch_that_ends_is_resumed_where_it_stopped_even_after_a_bookmark_only(informer, source, time):
    async with running(informer):
        source.stream.put_nowait(Bookmark("40"))
        source.stream.put_nowait(None)
        await settle()
        assert source.watched_from == ["10", "40"]
        assert source.lists == 1
        assert time.slept == []


async def test_it_says_when_the_watch_has_reached_a_version_and_not_what_a_write_returned(informer, source):
    async with running(informer):
        waiting = asyncio.create_task(informer.reached("12"))
        informer.note(pod("a", 12))
        source.say("ADDED", pod("b", 11))
        await settle()
        assert not waiting.done()
        source.say("ADDED", pod("a", 12))
        await waiting
        await informer.reached("12")
        bookmarked = asyncio.create_task(informer.reached("30"))
        source.stream.put_nowait(Bookmark("31"))
        await bookmarked


async def test_it_lists_again_beside_its_watch_and_older_changes_that_come_later_count_for_nothing(informer, source):
    source.pods = [pod("a", 5), pod("gone", 6)]
    async with running(informer) as changes:
        source.pods, source.version = [pod("a", 20)], "20"
        await informer.relist()
        source.say("MODIFIED", pod("a", 12))
        source.say("MODIFIED", pod("gone", 13))
        source.say("DELETED", pod("gone", 14))
        await settle()
        assert [each.metadata.resource_version for each in informer.all()] == ["20"]
        assert source.watched_from == ["10"]
    assert changes[2:] == [("DELETED", "ml/gone", "6", None), ("MODIFIED", "ml/a", "5", "20")]


async def test_after_410_it_lists_again_and_publishes_only_the_difference(informer, source, time):
    source.pods = [pod("same", 1), pod("changed", 2), pod("gone", 3), pod("remade", 4)]
    async with running(informer) as changes:
        changes.clear()
        source.pods = [pod("same", 1), pod("changed", 20), pod("remade", 21, uid="other"), pod("new", 22)]
        source.version = "30"
        source.stream.put_nowait(errors.Gone("too old resource version", status=410))
        await settle()
        await time.advance(1)
        assert source.watched_from == ["10", "30"]
    assert sorted(changes) == [
        ("ADDED", "ml/new", None, "22"),
        ("ADDED", "ml/remade", None, "21"),
        ("DELETED", "ml/gone", "3", None),
        ("DELETED", "ml/remade", "4", None),
        ("MODIFIED", "ml/changed", "2", "20"),
    ]


async def test_a_410_after_an_outage_is_answered_by_a_list_at_once(informer, source, time):
    source.pods = [pod("a", 5)]
    async with running(informer):
        for _ in range(6):  # while the apiserver restarts
            source.stream.put_nowait(errors.Unreachable("connection refused"))
        await time.advance(60)
        assert informer.failures == 6
        source.pods, source.version = [pod("b", 40)], "50"
        source.stream.put_nowait(errors.Gone("too old resource version", status=410))
        await settle()  # no time passes
        assert [one.metadata.name for one in informer.all()] == ["b"]
        assert source.watched_from[-1] == "50"


async def test_an_apiserver_that_is_down_is_retried_with_backoff_until_it_is_up(informer, source, time):
    source.list_error = errors.Unreachable("connection refused")
    async with running(informer):
        await time.advance(300)
        attempts = source.lists
        assert 8 <= attempts <= 25
        assert max(time.slept) <= 45
        assert informer.failures == attempts
        assert not informer.synced.is_set()
        source.list_error = None
        await time.advance(60)
        assert informer.synced.is_set()


async def test_a_server_that_ends_every_watch_at_once_is_not_hammered(informer, source, time):
    async with running(informer):
        for _ in range(5):
            source.stream.put_nowait(None)
        await settle()
        assert len(source.watched_from) == 1
        await time.advance(60)
        assert len(source.watched_from) == 6
        assert time.slept == sorted(time.slept)


async def test_it_reads_its_own_writes_and_no_older_event_undoes_them(informer, source):
    source.pods = [pod("a", 5)]
    async with running(informer) as changes:
        informer.note(pod("a", 15, node="n"))
        assert informer.get("ml/a").spec.node_name == "n"
        source.say("MODIFIED", pod("a", 12))
        source.say("MODIFIED", pod("a", 15, node="n"))
        await settle()
        assert informer.get("ml/a").spec.node_name == "n"
        informer.note(pod("a", 3))
        assert informer.get("ml/a").metadata.resource_version == "15"
    assert [change[0] for change in changes] == ["ADDED", "MODIFIED"]


async def test_a_late_note_does_not_restore_a_deleted_object(informer, source):
    source.pods = [pod("a", 5)]
    async with running(informer):
        source.say("DELETED", pod("a", 20))
        await settle()
        informer.note(pod("a", 15))
        assert informer.get("ml/a") is None
        source.say("ADDED", pod("a", 21, uid="second"))
        await settle()
        assert informer.get("ml/a").metadata.uid == "second"


async def test_what_we_wrote_after_the_list_was_made_survives_the_relist(informer, source, time):
    async with running(informer):
        informer.note(pod("mine", 35))
        source.version = "30"
        source.stream.put_nowait(errors.Gone("too old", status=410))
        await settle()
        await time.advance(1)
        assert "ml/mine" in informer


async def test_indexes_follow_the_objects(informer, source):
    source.pods = [pod("b", 5, node="n1"), pod("a", 6, node="n1")]
    async with running(informer):
        assert [found.metadata.name for found in informer.by_index("node", "n1")] == ["a", "b"]
        source.say("MODIFIED", pod("a", 11, node="n2"))
        source.say("DELETED", pod("b", 12, node="n1"))
        await settle()
        assert informer.by_index("node", "n1") == []
        assert [found.metadata.name for found in informer.by_index("node", "n2")] == ["a"]


async def test_a_handler_that_fails_does_not_stop_the_others(informer, source):
    def fail(change: Change[Pod]) -> None:
        raise RuntimeError("a bug")

    informer.subscribe(fail)
    async with running(informer) as changes:
        source.say("ADDED", pod("a", 11))
        source.say("ADDED", pod("b", 12))
        await settle()
    assert len(changes) == 2


async def test_handlers_get_the_whole_object_though_less_of_it_is_stored(source, time):
    def trim(found: Pod) -> Pod:
        return msgspec.structs.replace(found, spec=type(found.spec)())

    informer = Informer(source, PODS, transform=trim, clock=time.clock, sleep=time.sleep, random=Random(1))
    seen: list[tuple[str, str]] = []
    informer.subscribe(lambda change: seen.append((change.type, change.object.spec.node_name)))
    source.pods = [pod("a", 5, node="n1"), pod("gone", 6, node="n1")]
    async with running(informer):
        source.say("MODIFIED", pod("a", 12, node="n2"))
        source.pods = [pod("a", 12, node="n2")]
        source.version = "20"
        source.stream.put_nowait(errors.Gone("too old", status=410, reason="Expired"))
        await settle()
        await time.advance(60.0)
        assert [found.spec.node_name for found in informer.all()] == [""]
    assert seen[:3] == [("ADDED", "n1"), ("ADDED", "n1"), ("MODIFIED", "n2")]
    assert seen[3][0] == "DELETED"


async def test_a_watch_cut_off_in_the_middle_is_resumed_after_a_short_wait(informer, source, time):
    async with running(informer) as changes:
        source.say("ADDED", pod("a", 11))
        source.stream.put_nowait(errors.Unreachable("reset by peer"))
        await settle()
        await time.advance(1)
        source.say("ADDED", pod("b", 12))
        await settle()
        assert source.watched_from == ["10", "11"]
        assert [change[1] for change in changes] == ["ml/a", "ml/b"]
