"""Writes the status of Gang, Queue and Flavor objects, and creates and deletes Gang objects.

A status is written only if it differs from the object's; a spec too, so that what a user writes there is put back. Each write is noted
in the informer, so that the next comparison sees it. Texts lose what steers a terminal: they hold names and messages of tenants. Errors
are the caller's (`Reporter`), which tries again.

Fields of a status that this version does not know are read past, and kept when the status is written: a newer version may have written
them, before a rollback or as the replica that led. A merge patch keeps what it does not name, except within lists, which it replaces:
entries of a list that has keys keep the unknown fields of their predecessor.
Example: `usage: [{flavor: h100, allocated: 3, later: 1}]` is rewritten as `[{flavor: h100, allocated: 4, later: 1}]`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from fairlead.api import names, texts
from fairlead.api.base import model_in
from fairlead.api.flavor import FlavorStatus
from fairlead.api.gang import GangSpec, GangStatus
from fairlead.api.queue import QueueStatus
from fairlead.controller.book.book import Book
from fairlead.controller.book.shown import SchedulingState
from fairlead.controller.gangs.admission import holds
from fairlead.controller.gangs.conditions import MESSAGE_MAX, holding
from fairlead.controller.gangs.evictions import eviction_marks, past_evictions
from fairlead.controller.gangs.held import idleness
from fairlead.controller.gangs.membership import decisions
from fairlead.controller.gangs.membership.gangs import Gang, GangId, created_s, gang_spec
from fairlead.controller.report import gang_status, queue_status
from fairlead.controller.report.events import Events
from fairlead.controller.report.forecasts import forecast_text
from fairlead.controller.report.queue_status import QueueShown
from fairlead.controller.watch.caches import Caches
from fairlead.engine.queues.usage_history import UsageHistory
from fairlead.engine.types.plan import FlavorTotal
from fairlead.engine.types.settings import Problem
from fairlead.kube import errors, resources, timestamps
from fairlead.kube.client import Client
from fairlead.kube.informer import Informer
from fairlead.kube.limits import Clock
from fairlead.kube.resources import Raw, Resource

PROBLEM_REASONS = frozenset(
    {"InvalidRequest", "NeverFits", "UnknownQueue", "QueueNotForNamespace", "RolledBack", "StartRefused"}
)

EVENTS_MAX = 16  # pods of a gang that get an event each


def reported(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a Gang's status that is written here. The records of evictions are the evictor's, and may be newer than `raw`."""
    status = decisions.without_records(raw.get("status") or {})
    return {name: value for name, value in status.items() if name != past_evictions.FIELD}


