"""The driver as kubelet calls it: prepare and unprepare in two versions of the protocol, registration, health.

Exists to keep gRPC out of everything else. `Plugin` fetches claims, keeps the deadline and answers for every UID it was
asked for, each on its own: one claim's failure is not another's. The servicers only translate.
Keeps: the answer holds exactly the UIDs asked for; the claim is read from the apiserver at each prepare and must be the
one that kubelet means (same UID, allocated); unprepare needs no apiserver.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from types import ModuleType
from typing import Any, Protocol, TypeVar

from fairlead.driver.common.metrics import Metrics
from fairlead.driver.common.process_lock import ProcessLock, ProcessLockError
from fairlead.driver.common.threads import Threads
from fairlead.driver.kubelet import protocol
from fairlead.driver.kubelet.protocol import dra_health_v1alpha1_pb2 as health_pb2
from fairlead.driver.kubelet.protocol import pluginregistration_v1_pb2 as registration_pb2
from fairlead.driver.prepare import cdi, claims
from fairlead.driver.prepare.claims import ClaimError
from fairlead.driver.prepare.preparer import PrepareError, Preparer
from fairlead.driver.prepare.records import ClaimRecord
from fairlead.driver.publish.health_feed import HealthFeed
from fairlead.kube import errors, logs
from fairlead.kube.resource import ResourceClaim

log = logging.getLogger(__name__)

# Kubelet gives up after 45 s; an answer that says why is better than none.
DEADLINE_S = 40.0

T = TypeVar("T")
Fetch = Callable[[str, str], Awaitable[ResourceClaim]]


@dataclasses.dataclass(frozen=True, slots=True)
class ClaimRef:
    """A claim as kubelet names it."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"ResourceClaim {self.namespace}/{self.name}"


class _Wire(Protocol):
    namespace: str
    name: str
    uid: str


