"""Watch events late, twice, out of order and with gaps: the copy ends as the cluster is, and no device is ever in two claims by it.

One history of claims, which are allocated, freed, deleted and recreated under their names, never two with one device at a time.
*Possible* is what an apiserver and this program's own writes can bring about: watches that break and resume, bookmarks, 410, lists
beside a watch, answers to writes that come at any time later. *Impossible* is any event at any time, any number of times, and then
a list.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import msgspec
import pytest

from fairlead.api import names
from fairlead.controller.watch.caches import Caches
from fairlead.kube import errors, store
from fairlead.kube.informer import Change
from fairlead.kube.listing import Listing
from fairlead.kube.resource import ResourceClaim
from fairlead.kube.watching import Bookmark, WatchEvent
from tests.support.kube import VirtualTime, settle

DEVICES, CLAIMS, STEPS = 4, 6, 120
Event = tuple[int, str, ResourceClaim]  # version


def claim(name: str, uid: str, version: int, device: int | None) -> ResourceClaim:
    result = {"request": "gpu", "driver": names.DRIVER, "pool": "n1", "device": f"gpu-{device}"}
    status = {} if device is None else {"allocation": {"devices": {"results": [result]}}}
    metadata = {"namespace": "ml", "name": name, "uid": uid, "resourceVersion": str(version)}
    return msgspec.convert({"metadata": metadata, "status": status}, ResourceClaim)


def history(random: Random) -> list[Event]:
    """Each version one event."""
    held: dict[str, tuple[str, int | None]] = {}  # name: UID, device
    events: list[Event] = []
    for version in range(1, STEPS + 1):
        name = f"c{random.randrange(CLAIMS)}"
        free = sorted(set(range(DEVICES)) - {device for _, device in held.values()})
        if name not in held:
            held[name] = (f"uid-{version}", None)
            events.append((version, "ADDED", claim(name, *_at(held[name], version))))
            continue
        uid, device = held[name]
        if random.random() < 0.3:
            del held[name]
            events.append((version, "DELETED", claim(name, uid, version, device)))
            continue
        held[name] = (uid, random.choice(free) if device is None and free else None)
        events.append((version, "MODIFIED", claim(name, *_at(held[name], version))))
    return events


def _at(known: tuple[str, int | None], version: int) -> tuple[str, int, int | None]:
    return known[0], version, known[1]


def after(events: list[Event], version: int) -> dict[str, ResourceClaim]:
    """What the cluster has at that version."""
    found: dict[str, ResourceClaim] = {}
    for at, kind, obj in events:
        if at <= version:
            found[obj.metadata.name] = obj
            if kind == "DELETED":
                del found[obj.metadata.name]
    return found


class Apiserver:
    """Shows its history up to `now`. `cut` ends the watch, `too_old` with 410."""

    def __init__(self, events: list[Event]) -> None:
        self.events = events
        self.now = 0
        self._moved = asyncio.Event()
        self._end: Exception | None = None
        self._bookmarks = 0

    def move(self, steps: int) -> None:
        self.now = min(len(self.events), self.now + steps)
        self._wake()

    def bookmark(self) -> None:
        self._bookmarks += 1
        self._wake()

    def cut(self, error: Exception) -> None:
        self._end = error
        self._wake()

    def _wake(self) -> None:
        self._moved.set()

    async def list(self, resource: Any, namespace: Any = None, *, each: Any = None, **_: Any) -> Listing[Any]:
        version, items = self.now, list(after(self.events, self.now).values())
        await asyncio.sleep(0)  # what the list says may be old when it comes
        if each is not None:
            for one in items:
                each(one)
            items = []
        return Listing(items=items, resource_version=str(version))

    async def watch(
        self, resource: Any, namespace: Any = None, *, resource_version: str, **_: Any
    ) -> AsyncIterator[Any]:
        sent = int(resource_version)
        while True:
            for version, kind, obj in self.events[sent : self.now]:
                sent = version
                yield WatchEvent(kind, obj)
            if self._bookmarks:
                self._bookmarks -= 1
                yield Bookmark(str(sent))
            if (error := self._end) is not None:
                self._end = None
                raise error
            self._moved.clear()
            await self._moved.wait()


class Judge:
    """At every change: no claim goes back in time, and no device of the inventory is in two claims."""

    def __init__(self, caches: Caches) -> None:
        self._caches = caches
        self._seen: dict[str, int] = {}
        self.copy: dict[str, str] = {}  # what the changes, one after the other, come to
        self.faults: list[str] = []  # an exception would stay in the store

    def __call__(self, change: Change[ResourceClaim]) -> None:
        version = int(change.object.metadata.resource_version)
        uid = change.object.metadata.uid
        if version < self._seen.get(uid, 0) or (change.old is None) != (change.key not in self.copy):
            self.faults.append(f"{change.type} {change.key} {uid}@{version}, was @{self._seen.get(uid)}")
        self._seen[uid] = version
        if change.new is None:
            self.copy.pop(change.key, None)
        else:
            self.copy[change.key] = f"{change.new.metadata.uid}@{version}"

    def holders(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for held in self._caches.tables.inventory.claims():
            for each in held.devices:
                found.setdefault(each.ref.device, []).append(held.uid)
        return found


@contextlib.asynccontextmanager
async def watching(source: Any, random: Random) -> AsyncIterator[tuple[Caches, Judge, VirtualTime]]:
    time = VirtualTime()
    caches = Caches(source, (names.DRIVER,))
    informer = caches.claims
    informer._clock, informer._sleep, informer._random = time.clock, time.sleep, random
    judge = Judge(caches)
    informer.subscribe(judge)
    task = asyncio.create_task(informer.run())
    await settle()
    try:
        yield caches, judge, time
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def same(caches: Caches, judge: Judge, events: list[Event]) -> None:
    wanted = after(events, len(events))
    assert {one.metadata.name: one for one in caches.claims.all()} == wanted
    assert judge.copy == {f"ml/{n}": f"{c.metadata.uid}@{c.metadata.resource_version}" for n, c in wanted.items()}
    held = {c.metadata.uid for c in wanted.values() if c.status.allocation is not None}
    assert {each.uid for each in caches.tables.inventory.claims()} == held
    assert all(len(uids) == 1 for uids in judge.holders().values())
    assert judge.faults == []


@pytest.fixture(autouse=True)
def _few_tombstones(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after thousands of deletions."""
    monkeypatch.setattr(store, "TOMBSTONES_MAX", 2)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("seed", range(20))
