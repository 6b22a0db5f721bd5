"""Writing what is said of gangs, queues and flavors: Gang objects, status, events.

Exists apart from the decisions so that a slow or failing report never holds them up: what is to be said is noted, the
newest wins, and workers write it a moment later. Not part of the protocol: nothing is decided from what is written here.
A status whose phase stays the same is written at most every `QUIET_S`, and where its reason does, too, so that all gangs
together are `WORDS_PER_S`: one that goes back and forth between reasons floods nobody.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from fairlead.api import names
from fairlead.controller.gangs import evictions
from fairlead.controller.gangs.gangs import Gang, GangId
from fairlead.controller.report import gang_status as status
from fairlead.controller.report import settings_status as status_settings
from fairlead.controller.report.gang_status import Standing
from fairlead.controller.watch.caches import Caches
from fairlead.engine.queues.usage_history import RememberedUsage, UsageHistory
from fairlead.engine.types.plan import Plan, QueueUse
from fairlead.engine.types.settings import Problem
from fairlead.kube import errors, resources, timestamps
from fairlead.kube.client import Client
from fairlead.kube.events import EventRecorder, Regarding
from fairlead.kube.limits import Clock
from fairlead.kube.workqueue import WorkQueue

log = logging.getLogger(__name__)

QUIET_S = 5.0
WORDS_PER_S = 50.0  # of all gangs: while thousands wait, each decision changes the figures in every message
SETTING_S = 1.0  # between two writes of one Queue's or Flavor's status
SOON_S = 0.2  # a gang passes quickly through its first phases: write the last of them
WORKERS = 8
PROBLEM_REASONS = frozenset({"InvalidRequest", "NeverFits", "UnknownQueue", "QueueNotForNamespace", "RolledBack"})

Key = tuple[str, str, str]  # "gang", "queue" or "flavor"; namespace; name


class Reporter:
    def __init__(
        self,
        client: Client,
        state: Caches,
        memory: UsageHistory,
        recorder: EventRecorder,
        queue: WorkQueue[Key],
        *,
        clock: Clock,
        wall: Clock,
    ) -> None:
        self.phases: dict[GangId, str] = {}
        self._client = client
        self._state = state
        self._memory = memory
        self._recorder = recorder
        self._queue = queue
        self._clock = clock
        self._wall = wall
        self._gangs: dict[GangId, tuple[Gang, Standing]] = {}
        self._seen: dict[GangId, tuple[object, str]] = {}  # what is written soon; the reason
        self._settings: dict[Key, tuple[Any, tuple[Problem, ...]]] = {}  # of Queues and Flavors
        self._written_at: dict[Key, float] = {}

    # -- noting ----------------------------------------------------------------------------------------------------

    def gang(self, gang: Gang, standing: Standing) -> None:
        """Says where a gang stands; written soon, or later when only the reason or words changed."""
        self._gangs[gang.id] = (gang, standing)
        seen = status.verdict(gang, standing)
        self.phases[gang.id] = seen.phase
        now = (seen.phase, _further(standing), gang.size), seen.reason
        before, self._seen[gang.id] = self._seen.get(gang.id), now
        key: Key = ("gang", *gang.id)
        if before is None or before[0] != now[0]:
            self._queue.add_after(key, SOON_S)
            return
        quiet_s = QUIET_S if before[1] != now[1] else max(QUIET_S, len(self._gangs) / WORDS_PER_S)
        wait_s = self._written_at.get(key, float("-inf")) + quiet_s - self._clock()
        self._queue.add_after(key, max(SOON_S, wait_s))

    def gone(self, gang: GangId) -> None:
        """The last member is gone: so is the Gang object."""
        self._gangs.pop(gang, None)
        self._seen.pop(gang, None)
        self.phases.pop(gang, None)
        self._queue.add(("gang", *gang))

    def settings(self, plan: Plan, problems: Iterable[Problem]) -> None:
        """What the plan says of Queues and Flavors, and what is wrong with them."""
        by_object: dict[tuple[str, str], list[Problem]] = {}
        for problem in problems:
            by_object.setdefault((problem.kind, problem.name), []).append(problem)
        uses = {use.name: use for use in plan.queues}
        totals = {total.flavor: total for total in plan.flavors}
        for raw in self._state.queues.all():
            name = raw["metadata"]["name"]
            use = uses.get(name) or QueueUse(name=name, flavors=(), waiting=0, admitted=0)
            self._setting(("queue", "", name), (use, tuple(by_object.get(("Queue", name), ()))))
        for raw in self._state.flavors.all():
            name = raw["metadata"]["name"]
            self._setting(("flavor", "", name), (totals.get(name), tuple(by_object.get(("Flavor", name), ()))))

    def _setting(self, key: Key, said: tuple[Any, tuple[Problem, ...]]) -> None:
        if self._settings.get(key) != said:
            self._settings[key] = said
            self._queue.add_after(key, self._written_at.get(key, float("-inf")) + SETTING_S - self._clock())

    def past(self, queue: str) -> None:
        """What is remembered of the queue's use has changed enough to be written."""
        self._queue.add(("queue", "", queue))

    def event(self, gang: GangId, reason: str, message: str, *, warning: bool = False) -> None:
        """On the Gang object."""
        raw = self._state.gang_objects.get("/".join(gang))
        uid = raw["metadata"].get("uid", "") if raw else ""
        about = Regarding(api_version=names.API_VERSION, kind="Gang", namespace=gang[0], name=gang[1], uid=uid)
        self._recorder.record(about, reason, message, type="Warning" if warning else "Normal")

    def pod_event(self, pod: Any, reason: str, message: str, *, warning: bool = False) -> None:
        self._recorder.record(
            Regarding.of(resources.PODS, pod), reason, message, type="Warning" if warning else "Normal"
        )

    # -- writing ---------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Writes what was noted; never returns."""
        async with asyncio.TaskGroup() as group:
            for _ in range(WORKERS):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            key = await self._queue.get()
            try:
                await self._write(key)
                self._queue.forget(key)
            except errors.ApiError as error:
                delay = self._queue.retry(key)
                log.log(
                    logging.DEBUG if error.transient or isinstance(error, errors.Conflict) else logging.WARNING,
                    "%s %s: status not written: %s; next try in %.1f s", key[0], "/".join(key[1:]), error, delay,
                )  # fmt: skip
            except Exception:
                log.exception("%s %s: status not written", key[0], "/".join(key[1:]))
            finally:
                self._queue.done(key)

    async def _write(self, key: Key) -> None:
        kind, namespace, name = key
        if kind in {"queue", "flavor"}:
            await self._write_setting(key)
        elif (namespace, name) in self._gangs:
            await self._write_gang((namespace, name))
        else:
            await self._delete_gang((namespace, name))
        self._written_at[key] = self._clock()
        if len(self._written_at) > 50_000:
            self._written_at.clear()

    async def _write_gang(self, gang_id: GangId) -> None:
        gang, standing = self._gangs[gang_id]
        raw = self._state.gang_objects.get("/".join(gang_id))
        spec = status.gang_spec(gang)
        if raw is None:
            raw = await self._create(gang, spec)
        elif any(raw.get("spec", {}).get(field) != value for field, value in spec.items()):
            raw = await self._client.patch(resources.GANGS, gang.name, {"spec": spec}, namespace=gang.namespace)
        now = self._wall()
        made = timestamps.parse(raw["metadata"]["creationTimestamp"])
        before: Mapping[str, Any] = raw.get("status") or {}
        past = evictions.past_of(raw)
        created = past.at if past is not None else min(made, gang.created or made)
        wanted = status.gang_status(gang, standing, before=before, created=created, now=now, past=past)
        wanted["observedGeneration"] = raw["metadata"].get("generation", 1)
        if wanted != before:
            body = {"status": _merge_patch(before, wanted)}
            raw = await self._client.patch(
                resources.GANGS, gang.name, body, namespace=gang.namespace, subresource="status"
            )
            self._tell(gang, before, wanted)
        self._state.gang_objects.note(raw)

    async def _create(self, gang: Gang, spec: Mapping[str, Any]) -> dict[str, Any]:
        past = self._state.past(gang)  # of the pod that this one stands in for
        metadata = {
            "name": gang.name,
            "namespace": gang.namespace,
            "labels": {names.MANAGED_BY: names.MANAGED_BY_VALUE},
            "annotations": {} if past is None else {names.EVICTED: past.annotation()},
        }
        try:
            made = await self._client.create(resources.GANGS, {"metadata": metadata, "spec": spec})
        except errors.AlreadyExists:
            made = await self._client.get(resources.GANGS, gang.name, gang.namespace)
        self._state.gang_objects.note(made)
        return made

    async def _delete_gang(self, gang: GangId) -> None:
        """Unless it was evicted a moment ago: then its Gang object keeps its place in line until its pods come again."""
        raw = self._state.gang_objects.get("/".join(gang))
        if raw is None:
            return
        past, now = evictions.past_of(raw), self._wall()
        if past is not None and now < past.at + evictions.RETURN_S:
            self._queue.add_after(("gang", *gang), past.at + evictions.RETURN_S - now)
            before = raw.get("status") or {}
            body = {"status": status.evicted_status(past, before, now)}
            self._state.gang_objects.note(
                await self._client.patch(resources.GANGS, gang[1], body, namespace=gang[0], subresource="status")
            )
            return
        try:
            await self._client.delete(resources.GANGS, gang[1], gang[0], uid=raw["metadata"]["uid"])
        except (errors.NotFound, errors.Conflict):
            return

    async def _write_setting(self, key: Key) -> None:
        kind, _, name = key
        known = self._state.queues if kind == "queue" else self._state.flavors
        raw, said = known.get(name), self._settings.get(key)
        if raw is None or said is None:
            self._settings.pop(key, None)
            return
        uid, now = raw["metadata"].get("uid", ""), self._wall()
        before = raw.get("status") or {}
        generation = raw["metadata"].get("generation", 1)
        remembered: RememberedUsage | None = None
        if kind == "queue":
            remembered = self._memory.to_write(uid, now)
            wanted = status_settings.queue_status(
                said[0], remembered, said[1], before=before, generation=generation, now=now
            )
        else:
            wanted = status_settings.flavor_status(said[0], said[1], before=before, generation=generation, now=now)
        if any(before.get(field) != value for field, value in wanted.items()):
            resource = resources.QUEUES if kind == "queue" else resources.FLAVORS
            known.note(await self._client.patch(resource, name, {"status": wanted}, subresource="status"))
        if remembered is not None:
            self._memory.written(uid, remembered)

    def _tell(self, gang: Gang, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
        """An event when phase or reason changed: on the gang, and while it waits on its first pod too."""
        if (before.get("phase"), before.get("reason")) == (now["phase"], now["reason"]):
            return
        reason, message = now["reason"], now["message"]
        warning = reason in PROBLEM_REASONS
        self.event(gang.id, reason, message, warning=warning)
        if now["phase"] == "Waiting" and gang.gated:
            self.pod_event(gang.gated[0].pod, reason, message, warning=warning)


def _merge_patch(before: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """What makes `wanted` of `before`: a merge patch keeps every field, and every field within a map, that it does not name."""
    patch: dict[str, Any] = {**dict.fromkeys(before), **wanted}
    old, new = before.get("why"), wanted.get("why")
    if isinstance(old, dict) and isinstance(new, dict):
        patch["why"] = {**dict.fromkeys(old), **new}
    return patch


def _further(standing: Standing) -> tuple[object, ...]:
    """What beside phase and reason is worth writing soon."""
    return standing.course, standing.victims, standing.reservation is not None