class Plugin:
    """What the services do. `fetch(namespace, name)` reads a claim from the apiserver."""

    def __init__(
        self,
        preparer: Preparer,
        *,
        fetch: Fetch,
        process_lock: ProcessLock,
        threads: Threads,
        metrics: Metrics,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        self._preparer = preparer
        self._fetch = fetch
        self._process_lock = process_lock
        self._threads = threads
        self._metrics = metrics
        self._deadline_s = deadline_s
        self._running: dict[tuple[str, str], asyncio.Task[Any]] = {}

    async def prepare(self, wanted: Iterable[ClaimRef]) -> dict[str, ClaimRecord | str]:
        """By UID: the record to answer from, or what went wrong."""
        return await self._each("NodePrepareResources", wanted, self._prepare)

    async def unprepare(self, wanted: Iterable[ClaimRef]) -> dict[str, str | None]:
        """By UID: None, or what went wrong."""
        return await self._each("NodeUnprepareResources", wanted, self._unprepare)

    async def give_back(self, record: ClaimRecord) -> None:
        """Unprepare without kubelet's call. Raises PrepareError."""
        ref = ClaimRef(namespace=record.namespace, name=record.name, uid=record.uid)
        answer = (await self.unprepare([ref]))[record.uid]
        if answer is not None:
            raise PrepareError(answer)

    async def _each(
        self, operation: str, wanted: Iterable[ClaimRef], one: Callable[[ClaimRef], Awaitable[T]]
    ) -> dict[str, T | str]:
        refs = list({ref.uid: ref for ref in wanted}.values())
        if not refs:
            return {}  # a probe
        with self._metrics.call(operation), logs.operation(log, operation, claims=len(refs)):
            answers = await asyncio.gather(*(self._answer(operation, ref, one) for ref in refs))
        return dict(zip((ref.uid for ref in refs), answers, strict=True))

    async def _answer(self, operation: str, ref: ClaimRef, one: Callable[[ClaimRef], Awaitable[T]]) -> T | str:
        """Whatever `one` gives, or the text of what it raised: an unforeseen error is an answer too."""
        began = time.monotonic()
        task = self._start(operation, ref, one)
        done, _ = await asyncio.wait({task}, timeout=self._deadline_s)
        try:
            if not done:
                raise PrepareError(
                    f"{ref}: not done within {self._deadline_s:g} s; it goes on, and kubelet's next call finds it "
                    "done. If this repeats, a GPU of the claim does not answer: see the driver's log"
                )
            answer: T = task.result()
        except (ClaimError, PrepareError, ProcessLockError) as error:
            problem = str(error)
        except errors.ApiError as error:
            problem = f"{ref}: reading it from the apiserver: {error}"
        except Exception as error:
            log.exception("%s: %s (%s)", operation, ref, ref.uid)
            problem = f"{ref}: internal error: {type(error).__name__}: {error}"
        else:
            self._metrics.claim(operation, "ok", time.monotonic() - began)
            log.info("%s: %s", operation, ref, extra={"claim": ref.uid, "devices": _devices(answer)})
            return answer
        self._metrics.claim(operation, "error", time.monotonic() - began)
        log.error("%s: %s", operation, problem, extra={"claim": ref.uid})
        return problem

    def _start(self, operation: str, ref: ClaimRef, one: Callable[[ClaimRef], Awaitable[T]]) -> asyncio.Task[T]:
        """The work on this claim: that of an earlier call, if it still hangs, so that retries do not pile up."""
        key = (operation, ref.uid)
        if key not in self._running:
            task = asyncio.get_running_loop().create_task(_call(one, ref))
            self._running[key] = task
            task.add_done_callback(lambda _: self._running.pop(key, None))
        return self._running[key]

    async def close(self) -> None:
        """Stop waiting for work that still goes on; its threads end with the process."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _prepare(self, ref: ClaimRef) -> ClaimRecord:
        claim = await self._fetch(ref.namespace, ref.name)
        if claim.metadata.uid != ref.uid:
            raise ClaimError(
                f"{ref}: metadata.uid: kubelet asks for {ref.uid}, the apiserver has {claim.metadata.uid}: it was "
                "deleted and made anew; delete the pod that used the old one"
            )
        if claim.status.allocation is None:
            raise ClaimError(f"{claims.describe(claim)}: status.allocation: not set; it is prepared once allocated")
        async with self._process_lock.hold(timeout_s=self._deadline_s):
            return await self._threads.run(self._preparer.prepare, claim)

    async def _unprepare(self, ref: ClaimRef) -> None:
        async with self._process_lock.hold(timeout_s=self._deadline_s):
            if not await self._threads.run(self._preparer.unprepare, ref.uid):
                log.info("%s (%s) was not prepared here; nothing to do", ref, ref.uid)


async def _call(one: Callable[[ClaimRef], Awaitable[T]], ref: ClaimRef) -> T:
    return await one(ref)


def _devices(answer: object) -> list[str]:
    return [device.device for device in answer.devices] if isinstance(answer, ClaimRecord) else []


class DraService:
    """DRAPlugin, for the message module of one version; v1beta1 differs only in having no share_id."""

    def __init__(self, plugin: Plugin, messages: ModuleType, *, shares: bool) -> None:
        self._plugin = plugin
        self._messages: Any = messages
        self._shares = shares

    async def NodePrepareResources(self, request: Any, context: object) -> Any:  # noqa: N802
        response = self._messages.NodePrepareResourcesResponse()
        for uid, answer in (await self._plugin.prepare(_refs(request.claims))).items():
            entry = response.claims[uid]
            if isinstance(answer, str):
                entry.error = answer
                continue
            for device in answer.devices:
                made = entry.devices.add(
                    request_names=[device.request_name],
                    pool_name=device.pool,
                    device_name=device.device,
                    cdi_device_ids=[cdi.device_id(answer.uid, device)],
                )
                if self._shares and device.share_id:
                    made.share_id = device.share_id
        return response

    async def NodeUnprepareResources(self, request: Any, context: object) -> Any:  # noqa: N802
        response = self._messages.NodeUnprepareResourcesResponse()
        for uid, answer in (await self._plugin.unprepare(_refs(request.claims))).items():
            entry = response.claims[uid]
            if isinstance(answer, str):
                entry.error = answer
        return response


def _refs(wanted: Iterable[_Wire]) -> list[ClaimRef]:
    return [ClaimRef(namespace=claim.namespace, name=claim.name, uid=claim.uid) for claim in wanted]


class RegistrationService:
    """Kubelet asks who is there and says whether it took us. `registered` is None until then."""

    def __init__(self, *, driver: str, endpoint: str) -> None:
        self.registered: bool | None = None
        self.problem: str | None = "kubelet has not registered the driver yet"
        self._driver = driver
        self._endpoint = endpoint

    async def GetInfo(self, request: object, context: object) -> registration_pb2.PluginInfo:  # noqa: N802
        return registration_pb2.PluginInfo(
            type=protocol.PLUGIN_TYPE,
            name=self._driver,
            endpoint=self._endpoint,
            supported_versions=protocol.SUPPORTED_VERSIONS,
        )

    async def NotifyRegistrationStatus(  # noqa: N802
        self, request: registration_pb2.RegistrationStatus, context: object
    ) -> registration_pb2.RegistrationStatusResponse:
        self.registered = request.plugin_registered
        if request.plugin_registered:
            self.problem = None
            log.info("kubelet registered %s", self._driver)
        else:
            self.problem = f"kubelet refused to register {self._driver}: {request.error}"
            log.error("%s", self.problem)
        return registration_pb2.RegistrationStatusResponse()


_STATES = {
    "healthy": health_pb2.HEALTHY,
    "unhealthy": health_pb2.UNHEALTHY,
    "unknown": health_pb2.UNKNOWN,
}


class HealthService:
    """The stream that kubelet shows in `allocatedResourcesStatus` of pods."""

    def __init__(self, feed: HealthFeed) -> None:
        self._feed = feed

    async def NodeWatchResources(  # noqa: N802
        self, request: object, context: object
    ) -> AsyncIterator[health_pb2.NodeWatchResourcesResponse]:
        async for states in self._feed.subscribe():
            yield health_pb2.NodeWatchResourcesResponse(
                devices=[
                    health_pb2.DeviceHealth(
                        device=health_pb2.DeviceIdentifier(pool_name=state.pool, device_name=state.device),
                        health=_STATES[state.state],
                        last_updated_time=int(state.updated_s),
                        message=state.message,
                    )
                    for state in states
                ]
            )
