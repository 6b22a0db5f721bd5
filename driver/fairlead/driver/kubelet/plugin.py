"""One call of kubelet: each claim fetched, prepared or unprepared on its own, and answered within the deadline.

server.py translates from and to messages. Keeps: the answer holds exactly the UIDs of the call; one claim's failure is
not another's; at each prepare the claim is read from the apiserver and must be the one that kubelet means (same UID,
allocated); unprepare needs no apiserver. A prepare that meets devices of a claim that is gone waits for kubelet to unprepare them,
`wait_s` at most, and holds no lock meanwhile: answered with an error, the pod would be tried again only a minute later.

Why a claim is not prepared kubelet says in an Event on the pod only; the controller reads claims, and tells the gang. So it is written
into the claim's status, and taken back when the claim is prepared, by server-side apply with a field manager of its own. kubelet's answer
waits for no write; a claim that is refused again for the same reason is not written again; what cannot be written is one line in the log.

A claim whose annotation names a trace has a span of its prepare in it: those that the controller makes, and those of users who write the
annotation. kubelet names no pods to a driver, and the claim is all that is read from the apiserver.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

from fairlead.api import trace_context
from fairlead.driver.common.locks import ProcessLock, ProcessLockError
from fairlead.driver.common.metrics import Metrics
from fairlead.driver.common.threads import Threads
from fairlead.driver.prepare import claims
from fairlead.driver.prepare.claims import ClaimError
from fairlead.driver.prepare.orphans import Fetch
from fairlead.driver.prepare.preparer import OccupiedError, PrepareError, Preparer
from fairlead.driver.prepare.records import ClaimRecord
from fairlead.kube import errors, logs, prepare_refusals
from fairlead.kube.client import Client, Patch
from fairlead.kube.limits import Clock
from fairlead.kube.resource import ResourceClaim
from fairlead.kube.resources import RESOURCE_CLAIMS, raw
from fairlead.kube.tracing import OFF, Span, Tracing

log = logging.getLogger(__name__)


# kubelet times out after 45 s; an answer with a reason is better than none.
DEADLINE_S = 40.0
LOOK_S = 0.1
RETRY_S = 2.0
"""How often a claim looks for one that it waits for; and is tried, as another process may undo that one."""

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class ClaimRef:
    """A claim as kubelet names it."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"ResourceClaim {self.namespace}/{self.name}"


def _ignore(ref: ClaimRef, problem: str | None) -> None:
    pass