async def test_what_an_apiserver_can_bring_about_ends_in_the_right_copy(seed: int) -> None:
    random = Random(seed)
    events = history(random)
    source = Apiserver(events)
    noted: set[str] = set()
    async with watching(source, random) as (caches, judge, time):
        while source.now < len(events):
            step = random.random()
            if step < 0.5:
                source.move(random.randrange(1, 6))
            elif step < 0.6:
                source.bookmark()
            elif step < 0.7:
                source.cut(errors.Unreachable("reset by peer"))
            elif step < 0.75:
                source.cut(errors.Gone("too old resource version", status=410))
            elif step < 0.85:
                listing = asyncio.ensure_future(caches.claims.relist())
                source.move(random.randrange(3))
                await listing
            elif source.now:  # the answer to one of this program's writes, however late
                _, kind, obj = events[random.randrange(source.now)]
                (caches.claims.note_deleted if kind == "DELETED" else caches.claims.note)(obj)
                noted.add(obj.metadata.resource_version)
            held = {each.uid for each in caches.tables.inventory.claims()}
            known = after(events, source.now)
            for one in known.values():  # before the watch comes to it: its devices are not given out again
                if one.status.allocation is not None and one.metadata.resource_version in noted:
                    assert one.metadata.uid in held
            await settle()
            await time.advance(40)
            assert all(one.metadata.uid in {c.metadata.uid for c in known.values()} for one in caches.claims.all())
        same(caches, judge, events)


@pytest.mark.parametrize("seed", range(20))
async def test_after_events_in_any_order_a_list_makes_it_right(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "TOMBSTONES_MAX", 4096)
    random = Random(seed)
    events = history(random)
    source = Apiserver(events)
    async with watching(source, random) as (caches, judge, _):
        shuffled = [each for each in events for _ in range(random.randrange(3))]
        random.shuffle(shuffled)
        gone: set[str] = set()
        for _, kind, obj in shuffled:
            if kind == "DELETED":
                caches.claims.note_deleted(obj)
                gone.add(obj.metadata.uid)
            else:
                caches.claims.note(obj)
            assert gone.isdisjoint(one.metadata.uid for one in caches.claims.all())
        source.move(len(events))
        await caches.claims.relist()
        await settle()
        same(caches, judge, events)