class StatusWriter:
    def __init__(
        self, client: Client, caches: Caches, book: Book, usage: UsageHistory, events: Events, *, wall: Clock
    ) -> None:
        self._client = client
        self._caches = caches
        self._book = book
        self._usage = usage
        self._events = events
        self._wall = wall

    async def gang(self, gang: Gang, state: SchedulingState) -> None:
        spec = gang_spec(gang)
        now = self._wall()
        raw = self._caches.gang_object(gang.id)
        if raw is None:
            raw = await self._create(gang, spec)
        wanted = self._spec(gang, raw, spec)
        if wanted:
            raw = await self._client.patch(resources.GANGS, gang.name, {"spec": wanted}, namespace=gang.namespace)
        object_created = timestamps.parse(raw["metadata"]["creationTimestamp"])
        stored = reported(raw)
        before = known_fields(stored, GangStatus)
        past = own = past_evictions.past_eviction(raw, now)
        if not stored and own is None:  # for a gang of one: of the evicted pod that this one replaces
            past = self._caches.records.past_eviction(gang, now)
        created = past.waits_since if past is not None else self._queued_since(gang, before) or object_created
        status = as_stored(
            gang_status.gang_status(gang, state, before=before, created=created, now=now, past=past), GangStatus
        )
        status["observedGeneration"] = raw["metadata"].get("generation", 1)
        if status != before:
            patch = merge_patch(stored, status, GangStatus, whole=True)
            carried = past.status() if past is not None and own is None else {}
            over = eviction_marks.over(gang, raw, now)
            version = raw["metadata"]["resourceVersion"] if over else None  # the evictor may write another meanwhile
            raw = await self._patch_status(gang.id, {**patch, **carried, **over}, version=version)
            self._event(gang, before, status)
        self._caches.gang_objects.note(raw)

    def _queued_since(self, gang: Gang, before: Mapping[str, Any]) -> float:
        """Since when a gang waits that was not evicted, unix seconds: as before, unless other pods are a gang of the same name now."""
        living = [member for member in gang.members if not member.terminating]
        uids = frozenset(member.uid for member in living)
        state = self._book[gang.id]
        last, state.living = state.living, uids
        kept = before.get("queuedTime")
        if kept and (last is None or not uids or not uids.isdisjoint(last)):
            return timestamps.parse(kept)
        return min((created_s(member.pod) for member in living), default=gang.created)

    async def _create(self, gang: Gang, spec: Mapping[str, Any]) -> dict[str, Any]:
        metadata = {
            "name": gang.name,
            "namespace": gang.namespace,
            "labels": {names.MANAGED_BY: names.MANAGED_BY_VALUE},
        }
        try:
            created = await self._client.create(resources.GANGS, {"metadata": metadata, "spec": spec})
        except errors.AlreadyExists:
            created = await self._client.get(resources.GANGS, gang.name, gang.namespace)
        self._caches.gang_objects.note(created)
        return created

    def _spec(self, gang: Gang, raw: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
        """What of the Gang object's spec is to be changed, as a merge patch: all but the hold is what its pods ask for."""
        stored = raw.get("spec") or {}
        known = (field.alias or name for name, field in GangSpec.model_fields.items())
        wanted = {name: spec.get(name) for name in known if name != "hold" and stored.get(name) != spec.get(name)}
        hold = self._caches.records.hold_object(gang)
        return wanted if hold is None or stored.get("hold") == hold else {**wanted, "hold": hold}

    async def _patch_status(
        self, gang: GangId, status: Mapping[str, Any], *, version: str | None = None
    ) -> dict[str, Any]:
        """`version`: the resourceVersion without which it is refused."""
        body: dict[str, Any] = {"status": status}
        if version is not None:
            body["metadata"] = {"resourceVersion": version}
        return await self._client.patch(resources.GANGS, gang[1], body, namespace=gang[0], subresource="status")

    def _event(self, gang: Gang, before: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        """When phase or reason changed: on the Gang object, and while it waits on its first pod too."""
        self._forecast_event(gang, before, status)
        self._idle_event(gang, before, status)
        if (before.get("phase"), before.get("reason")) == (status["phase"], status["reason"]):
            return
        reason, message = status["reason"], status["message"]
        warning = reason in PROBLEM_REASONS
        self._events.gang(gang.id, reason, message, warning=warning)
        if status["phase"] == "Waiting" and gang.gated:
            self._events.pod(gang.gated[0].pod, reason, message, warning=warning)

    def _forecast_event(self, gang: Gang, before: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        """For the first forecast of a gang, and when it turns out that the gang cannot start."""
        new, old = status.get("forecast"), before.get("forecast")
        if new is None or (old is not None and bool(old.get("never")) == bool(new.get("never"))):
            return
        if new.get("never") or new.get("p50"):
            self._events.gang(gang.id, "Forecast", forecast_text(new)[:MESSAGE_MAX])

    def _idle_event(self, gang: Gang, before: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        """When its devices have become idle: on the Gang object and on its pods."""
        idle = holding(status, idleness.CONDITION)
        if idle is None or holding(before, idleness.CONDITION) is not None:
            return
        told = str(idle.get("message", ""))
        self._events.gang(gang.id, "DevicesIdle", told, warning=True)
        for member in gang.running[:EVENTS_MAX]:
            self._events.pod(member.pod, "DevicesIdle", told, warning=True)

    async def gang_without_pods(self, gang: GangId) -> float | None:
        """Deletes the Gang object, unless its hold is protected or the gang was evicted and its pods may be recreated.

        In the latter case the seconds until the next look.
        """
        raw, state = self._caches.gang_object(gang), self._book[gang]
        if raw is None:
            state.without_job_since = None
            return None
        now = self._wall()
        past = past_evictions.past_eviction(raw, now)
        if past is not None:
            jobs = self._caches.lookup.makers(gang, past)
            if not jobs:
                state.without_job_since = state.without_job_since or now
            since = None if jobs else state.without_job_since
            outlook = past_evictions.outlook(past, jobs, now=now, without_job_since=since)
            if outlook.until is not None:
                stored = reported(raw)
                status = gang_status.evicted_status(past, outlook, known_fields(stored, GangStatus), now)
                status = as_stored(status, GangStatus)
                patch = merge_patch(stored, status, GangStatus, whole=False)
                self._caches.gang_objects.note(await self._patch_status(gang, patch))
                return max(0.1, outlook.until - now)
        state.without_job_since = None
        hold = holds.protected_hold(raw)
        if hold is not None:  # else a tenant ends it by deleting the pods, and submits them again
            stored = raw.get("status") or {}
            status = as_stored(gang_status.held_status(hold, gang, known_fields(stored, GangStatus), now), GangStatus)
            if any(stored.get(key) != value for key, value in status.items()):
                patch = merge_patch(stored, status, GangStatus, whole=False)
                self._caches.gang_objects.note(await self._patch_status(gang, patch))
            return None
        try:
            await self._client.delete(resources.GANGS, gang[1], gang[0], uid=raw["metadata"]["uid"])
        except (errors.NotFound, errors.Conflict):
            pass
        return None

    async def queue(self, name: str, shown: QueueShown) -> None:
        raw = self._caches.queues.get(name)
        if raw is None:
            return
        uid, now = raw["metadata"].get("uid", ""), self._wall()
        before, generation = known_fields(raw.get("status") or {}, QueueStatus), raw["metadata"].get("generation", 1)
        remembered = self._usage.to_write(uid, now)
        status = queue_status.queue_status(shown, remembered, before=before, generation=generation, now=now)
        if await self._write(resources.QUEUES, self._caches.queues, raw, status, QueueStatus):
            for reason, message in queue_status.crossed(name, shown.budget, before.get("budget")):
                self._events.queue(name, reason, message)
        if remembered is not None:
            self._usage.written(uid, remembered)

    async def flavor(
        self, name: str, total: FlavorTotal | None, problems: Sequence[Problem], scale_ups: Sequence[float]
    ) -> None:
        raw = self._caches.flavors.get(name)
        if raw is None:
            return
        before, generation = known_fields(raw.get("status") or {}, FlavorStatus), raw["metadata"].get("generation", 1)
        status = queue_status.flavor_status(
            total, problems, scale_ups=scale_ups, before=before, generation=generation, now=self._wall()
        )
        await self._write(resources.FLAVORS, self._caches.flavors, raw, status, FlavorStatus)

    async def _write(
        self, kind: Resource[Raw], informer: Informer[Raw], raw: Raw, status: dict[str, Any], model: type[BaseModel]
    ) -> bool:
        """The status of an object without namespace; whether it differs from the stored one."""
        stored, status = raw.get("status") or {}, as_stored(status, model)
        before = known_fields(stored, model)
        if all(before.get(field) == value for field, value in status.items()):
            return False
        patch = {"status": merge_patch(stored, status, model, whole=False)}
        informer.note(await self._client.patch(kind, raw["metadata"]["name"], patch, subresource="status"))
        return True


Change = Callable[[Mapping[str, Any], type[BaseModel]], dict[str, Any]]


@dataclass(frozen=True)
class _Field:
    """`model` is that of an object, or of a list's entries; `key` names the field by which such entries are told apart.

    `default`: what the apiserver stores where the field is left out, as the CRD says; None where nothing.
    """

    model: type[BaseModel] | None
    key: str
    default: str | int | float | None


@functools.cache
def _fields(model: type[BaseModel]) -> Mapping[str, _Field]:
    found: dict[str, _Field] = {}
    for name, field in model.model_fields.items():
        extra = field.json_schema_extra
        keys: Any = extra.get("x-kubernetes-list-map-keys") if isinstance(extra, dict) else None
        default = field.default if isinstance(field.default, str | int | float) else None
        found[field.alias or name] = _Field(model_in(field.annotation), keys[0] if keys else "", default)
    return found


def as_stored(status: Mapping[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    """The status as it is read back: without what steers a terminal, and with what the apiserver adds to its parts.

    Example: of `placement: [{level: rack, domains: 1}]`, `[{level: rack, domains: 1, asked: ""}]` is stored.
    """
    return _parts(texts.tree(status), model, _completed)


def _completed(part: Mapping[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    defaults = {name: field.default for name, field in _fields(model).items() if field.default is not None}
    return defaults | _parts(part, model, _completed)


def known_fields(value: Mapping[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    """The value without fields that the model does not have, at any depth."""
    return _parts(value, model, known_fields)


def _parts(value: Mapping[str, Any], model: type[BaseModel], change: Change) -> dict[str, Any]:
    """The known fields, each object in them changed."""
    fields = _fields(model)
    return {name: _part(inner, fields[name].model, change) for name, inner in value.items() if name in fields}


def _part(value: Any, model: type[BaseModel] | None, change: Change) -> Any:
    if model is not None and isinstance(value, Mapping):
        return change(value, model)
    if model is not None and isinstance(value, list):
        return [_part(each, model, change) for each in value]
    return value


def merge_patch(
    before: Mapping[str, Any], status: Mapping[str, Any], model: type[BaseModel], *, whole: bool
) -> dict[str, Any]:
    """What writes `status` over `before`, as stored. With `whole`, known fields that `status` lacks are removed."""
    absent = dict.fromkeys(name for name in before if name in _fields(model)) if whole else {}
    patch: dict[str, Any] = {**absent, **status}
    for name, field in _fields(model).items():
        old, new = before.get(name), status.get(name)
        if field.model is None or not old or not new:
            continue
        if isinstance(new, Mapping):
            patch[name] = merge_patch(old, new, field.model, whole=True)
        elif field.key:
            patch[name] = _entries(old, new, field.model, field.key)
    return patch


def _entries(old: Any, new: Any, model: type[BaseModel], key: str) -> list[dict[str, Any]]:
    kept = {
        entry.get(key): {name: value for name, value in entry.items() if name not in _fields(model)} for entry in old
    }
    return [{**kept.get(entry[key], {}), **entry} for entry in new]