@dataclasses.dataclass(eq=False)
class Plugin:
    """`fetch(namespace, name)` reads a claim from the apiserver; `is_orphan` says whether a record's claim is gone.

    `outcome` is called with why a claim is not prepared, and with None when it is.
    """

    preparer: Preparer
    _: dataclasses.KW_ONLY
    fetch: Fetch
    process_lock: ProcessLock
    threads: Threads
    metrics: Metrics
    is_orphan: Callable[[ClaimRecord], Awaitable[bool]]
    wait_s: float
    outcome: Callable[[ClaimRef, str | None], None] = _ignore
    deadline_s: float = DEADLINE_S
    tracing: Tracing = OFF

    def __post_init__(self) -> None:
        self._preparing: dict[str, asyncio.Event] = {}  # by UID; set: kubelet has unprepared the claim meanwhile
        self._running: dict[tuple[str, str], asyncio.Task[Any]] = {}

    async def prepare(self, wanted: Iterable[ClaimRef]) -> dict[str, ClaimRecord | str]:
        """By UID: the record with the answer, or the error."""
        refs = list(wanted)
        answers = await self._for_each("NodePrepareResources", refs, self._prepare)
        for ref in refs:
            answer = answers[ref.uid]
            self.outcome(ref, answer if isinstance(answer, str) else None)
        return answers

    async def unprepare(self, wanted: Iterable[ClaimRef]) -> dict[str, str | None]:
        """By UID: None, or the error."""
        return await self._for_each("NodeUnprepareResources", wanted, self._unprepare)

    async def unprepare_record(self, record: ClaimRecord) -> None:
        """Unprepare without a call of kubelet. Raises PrepareError."""
        ref = ClaimRef(namespace=record.namespace, name=record.name, uid=record.uid)
        answer = (await self.unprepare([ref]))[record.uid]
        if answer is not None:
            raise PrepareError(answer)

    async def _for_each(
        self, operation: str, wanted: Iterable[ClaimRef], one: Callable[[ClaimRef], Awaitable[T]]
    ) -> dict[str, T | str]:
        refs = list({ref.uid: ref for ref in wanted}.values())
        if not refs:
            return {}  # a probe
        with self.metrics.call(operation), logs.operation(log, operation, claims=len(refs)):
            answers = await asyncio.gather(*(self._answer(operation, ref, one) for ref in refs))
        return dict(zip((ref.uid for ref in refs), answers, strict=True))

    async def _answer(self, operation: str, ref: ClaimRef, one: Callable[[ClaimRef], Awaitable[T]]) -> T | str:
        """The result of `one`, or the text of the error that it raised, whatever error that is."""
        began = time.monotonic()
        task = self._start(operation, ref, one)
        done, _ = await asyncio.wait({task}, timeout=self.deadline_s)
        try:
            if not done:
                raise PrepareError(
                    f"{ref}: not done within {self.deadline_s:g} s; it goes on, and kubelet's next call finds it "
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
            self.metrics.claim(operation, "ok", time.monotonic() - began)
            log.info("%s: %s", operation, ref, extra={"claim": ref.uid, "devices": _devices(answer)})
            return answer
        self.metrics.claim(operation, "error", time.monotonic() - began)
        log.error("%s: %s", operation, problem, extra={"claim": ref.uid})
        return problem

    def _start(self, operation: str, ref: ClaimRef, one: Callable[[ClaimRef], Awaitable[T]]) -> asyncio.Task[T]:
        """The task for this claim: that of an earlier call if it still runs, so that retries do not pile up."""
        key = (operation, ref.uid)
        if key not in self._running:
            task = asyncio.get_running_loop().create_task(_call(one, ref))
            self._running[key] = task
            task.add_done_callback(lambda _: self._running.pop(key, None))
        return self._running[key]

    async def close(self) -> None:
        """Stop waiting for work in progress; its threads end with the process."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _prepare(self, ref: ClaimRef) -> ClaimRecord:
        began_s = time.time()
        claim = await self._read(ref)
        ended = self._preparing[ref.uid] = asyncio.Event()
        try:
            with prepare_span(self.tracing, claim, began_s, wall=time.time):
                until_s = time.monotonic() + self.wait_s
                while True:
                    try:
                        async with self.process_lock.hold(timeout_s=self.deadline_s):
                            return await self.threads.run(self.preparer.prepare, claim)
                    except OccupiedError as error:
                        if not await self._released(ref, error, until_s, ended):
                            raise
                    claim = await self._read(ref)
                    if ended.is_set():
                        raise PrepareError(f"{ref}: its pod has ended meanwhile")
        finally:
            del self._preparing[ref.uid]

    async def _read(self, ref: ClaimRef) -> ResourceClaim:
        claim = await self.fetch(ref.namespace, ref.name)
        if claim.metadata.uid != ref.uid:
            raise ClaimError(
                f"{ref}: metadata.uid: kubelet asks for {ref.uid}, the apiserver has {claim.metadata.uid}: it was "
                "deleted and recreated; delete the pod that used the old one"
            )
        if claim.status.allocation is None:
            raise ClaimError(f"{claims.describe(claim)}: status.allocation: not set; it is prepared once allocated")
        return claim

    async def _released(self, ref: ClaimRef, occupied: OccupiedError, until_s: float, ended: asyncio.Event) -> bool:
        """Whether it is worth another try: the holders are being released, and one of them may be by now."""
        if not all([each.state == "unpreparing" or await self.is_orphan(each) for each in occupied.holders]):
            return False
        log.info("%s waits: %s", ref, occupied)
        self.outcome(ref, str(occupied))
        retry_s = min(until_s, time.monotonic() + RETRY_S)
        while time.monotonic() < retry_s:
            if any(self.preparer.record(each.uid) is None for each in occupied.holders):
                return True
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await ended.wait()
                    return False
        if retry_s >= until_s:
            self._tell_when_free(ref, occupied)
        return retry_s < until_s

    def _tell_when_free(self, ref: ClaimRef, occupied: OccupiedError) -> None:
        """Says so when a claim that could not be waited for may be tried again: kubelet itself tries a minute later."""

        async def watch(ref: ClaimRef) -> None:
            while any(self.preparer.record(each.uid) for each in occupied.holders):  # noqa: ASYNC110 - threads change them
                await asyncio.sleep(1.0)
            self.outcome(ref, None)

        self._start("watch", ref, watch)

    async def _unprepare(self, ref: ClaimRef) -> None:
        if (preparing := self._preparing.get(ref.uid)) is not None:
            preparing.set()  # its pod has ended: prepared now, it would never be unprepared
        async with self.process_lock.hold(timeout_s=self.deadline_s):
            if not await self.threads.run(self.preparer.unprepare, ref.uid):
                log.info("%s (%s) was not prepared here; nothing to do", ref, ref.uid)


async def _call(one: Callable[[ClaimRef], Awaitable[T]], ref: ClaimRef) -> T:
    return await one(ref)


def _devices(answer: object) -> list[str]:
    return [device.device for device in answer.devices] if isinstance(answer, ClaimRecord) else []


# -- what is said of it: traces, and refusals in claims ----------------------------------------------------------------

ERROR_CHARS_MAX = 1_000


@contextlib.contextmanager
def prepare_span(tracing: Tracing, claim: ResourceClaim, began_s: float, *, wall: Clock) -> Iterator[None]:
    """What is done inside is part of the claim's prepare, which began at `began_s` (unix seconds). Errors pass through."""
    trace = None if tracing is OFF else trace_context.of(claim.metadata.annotations)
    if trace is None or not trace.sampled:
        yield
        return
    error = ""
    try:
        yield
    except BaseException as raised:
        error = (str(raised) or type(raised).__name__)[:ERROR_CHARS_MAX]
        raise
    finally:
        allocation = claim.status.allocation
        results = allocation.devices.results if allocation is not None else ()
        tracing.add(
            Span(
                name="prepare",
                at=trace.span("prepare", claim.metadata.uid, repr(began_s)),
                parent=trace.span_id,
                began_s=began_s,
                ended_s=wall(),
                attributes={
                    "k8s.namespace.name": claim.metadata.namespace,
                    "fairlead.claim": claim.metadata.name,
                    "fairlead.devices": len(results),
                    "fairlead.pods": len(claim.status.reserved_for),
                    **({"k8s.node.name": results[0].pool} if results else {}),
                },
                error=error,
            )
        )


FIELD_MANAGER: Final = "fairlead-driver-prepare"
KNOWN_MAX = 1024
Key = tuple[str, str, str]
"""Namespace, name, UID."""


class Refusals:
    """`note` says what became of a prepare, `run` writes it. `fetch` reads a claim; `pool` is the node's."""

    def __init__(self, client: Client, *, fetch: Fetch, pool: str) -> None:
        self._client = client
        self._fetch = fetch
        self._pool = pool
        self._refused: dict[Key, str] = {}  # as it is written, or will be
        self._due: dict[Key, str] = {}
        self._wake = asyncio.Event()

    def note(self, key: Key, problem: str | None) -> None:
        """The claim is refused because of `problem`; None: it is prepared."""
        if self._refused.get(key) == problem:
            return
        if problem is None:
            del self._refused[key]
        else:
            if len(self._refused) >= KNOWN_MAX:
                self._refused.clear()
            self._refused[key] = problem
        self._due[key] = problem or ""
        self._wake.set()

    async def run(self) -> None:
        """Never returns."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._due:
                key = next(iter(self._due))
                await self._write(key, self._due.pop(key))

    async def _write(self, key: Key, problem: str) -> None:
        namespace, name, uid = key
        try:
            devices: list[Mapping[str, Any]] = []
            if problem:
                claim = await self._fetch(namespace, name)
                if claim.metadata.uid != uid:
                    return
                said = prepare_refusals.conditions(problem, time.time())
                devices = prepare_refusals.entries(claim, conditions=said, pool=self._pool)
            body = {"metadata": {"name": name, "namespace": namespace, "uid": uid}, "status": {"devices": devices}}
            await self._client.patch(
                raw(RESOURCE_CLAIMS),
                name,
                body,
                namespace=namespace,
                kind=Patch.APPLY,
                subresource="status",
                field_manager=FIELD_MANAGER,
                force=True,
            )
        except (errors.NotFound, errors.Conflict):
            pass  # gone, or another of its name
        except errors.ApiError as error:
            log.warning(
                "ResourceClaim %s/%s: why it is not prepared is not written into it: %s", namespace, name, error
            )
        except Exception:  # nothing of this may end the driver
            log.exception("ResourceClaim %s/%s: why it is not prepared is not written into it", namespace, name)
