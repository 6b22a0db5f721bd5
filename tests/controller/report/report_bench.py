"""Reports in virtual time: a Reporter, an event recorder, and the objects that they write."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import msgspec

from fairlead.api import gang as api
from fairlead.api.crds import structural_schema
from fairlead.controller.book.book import Book
from fairlead.controller.book.shown import SchedulingState
from fairlead.controller.gangs.membership.gangs import Gang, GangId
from fairlead.controller.gangs.membership.members import Member, Stage
from fairlead.controller.report.events import Events
from fairlead.controller.report.metrics import Metrics
from fairlead.controller.report.reporter import Key, Reporter
from fairlead.controller.report.status_writer import StatusWriter
from fairlead.controller.watch.caches import Caches
from fairlead.engine.queues.usage_history import UsageHistory
from fairlead.engine.types.plan import Waiting
from fairlead.engine.types.reasons import Code, Reason
from fairlead.kube import core, timestamps
from fairlead.kube.client import Client
from fairlead.kube.events import EventRecorder
from fairlead.kube.resources import Raw
from fairlead.kube.workqueue import WorkQueue
from fairlead.sandbox.apiserver.crds.values import default
from tests.support.kube import VirtualTime

GANG_SCHEMA = structural_schema(api.Gang)


class Objects:
    """Gang objects and events, as an apiserver would keep them, and how often each was written."""

    def __init__(self, time: VirtualTime) -> None:
        self._time = time
        self.gangs: dict[str, Raw] = {}
        self.events: dict[str, Raw] = {}
        self.written: Counter[str] = Counter()

    async def create(self, resource: Any, body: Raw, namespace: str | None = None) -> Raw:
        self.written[resource.plural] += 1
        made = {
            **body,
            "metadata": {"uid": "u", "creationTimestamp": timestamps.seconds(self._time.now), **body["metadata"]},
        }
        self._kept(resource)[self._key(made["metadata"]["name"], made["metadata"]["namespace"])] = made
        return _defaulted(resource, made)

    async def patch(
        self, resource: Any, name: str, body: Raw, *, namespace: str, subresource: str = "", **more: Any
    ) -> Raw:
        self.written[f"{resource.plural}/{subresource}" if subresource else resource.plural] += 1
        raw = self._kept(resource)[self._key(name, namespace)]
        for field, value in body.items():
            raw[field] = {**raw.get(field, {}), **value} if isinstance(value, dict) else value
        return _defaulted(resource, raw)

    def _kept(self, resource: Any) -> dict[str, Raw]:
        return self.events if resource.plural == "events" else self.gangs

    @staticmethod
    def _key(name: str, namespace: str) -> str:
        return f"{namespace}/{name}"


def _defaulted(resource: Any, raw: Raw) -> Raw:
    if resource.plural == "gangs":
        default(raw, GANG_SCHEMA)
    return raw


class KnownGangs:
    """Of the caches what reports need."""

    def __init__(self, objects: Objects) -> None:
        self.gang_objects = self.records = self
        self._objects = objects

    def get(self, key: str) -> Raw | None:
        return self._objects.gangs.get(key)

    def note(self, raw: Raw) -> None:
        pass

    def gang_object(self, gang: GangId) -> Raw | None:
        return self.get("/".join(gang))

    def hold_object(self, gang: Gang) -> None:
        return None

    def past_eviction(self, gang: Gang, now: float) -> None:
        return None


class Setup:
    def __init__(self, time: VirtualTime) -> None:
        self.time = time
        self.metrics = Metrics()
        self.objects = Objects(time)
        self.recorder = EventRecorder(self.objects, "test", clock=time.clock, wall=time.clock)  # type: ignore[arg-type]
        caches: Caches = KnownGangs(self.objects)  # type: ignore[assignment]
        events = Events(self.recorder, caches, ("fairlead-system", "fairlead-controller"))
        client: Client = self.objects  # type: ignore[assignment]
        book = Book()
        writer = StatusWriter(client, caches, book, UsageHistory(1.0), events, wall=time.clock)
        queue: WorkQueue[Key] = WorkQueue(clock=time.clock, sleep=time.sleep, random=Random(1))
        self.reporter = Reporter(writer, caches, book, queue, self.metrics.failures, clock=time.clock)

    def events(self, kind: str) -> list[Raw]:
        return [event for event in self.objects.events.values() if event["involvedObject"]["kind"] == kind]


@contextlib.asynccontextmanager
async def running() -> AsyncIterator[Setup]:
    made = Setup(VirtualTime())
    tasks = [asyncio.create_task(each) for each in (made.reporter.run(), made.recorder.run())]
    yield made
    for task in tasks:
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.gather(*tasks, return_exceptions=True)


def waiting_gang(name: str = "g", namespace: str = "ml") -> Gang:
    meta = {"name": f"{name}-0", "namespace": namespace, "uid": f"uid-{name}"}
    pod = msgspec.convert({"metadata": meta, "spec": {"schedulingGates": [{"name": "g"}]}}, core.Pod)
    return Gang(id=(namespace, name), size=1, members=(Member(pod=pod, stage=Stage.GATED),))


def waits(gang: Gang, code: Code, message: str) -> SchedulingState:
    reason = Reason(code=code, message=message, advice="wait")
    said = Waiting(namespace=gang.namespace, name=gang.name, uid="", queue="q", position=1, reason=reason)
    return SchedulingState(waiting=said)
