"""The facts of a cluster by watches: one set of them for all readers, so that a reader costs the apiserver nothing.

What is known is kept current change by change (`watched_tables`); a new `Facts` is made at most once a second, and only when something
changed or ages have. While the apiserver is away the facts stay as they were, and `late` says since when. A kind that may not be
listed, or that the cluster does not know, leaves its part of the pages empty until it can be read.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Generic, TypeVar

from fairlead.controller.watch.indexes import without_devices
from fairlead.controller.watch.optional import OptionalInformer
from fairlead.kube import errors, resources, timestamps
from fairlead.kube.client import Client
from fairlead.kube.core import Node
from fairlead.kube.informer import Change, Informer
from fairlead.kube.limits import Backoff, Clock, Sleep
from fairlead.kube.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from fairlead.kube.resources import Raw
from fairlead.kube.watching import MODIFIED
from fairlead.ui.model.facts import Facts
from fairlead.ui.reading.cluster import NotReadError, not_read, rules_not_read
from fairlead.ui.reading.watched_tables import WatchedTables, lean

T = TypeVar("T")
NEWER_S = 1.0  # facts are not made more often
OLDER_S = 5.0  # facts of an unchanged cluster: ages and forecasts are as of when they were made
ANSWER_S = 30.0  # how long the first reader waits for all lists
PROBE_S = 2.0
RECONNECT = Backoff(max_s=5.0)  # people look at it: a cluster that is back is to be seen soon
_GONE = (errors.Forbidden, errors.NotFound)  # what a kind that cannot be read is answered with


class WatchedSource:
    """`run` keeps it current until it is cancelled."""

    def __init__(
        self,
        client: Client,
        *,
        name: str = "",
        clock: Clock = time.monotonic,
        wall: Clock = time.time,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._client = client
        self._name = name
        self._clock = clock
        self._wall = wall
        self._sleep = sleep
        self._facts: Facts | None = None
        self._made_at = 0.0  # of the clock
        self._changed = True
        self._reached = True  # whether the last probe was answered
        self._reached_since = 0.0  # of the clock
        self._known_at = 0.0  # unix seconds: when all watches were last known to be open

        def informer(resource: resources.Resource[T], **more: Any) -> Informer[T]:
            return Informer(client, resource, backoff=RECONNECT, clock=clock, sleep=sleep, **more)

        pods = informer(resources.raw(resources.PODS), transform=lean)
        gangs = informer(resources.GANGS, transform=_without_writers)
        queues = informer(resources.QUEUES, transform=_without_writers)
        claims: Informer[ResourceClaim] = informer(resources.RESOURCE_CLAIMS)
        nodes: Informer[Node] = informer(resources.NODES)
        slices: Informer[ResourceSlice] = informer(resources.RESOURCE_SLICES, transform=without_devices)
        classes: Informer[DeviceClass] = informer(resources.DEVICE_CLASSES)
        self._events = informer(
            resources.EVENTS,
            fields="involvedObject.kind=Gang",
            transform=_without_writers,
            indexes={"object": _object},
        )
        self._tables = WatchedTables(pods.get)
        self._pods = _Ordered(pods, keep=lambda raw: "spec" in raw)
        self._gangs = _Ordered(gangs)
        self._queues = _Ordered(queues)
        self._claims = _Ordered(claims)
        handlers: tuple[tuple[Informer[Any], Callable[[Change[Any]], None]], ...] = (
            (pods, self._tables.on_pod),
            (gangs, self._tables.on_gang),
            (claims, self._tables.on_claim),
            (nodes, self._tables.on_node),
            (slices, self._tables.on_slice),
            (classes, self._tables.on_class),
        )
        for watched, handler in handlers:
            watched.subscribe(handler)
        self._informers: tuple[Informer[Any], ...] = (gangs, queues, pods, claims, nodes, slices, classes)
        self._rules: OptionalInformer[DeviceTaintRule] = OptionalInformer(
            resources.DEVICE_TAINT_RULES, resources.DEVICE_TAINT_RULE_VERSIONS, required=False
        )
        self._rules.subscribe(self._tables.on_taint_rule)
        self._rules.subscribe(self._note)
        self._looked_for_rules = False
        for each in self._informers:
            each.subscribe(self._note)

    async def run(self) -> None:
        """Never returns."""
        async with asyncio.TaskGroup() as group:
            for each in (*self._informers, self._events):
                group.create_task(each.run(), name=f"informer {each.resource}")
            group.create_task(self._watch_rules(), name="informer devicetaintrules")
            group.create_task(self._probe(), name="probe of the apiserver")

    @property
    def filled(self) -> bool:
        """Whether each kind was read, or is known to be unreadable."""
        read = all(each.synced.is_set() or isinstance(each.error, _GONE) for each in self._informers)
        return read and self._looked_for_rules and self._rules.synced.is_set()

    @property
    def known_at(self) -> float:
        """Unix seconds: of when what is known is; 0.0 before the first lists."""
        return self._known_at

    async def facts(self) -> Facts:
        """Waits for the first lists. Raises NotReadError where they did not come."""
        if self._facts is None:
            await self._fill()
        late = self._late()
        age = self._clock() - self._made_at
        if self._facts is None or (age >= NEWER_S and (self._changed or self._facts.late != late or age >= OLDER_S)):
            if late and self._facts is not None and not self._changed:
                self._facts = replace(self._facts, late=late)
            else:
                self._facts = self._make(late)
            self._made_at = self._clock()
        return self._facts

    async def events(self, kind: str, namespace: str, name: str) -> tuple[Raw, ...]:
        """The events about gangs."""
        return tuple(self._events.by_index("object", f"{namespace}/{name}")) if kind == "Gang" else ()

    async def _watch_rules(self) -> None:
        """Not every cluster serves DeviceTaintRules, and none needs to."""
        await self._rules.discover(self._client)
        self._looked_for_rules = True
        await self._rules.run()

    def _note(self, change: Change[Any]) -> None:
        self._changed = True

    async def _fill(self) -> None:
        give_up = self._clock() + ANSWER_S
        while not self.filled:
            for each in self._informers:
                if each.error is not None and not isinstance(each.error, _GONE):
                    raise NotReadError(str(not_read(each.error, "list", each.resource, None))) from each.error
            if self._clock() >= give_up:
                absent = ", ".join(each.resource.plural for each in self._informers if not each.synced.is_set())
                raise NotReadError(f"the cluster did not answer within {ANSWER_S:g} s for {absent}; try again")
            await self._sleep(0.05)

    def _make(self, late: str) -> Facts:
        refused = {
            each.resource.plural: str(not_read(each.error, "list", each.resource, None))
            for each in self._informers
            if isinstance(each.error, _GONE) and not each.synced.is_set()
        }
        rules = self._rules.informer
        if rules is not None and isinstance(rules.error, errors.Forbidden):
            refused[rules.resource.plural] = rules_not_read(rules.error, rules.resource)
        if not late:
            self._known_at = self._wall()
        self._changed = False
        unreadable = "nodes" in refused or "resourceslices" in refused
        return Facts(
            at=self._known_at,
            hardware=None if unreadable else self._tables.hardware(now=self._known_at),
            gangs=self._gangs.all(),
            pods=self._pods.all(),
            queues=self._queues.all(),
            claims=self._claims.all(),
            refused=refused,
            late=late,
            origin=self._name,
        )

    def _late(self) -> str:
        """Why the facts may not be those of now; "" where they are.

        A watch that was opened again shows nothing until something happens; so once the apiserver answers, each informer is given
        the time in which it tries again.
        """
        if self._reached and self._clock() - self._reached_since > RECONNECT.max_s * (1 + RECONNECT.jitter):
            failed = next(
                (each for each in self._informers if each.synced.is_set() and isinstance(each.error, _GONE)), None
            )
        else:
            failed = next((each for each in self._informers if each.synced.is_set() and each.error is not None), None)
        if failed is None or failed.error is None:
            return ""
        said = not_read(failed.error, "list", failed.resource, None)
        return f"{said}; this is as of {timestamps.seconds(self._known_at)}"

    async def _probe(self) -> None:
        """While a watch has failed: whether the apiserver answers at all."""
        self._reached_since = self._clock()
        while True:
            await self._sleep(PROBE_S)
            reached = True
            if any(each.error is not None for each in self._informers):
                try:
                    async with asyncio.timeout(PROBE_S):
                        await self._client.request("GET", "/version")
                except (errors.Unreachable, errors.ServerError, TimeoutError):
                    reached = False
                except errors.ApiError:
                    pass  # it answers
            if reached and not self._reached:
                self._reached_since = self._clock()
            self._reached = reached
            if self.filled and not self._late():
                self._known_at = self._wall()


class _Ordered(Generic[T]):
    """The objects of an informer by namespace and name; the same tuple while nothing changes."""

    def __init__(self, informer: Informer[T], *, keep: Callable[[T], bool] = lambda _: True) -> None:
        self._informer = informer
        self._keep = keep
        self._keys: list[str] | None = None
        self._found: tuple[T, ...] | None = None
        informer.subscribe(self._on_change)

    def all(self) -> tuple[T, ...]:
        if self._keys is None:
            self._keys = sorted(self._informer.keys(), key=lambda key: key.split("/"))
        if self._found is None:
            found = (self._informer.get(key) for key in self._keys)
            self._found = tuple(each for each in found if each is not None and self._keep(each))
        return self._found

    def _on_change(self, change: Change[T]) -> None:
        self._found = None
        if change.type != MODIFIED:
            self._keys = None


def _object(event: Raw) -> tuple[str, ...]:
    about = event.get("involvedObject") or {}
    return (f"{about.get('namespace', '')}/{about.get('name', '')}",)


def _without_writers(raw: Raw) -> Raw:
    return {**raw, "metadata": {key: value for key, value in raw["metadata"].items() if key != "managedFields"}}
