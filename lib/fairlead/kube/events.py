"""Events on objects (core/v1, what `kubectl describe` shows): aggregated, limited, and never blocking.

`record` enqueues, `run` writes, one of each namespace in turn: the thousands of one delay no other's. An event equal to one of the last
`AGGREGATE_S` seconds raises its count. Each object has a budget of `PER_OBJECT_BURST` events, refilled by one every
`PER_OBJECT_EVERY_S` seconds. Events beyond the budget, and beyond `QUEUE_MAX` the newest of the namespace with most, are dropped and
counted in `dropped`: a decision never waits for an event.
Source: client-go events_cache.go (10 minutes, bursts of 25).
"""

import asyncio
import collections
import dataclasses
import logging
import time
from typing import Any

from fairlead.api import texts
from fairlead.kube import errors, timestamps
from fairlead.kube.client import Client
from fairlead.kube.limits import Clock
from fairlead.kube.resources import EVENTS, Resource

log = logging.getLogger(__name__)

AGGREGATE_S = 600.0
PER_OBJECT_BURST = 25
PER_OBJECT_EVERY_S = 60.0
QUEUE_MAX = 2000
KNOWN_MAX = 4096
MESSAGE_MAX_BYTES = 1024


@dataclasses.dataclass(frozen=True, kw_only=True)
class Regarding:
    """The object an event is about."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""

    @classmethod
    def of(cls, resource: Resource[Any], obj: Any) -> "Regarding":
        """Names the object of an event, from a struct or a raw dict."""
        metadata = obj["metadata"] if isinstance(obj, dict) else obj.metadata
        if isinstance(metadata, dict):
            name, namespace, uid = metadata["name"], metadata.get("namespace", ""), metadata.get("uid", "")
        else:
            name, namespace, uid = metadata.name, metadata.namespace, metadata.uid
        return cls(api_version=resource.api_version, kind=resource.kind, name=name, namespace=namespace, uid=uid)

    @classmethod
    def node(cls, name: str) -> "Regarding":
        """The name in place of the UID, as in kubelet's Events: `kubectl describe node` shows both."""
        return cls(api_version="v1", kind="Node", name=name, uid=name)


@dataclasses.dataclass(frozen=True)
class _Key:
    regarding: Regarding
    type: str
    reason: str
    message: str


@dataclasses.dataclass
class _Series:
    name: str
    count: int
    last: float


@dataclasses.dataclass
class _Allowance:
    left: float
    at: float


class _InTurn:
    """What is to be written: namespaces take turns, each with its own in order."""

    def __init__(self) -> None:
        self.idle = asyncio.Event()  # nothing is queued, nor being written
        self.idle.set()
        self._any = asyncio.Event()
        self._size = 0
        self._queued: collections.OrderedDict[str, collections.deque[_Key]] = collections.OrderedDict()

    def put(self, key: _Key) -> int:
        """Returns how many were dropped for it."""
        self._queued.setdefault(key.regarding.namespace, collections.deque()).append(key)
        self._size += 1
        self.idle.clear()
        self._any.set()
        if self._size <= QUEUE_MAX:
            return 0
        self._size -= 1
        namespace = max(self._queued, key=lambda name: len(self._queued[name]))
        self._queued[namespace].pop()
        if not self._queued[namespace]:
            del self._queued[namespace]
        return 1

    async def get(self) -> _Key:
        """Call `done` afterwards."""
        await self._any.wait()
        namespace, keys = self._queued.popitem(last=False)
        key = keys.popleft()
        self._size -= 1
        if keys:
            self._queued[namespace] = keys
        elif not self._queued:
            self._any.clear()
        return key

    def done(self) -> None:
        if not self._queued:
            self.idle.set()


class EventRecorder:
    """Events of one component. `record` from anywhere; `run` as one task."""

    def __init__(
        self,
        client: Client,
        component: str,
        *,
        instance: str = "",
        clock: Clock = time.monotonic,
        wall: Clock = time.time,
    ) -> None:
        self.dropped = 0
        self._client = client
        self._component = component
        self._instance = instance or component
        self._clock = clock
        self._wall = wall
        self._queue = _InTurn()
        self._series: collections.OrderedDict[_Key, _Series] = collections.OrderedDict()
        self._allowances: collections.OrderedDict[Regarding, _Allowance] = collections.OrderedDict()
        self._sequence = 0

    def record(self, regarding: Regarding, reason: str, message: str, *, type: str = "Normal") -> None:  # noqa: A002
        """Enqueues an event; `type` is Normal or Warning. Never blocks, never raises."""
        text = texts.plain(message).encode()[:MESSAGE_MAX_BYTES].decode(errors="ignore")
        if not self._allowed(regarding):
            self.dropped += 1
            return
        self.dropped += self._queue.put(_Key(regarding, type, reason, text))

    async def run(self) -> None:
        """Writes the recorded events, those of each namespace in order; never returns."""
        while True:
            key = await self._queue.get()
            try:
                await self._write(key)
            except errors.ApiError as error:
                self.dropped += 1
                log.log(
                    logging.DEBUG if error.transient or isinstance(error, errors.NotFound) else logging.WARNING,
                    "event %s on %s %s/%s not written: %s",
                    key.reason, key.regarding.kind, key.regarding.namespace, key.regarding.name, error,
                )  # fmt: skip
            finally:
                self._queue.done()

    async def drain(self) -> None:
        """Waits until every recorded event is written or dropped."""
        await self._queue.idle.wait()

    def _allowed(self, regarding: Regarding) -> bool:
        now = self._clock()
        allowance = self._allowances.get(regarding)
        if allowance is None:
            allowance = self._allowances[regarding] = _Allowance(PER_OBJECT_BURST, now)
            if len(self._allowances) > KNOWN_MAX:
                self._allowances.popitem(last=False)
        allowance.left = min(PER_OBJECT_BURST, allowance.left + (now - allowance.at) / PER_OBJECT_EVERY_S)
        allowance.at = now
        if allowance.left < 1:
            return False
        allowance.left -= 1
        return True

    async def _write(self, key: _Key) -> None:
        now = self._clock()
        stamp = timestamps.seconds(self._wall())
        namespace = key.regarding.namespace or "default"
        series = self._series.get(key)
        if series is not None and now - series.last < AGGREGATE_S:
            series.count += 1
            series.last = now
            try:
                body = {"count": series.count, "lastTimestamp": stamp}
                await self._client.patch(EVENTS, series.name, body, namespace=namespace)
            except errors.NotFound:  # expired in the apiserver
                del self._series[key]
            else:
                return
        self._sequence += 1
        name = f"{key.regarding.name[:200].rstrip('-.')}.{int(self._wall() * 1e9) + self._sequence:x}"
        await self._client.create(EVENTS, self._event(key, name, stamp), namespace)
        self._series[key] = _Series(name, 1, now)
        while len(self._series) > KNOWN_MAX:
            self._series.popitem(last=False)

    def _event(self, key: _Key, name: str, stamp: str) -> dict[str, Any]:
        about = key.regarding
        involved = {"apiVersion": about.api_version, "kind": about.kind, "name": about.name, "uid": about.uid}
        if about.namespace:
            involved["namespace"] = about.namespace
        return {
            "metadata": {"name": name, "namespace": about.namespace or "default"},
            "involvedObject": involved,
            "reason": key.reason,
            "message": key.message,
            "type": key.type,
            "count": 1,
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": self._instance,
        }
