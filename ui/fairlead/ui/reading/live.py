"""The facts of a live cluster, by the lists that `queues`, `gangs` and `explain` make, with the user's own rights; and its snapshot.

Lists are made when a page is asked for, and again when they are older than `FRESH_S`; while no page is asked for, nothing is asked. So a
reader never costs more than a command every `FRESH_S` seconds; a gang's page lists its events, too. A list that is refused leaves its part
of the pages empty, with the reason; one of all namespaces that is refused is made of the user's own. When the cluster does not answer, the
facts of before are kept, and say so.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, TypeVar

from fairlead.controller.rehearsal import Unread, observe
from fairlead.controller.watch.optional import DISCOVERY_S, version_of
from fairlead.engine.snapshot import Snapshot
from fairlead.kube import errors, resources, timestamps
from fairlead.kube.client import Client
from fairlead.kube.limits import Clock
from fairlead.kube.resource import DeviceTaintRule
from fairlead.kube.resources import Raw, Resource
from fairlead.kube.store import Change, Revision
from fairlead.kube.watching import ADDED, DELETED, MODIFIED
from fairlead.ui.model.facts import Facts
from fairlead.ui.reading.cluster import NotReadError, not_read, rules_not_read
from fairlead.ui.reading.watched_tables import WatchedTables

T = TypeVar("T")
FRESH_S = 5.0
ANSWER_S = 30.0
EVENTS_S = 5.0


class LiveSource:
    """`namespace` is the user's own: what may be listed there is shown where all namespaces may not be listed.
    `name`: of the cluster, for the head of pages.
    """

    def __init__(
        self,
        client: Client,
        *,
        namespace: str = "default",
        name: str = "",
        clock: Clock = time.monotonic,
        wall: Clock = time.time,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._clock = clock
        self._wall = wall
        self._lock = asyncio.Lock()
        self._facts: Facts | None = None
        self._read_at = 0.0  # of the clock
        self._listed = _Listed()
        self._rules: Resource[DeviceTaintRule] | None = None  # in the version that is served; None: in none
        self._discovered_at: float | None = None  # of the clock

    async def facts(self) -> Facts:
        async with self._lock:  # requests at one time are one read
            if self._facts is None or self._clock() - self._read_at >= FRESH_S:
                await self._read()
            assert self._facts is not None
            return self._facts

    async def events(self, kind: str, namespace: str, name: str) -> tuple[Raw, ...]:
        """One list, of the events on this object alone."""
        chosen = f"involvedObject.kind={kind},involvedObject.name={name}"
        try:
            async with asyncio.timeout(EVENTS_S):
                return tuple((await self._client.list(resources.EVENTS, namespace, fields=chosen)).items)
        except (errors.ApiError, TimeoutError):
            return ()

    async def _read(self) -> None:
        try:
            async with asyncio.timeout(ANSWER_S):
                self._facts = await self._lists()
        except (errors.ApiError, TimeoutError) as error:
            if isinstance(error, errors.ApiError):
                said = str(not_read(error, "list", resources.GANGS, None))
            else:
                said = f"the cluster did not answer all lists within {ANSWER_S:g} s; try again"
            if self._facts is None:
                raise NotReadError(said) from error
            self._facts = replace(self._facts, late=f"{said}; this is as of {timestamps.seconds(self._facts.at)}")
        self._read_at = self._clock()

    async def _lists(self) -> Facts:
        refused: dict[str, str] = {}
        now = self._wall()
        (gangs, pods, queues), (claims, nodes, slices, classes), rules = await asyncio.gather(
            asyncio.gather(
                self._list(resources.GANGS, refused),
                self._list(resources.raw(resources.PODS), refused),
                self._list(resources.QUEUES, refused),
            ),
            asyncio.gather(
                self._list(resources.RESOURCE_CLAIMS, refused),
                self._list(resources.NODES, refused),
                self._list(resources.RESOURCE_SLICES, refused),
                self._list(resources.DEVICE_CLASSES, refused),
            ),
            self._taint_rules(refused),
        )
        listed, tables = self._listed, self._listed.tables
        listed.note("gangs", gangs, tables.on_gang)
        listed.note("pods", pods, tables.on_pod)
        listed.note("claims", claims, tables.on_claim)
        listed.note("nodes", nodes, tables.on_node)
        listed.note("slices", slices, tables.on_slice)
        listed.note("classes", classes, tables.on_class)
        listed.note("rules", rules, tables.on_taint_rule)
        unreadable = "nodes" in refused or "resourceslices" in refused
        return Facts(
            at=now,
            hardware=None if unreadable else tables.hardware(now=now),
            gangs=tuple(_by_name(gangs)),
            pods=tuple(_by_name(pods)),
            queues=tuple(_by_name(queues)),
            claims=tuple(claims),
            refused=refused,
            origin=self._name,
        )

    async def _taint_rules(self, refused: dict[str, str]) -> list[DeviceTaintRule]:
        """Not every cluster serves them: which version it serves, if any, is looked up now and then."""
        if self._discovered_at is None or self._clock() - self._discovered_at >= DISCOVERY_S:
            kind = resources.DEVICE_TAINT_RULES
            try:
                version = await version_of(self._client, kind.group, resources.DEVICE_TAINT_RULE_VERSIONS, kind.plural)
            except errors.Unreachable:
                raise
            except errors.ApiError:
                version = None  # discovery is refused or broken: the rest of the pages needs none
            self._rules = None if version is None else replace(kind, version=version)
            self._discovered_at = self._clock()
        if self._rules is None:
            return []
        try:
            return (await self._client.list(self._rules)).items
        except errors.Forbidden as error:
            refused[self._rules.plural] = rules_not_read(error, self._rules)
        except errors.NotFound:
            self._discovered_at = None
        return []

    async def _list(self, resource: Resource[T], refused: dict[str, str]) -> list[T]:
        try:
            return (await self._client.list(resource)).items
        except (errors.Forbidden, errors.NotFound) as error:
            refused[resource.plural] = str(not_read(error, "list", resource, None))
            if not resource.namespaced or isinstance(error, errors.NotFound):
                return []
        try:
            found = (await self._client.list(resource, self._namespace)).items
        except (errors.Forbidden, errors.NotFound) as error:
            refused[resource.plural] = (
                f"{not_read(error, 'list', resource, self._namespace)}; that namespace is the one of your kubeconfig's context, and "
                "in all namespaces you may not either"
            )
            return []
        refused[resource.plural] = (
            f"{resource.plural} of other namespaces than {self._namespace}: you may not list them"
        )
        return found


class _Listed:
    """The lists before: what differs in those of now goes to the tables as a watch would tell it."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, Any]] = {}
        self.tables = WatchedTables(self._pod)

    def _pod(self, key: str) -> Raw | None:
        return self._known["pods"].get(key)

    def note(self, kind: str, found: Iterable[Any], tell: Callable[[Change[Any]], None]) -> None:
        before, now = self._known.get(kind, {}), {Revision.of(each): each for each in found}
        self._known[kind] = {revision.key: each for revision, each in now.items()}
        for key, old in before.items():
            new = self._known[kind].get(key)
            if new is None or Revision.of(new).uid != Revision.of(old).uid:
                tell(Change(DELETED, key, old, None))
        for (key, uid, version), new in now.items():
            old = before.get(key)
            if old is None or Revision.of(old).uid != uid:
                tell(Change(ADDED, key, None, new))
            elif not version or Revision.of(old).version != version:
                tell(Change(MODIFIED, key, old, new))


def _by_name(found: list[Any]) -> list[Raw]:
    return sorted(found, key=lambda raw: (raw["metadata"].get("namespace", ""), raw["metadata"]["name"]))


async def read_snapshot(
    client: Client, drivers: tuple[str, ...], shared_drivers: tuple[str, ...]
) -> tuple[Snapshot, float]:
    """The snapshot, and its time in unix seconds. Raises NotReadError."""
    try:
        return await observe(client, drivers, shared_drivers)
    except Unread as error:
        raise not_read(error.error, "list", error.resource, None) from error
    except TimeoutError as error:
        raise NotReadError(str(error)) from error
