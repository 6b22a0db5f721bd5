"""The life of one pod on a node: prepare, start, wait, stop, unprepare, report, remove.

Drivers and controllers rely on the order: nothing starts before all claims are prepared; claims are unprepared after the
last container ended and before the pod's end is reported, so that a claim is not deallocated while the node still holds
its devices. Works on one pod until it is deleted from the API, and until its containers have stopped; every step that fails
is tried again. A failed prepare waits for the pod's next sync, as upstream, where it counts as no error: a change of the
pod's spec or metadata starts one, a change of its status (the names of its claims) does not.
Source: kubernetes pkg/kubelet/kubelet.go (SyncPod, SyncTerminatingPod), pod_workers.go (completeWork), config/config.go
(checkAndUpdatePod), kuberuntime/kuberuntime_manager.go (SyncPod returns no error where resources are not prepared), 1.36.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from fairlead.kube import errors
from fairlead.kube.limits import Backoff, Clock
from fairlead.sandbox.kubelet import pod_status, runtime
from fairlead.sandbox.kubelet.cdi import CdiError, Edits
from fairlead.sandbox.kubelet.dra import DraManager, PrepareError
from fairlead.sandbox.kubelet.plugins import PluginError
from fairlead.sandbox.kubelet.pod_status import Refusal
from fairlead.sandbox.kubelet.runtime import SIGKILL_EXIT, Container, Program, Runtime, program_of
from fairlead.sandbox.objects import (
    Obj,
    containers_of,
    is_deleting,
    key_of,
    meta,
    name_of,
    namespace_of,
    phase_of,
    spec_of,
    uid_of,
)

log = logging.getLogger(__name__)

RETRY: Final = Backoff(base_s=0.2, max_s=5.0)  # of a write to the API
RESTART: Final = Backoff(base_s=1.0, max_s=300.0)


@dataclass(frozen=True, kw_only=True)
class KubeletAccess:
    """What a pod's worker may use of its kubelet.

    `sync_s` until a pod is looked at again, `backoff_s` after an error; up to half as much is added to either.
    """

    sync_s: float
    backoff_s: float
    dra: DraManager
    runtime: Runtime
    wall: Clock
    jitter: Callable[[Backoff, int], float]
    resolve: Callable[[list[str]], Edits]
    patch_status: Callable[[Obj, Obj], Awaitable[Obj | None]]
    remove: Callable[[Obj], Awaitable[None]]
    warn: Callable[[Obj, str, str], None]
    host_ip: str
    pod_ip: str


@dataclass(kw_only=True)
class PodWorker:
    kubelet: KubeletAccess
    pod: Obj
    refusal: Refusal | None = None
    gone: bool = False  # deleted from the API
    ended: bool = False  # its containers have stopped, its claims are unprepared
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _updated: asyncio.Event = field(default_factory=asyncio.Event)  # changed in more than its status

    def update(self, pod: Obj | None) -> None:
        if pod is None:
            self.gone = True
            self._updated.set()
        else:
            if _differs(self.pod, pod):
                self._updated.set()
            self.pod = pod
        self._changed.set()

    @property
    def uid(self) -> str:
        return uid_of(self.pod)

    def _stopped(self) -> bool:
        """The pod should not run (any more): deleted, being deleted, or given a final phase by another writer."""
        return self.gone or is_deleting(self.pod) or phase_of(self.pod) in {"Succeeded", "Failed"}

    async def run(self) -> None:
        """Until the pod is deleted from the API, and nothing of it is left on the node."""
        if self.refusal is None and not self._stopped() and await self._start():
            await self._watch()
        await self._finish()
        self.ended = True
        while not self.gone:
            if is_deleting(self.pod):
                with contextlib.suppress(errors.NotFound):
                    await self._retrying(lambda: self.kubelet.remove(self.pod), "remove")
                return
            await self._wait(None)

    # -- starting --------------------------------------------------------------------------------------------------

    async def _start(self) -> bool:
        """Prepare the claims and start the containers that do not run yet. False when the pod was stopped meanwhile."""
        first = True
        while not self._stopped():
            self._updated.clear()
            try:
                await self.kubelet.dra.prepare(self.pod)
                edits = {
                    str(each["name"]): self.kubelet.resolve(self.kubelet.dra.cdi_ids(self.pod, each))
                    for each in containers_of(self.pod)
                }
            except (PrepareError, PluginError, CdiError, errors.ApiError) as error:
                log.info("pod %s: %s", key_of(self.pod), error)
                self.kubelet.warn(
                    self.pod, "FailedPrepareDynamicResources", f"Failed to prepare dynamic resources: {error}"
                )
                if first:
                    await self._report(message=str(error))
                first = False
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._some_more(self.kubelet.sync_s)):
                        await self._updated.wait()
                continue
            if self._stopped():
                return False
            self._start_containers(edits)
            await self._report()
            return True
        return False

    def _start_containers(self, edits: dict[str, Edits]) -> None:
        # After a power loss the API shows pods as running whose containers do not exist.
        lost = phase_of(self.pod) == "Running" and not any(self._containers().values())
        delay_s = sum(program_of(each).run_s or 0.0 for each in spec_of(self.pod).get("initContainers") or ())
        for each in containers_of(self.pod):
            name = str(each["name"])
            if self.kubelet.runtime.find(self.uid, name) is not None:
                continue
            program = program_of(each)
            if lost and spec_of(self.pod).get("restartPolicy") == "Never":
                program = Program(0.0, SIGKILL_EXIT)
            elif delay_s and program.run_s is not None:
                program = Program(program.run_s + delay_s, program.exit_code)
            self.kubelet.runtime.start(
                self.uid,
                name,
                namespace=namespace_of(self.pod),
                pod=name_of(self.pod),
                program=program,
                edits=edits[name],
            )

    # -- running ---------------------------------------------------------------------------------------------------

    def _containers(self) -> dict[str, Container | None]:
        return {
            str(each["name"]): self.kubelet.runtime.find(self.uid, str(each["name"]))
            for each in containers_of(self.pod)
        }

    async def _watch(self) -> None:
        """Until every container has ended and none will be restarted, or the pod is stopped."""
        while not self._stopped():
            found = [each for each in self._containers().values() if each is not None]
            running = [each for each in found if each.ended_s is None]
            again = [each for each in found if pod_status.restarts(self.pod, each)]
            if again:
                await self._report()
                await self._wait(self.kubelet.jitter(RESTART, max(each.restarts for each in again)))
                if not self._stopped():
                    self._restart(again)
                    await self._report()
                continue
            if not running:
                return
            await self._wait(None, *(each.ended for each in running))
            if not self._stopped() and len(running) > 1:
                await self._report()

    def _restart(self, containers: list[Container]) -> None:
        specs = {str(each["name"]): each for each in containers_of(self.pod)}
        for each in containers:
            self.kubelet.runtime.start(
                self.uid,
                each.name,
                namespace=each.namespace,
                pod=each.pod,
                program=program_of(specs[each.name]),
                edits=each.edits,
                restarts=each.restarts + 1,
            )

    # -- ending ----------------------------------------------------------------------------------------------------

    async def _finish(self) -> None:
        """Stop the containers, unprepare the claims, then report the final phase: Failed also where nothing ever ran.

        Else a pod that finalizers keep would hold its claims forever. Source: KEP-3329; kubelet since 1.27.
        """
        await self._stop_containers()
        first = True
        while True:
            try:
                await self.kubelet.dra.unprepare(self.uid)
                break
            except (PluginError, PrepareError) as error:
                log.info("pod %s: %s", key_of(self.pod), error)
                if first:
                    self.kubelet.warn(self.pod, "FailedUnprepareDynamicResources", str(error))
                first = False
                await asyncio.sleep(self._some_more(self.kubelet.backoff_s))
        if self.refusal is not None:
            self.kubelet.warn(self.pod, self.refusal.reason, self.refusal.message)
            await self._write(pod_status.refused(self.pod, self.refusal, now_s=self.kubelet.wall()))
        elif not self.gone and phase_of(self.pod) not in {"Succeeded", "Failed"}:
            failed = any(each is None or each.exit_code for each in self._containers().values())
            await self._report(final="Failed" if failed else "Succeeded")
        self.kubelet.runtime.forget(self.uid)

    async def _stop_containers(self) -> None:
        """Stop the containers within the grace period. A deletion that shortens it begins again, with less."""
        allowed_s: float | None = None

        def grace_s() -> float:
            return runtime.grace_s(self.pod, before_s=allowed_s)

        while running := [each for each in self._containers().values() if each and each.ended_s is None]:
            allowed_s = grace_s()
            async with runtime.stop(self.kubelet.runtime, running, grace_s=allowed_s) as done:
                while not done.is_set() and grace_s() >= allowed_s:
                    await self._wait(None, done)

    async def _report(self, *, final: str = "", message: str = "") -> None:
        containers = self._containers()
        made = pod_status.status(
            self.pod,
            containers,
            now_s=self.kubelet.wall(),
            host_ip=self.kubelet.host_ip,
            pod_ip=self.kubelet.pod_ip,
            final=final,
            message=message,
        )
        await self._write(made)

    async def _write(self, made: Obj) -> None:
        async def patch() -> None:
            patched = await self.kubelet.patch_status(self.pod, made)
            if patched is not None and not self.gone:
                self.pod = patched

        await self._retrying(patch, "status")

    async def _retrying(self, call: Callable[[], Awaitable[None]], what: str) -> None:
        attempt = 0
        while not self.gone:
            try:
                return await call()
            except errors.NotFound:
                return None
            except errors.ApiError as error:
                log.info("pod %s: %s: %s", key_of(self.pod), what, error)
                await asyncio.sleep(self.kubelet.jitter(RETRY, attempt))
                attempt += 1
        return None

    def _some_more(self, delay_s: float) -> float:
        return self.kubelet.jitter(Backoff(base_s=delay_s, max_s=delay_s), 0)

    async def _wait(self, timeout_s: float | None, *events: asyncio.Event) -> None:
        """Until the pod changed in the API, one of the events is set, or the time is up."""
        self._changed.clear()
        tasks = [asyncio.ensure_future(each.wait()) for each in (self._changed, *events)]
        try:
            await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def _differs(before: Obj, after: Obj) -> bool:
    """Whether a change of a pod starts a sync: any but one of its status, or of managedFields."""
    fields = ("labels", "annotations", "deletionTimestamp", "deletionGracePeriodSeconds")
    return before.get("spec") != after.get("spec") or any(
        meta(before).get(each) != meta(after).get(each) for each in fields
    )
