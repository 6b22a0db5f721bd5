"""The kubelet of one simulated node: its parts, put together.

All its data about the cluster comes over HTTPS as system:node:<name>. It may be stopped and started again: what must
survive is in the state directory (claims) and in the Runtime (containers), which belong to the node.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from fairlead.kube import errors
from fairlead.kube.client import Client, Patch
from fairlead.kube.events import EventRecorder, Regarding
from fairlead.kube.informer import Change, Informer
from fairlead.kube.limits import Backoff, Clock
from fairlead.kube.resources import PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, Raw, raw
from fairlead.sandbox.informers import RECONNECT
from fairlead.sandbox.kubelet import cdi, node_object, pod_status
from fairlead.sandbox.kubelet.dra import DraManager
from fairlead.sandbox.kubelet.node_object import Machine
from fairlead.sandbox.kubelet.plugins import PluginManager
from fairlead.sandbox.kubelet.pod_status import Refusal
from fairlead.sandbox.kubelet.pod_worker import KubeletAccess, PodWorker
from fairlead.sandbox.kubelet.runtime import Container, Runtime
from fairlead.sandbox.objects import (
    TERMINAL_PHASES,
    Obj,
    is_deleting,
    key_of,
    meta,
    name_of,
    namespace_of,
    phase_of,
    uid_of,
)

log = logging.getLogger(__name__)

_PODS: Final = raw(PODS)
_CLAIMS: Final = raw(RESOURCE_CLAIMS)


@dataclass(frozen=True, kw_only=True)
class KubeletOptions:
    """`registry_dir`, `cdi_dir` and `state_dir` are the node's, and so are the paths in `host_paths`, each with its
    directory on this machine; the default times are the real kubelet's. `unseen` is in use on the node by what the API does
    not show: kubelet counts it, kube-scheduler cannot. It may change while kubelet runs.
    """

    node_name: str
    registry_dir: Path
    cdi_dir: Path
    state_dir: Path
    host_paths: Mapping[str, Path] = field(default_factory=dict)
    machine: Machine = field(default_factory=Machine)
    unseen: Mapping[str, str] = field(default_factory=dict)
    sync_s: float = 60.0
    backoff_s: float = 10.0
    lease_s: float = 40.0
    wiping_delay_s: float = 30.0
    reconcile_s: float = 60.0


class Kubelet:
    """`run()` never returns; cancel it, and containers go on without it."""

    def __init__(
        self, client: Client, options: KubeletOptions, runtime: Runtime, *, random: Random, wall: Clock = time.time
    ) -> None:
        self.options = options
        self.ready = asyncio.Event()
        self._client = client
        self._runtime = runtime
        self._random = random
        self._wall = wall
        options.state_dir.mkdir(parents=True, exist_ok=True)
        self._events = EventRecorder(client, "kubelet", instance=options.node_name)
        self.plugins = PluginManager(
            registry_dir=options.registry_dir,
            host_paths=options.host_paths,
            on_found=self._driver_found,
            on_lost=self._driver_lost,
        )
        self.dra = DraManager(state_dir=options.state_dir, get_claim=self._get_claim, plugin=self.plugins.get)
        self._pods = Informer(client, _PODS, fields=f"spec.nodeName={options.node_name}", backoff=RECONNECT)
        self._workers: dict[str, tuple[PodWorker, asyncio.Task[None]]] = {}
        self._wipes: dict[str, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None
        self._driver_connected = asyncio.Event()

    @property
    def containers(self) -> dict[tuple[str, str, str], Container]:
        """By namespace, pod and container, what runs on the node now, with what its CDI edits gave it."""
        return self._runtime.running

    async def run(self) -> None:
        name, machine = self.options.node_name, self.options.machine
        await self._wipe("", delay_s=0.0)  # as at every start: the driver of a slice may not exist any more
        registered = await self._register()
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                self._pods.subscribe(self._pod_changed)
                group.create_task(self.plugins.run(), name=f"{name}: plugins")
                group.create_task(self._events.run(), name=f"{name}: events")
                group.create_task(self._pods.run(), name=f"{name}: pods")
                group.create_task(self._reconcile(), name=f"{name}: reconcile")
                group.create_task(
                    node_object.heartbeat(
                        self._client, name, machine, registered, wall=self._wall, lease_s=self.options.lease_s
                    ),
                    name=f"{name}: heartbeat",
                )
                await self._pods.synced.wait()
                self.ready.set()
        finally:
            self._group = None

    async def _register(self) -> Obj:
        attempt = 0
        while True:
            try:
                return await node_object.register(
                    self._client, self.options.node_name, self.options.machine, wall=self._wall
                )
            except errors.ApiError as error:
                log.info("node %s: not registered yet: %s", self.options.node_name, error)
                await asyncio.sleep(self._jitter(RECONNECT, attempt))
                attempt += 1

    # -- pods ------------------------------------------------------------------------------------------------------

    def _pod_changed(self, change: Change[Raw]) -> None:
        uid = uid_of(change.object)
        known = self._workers.get(uid)
        if known is not None:
            known[0].update(change.new)
        elif change.new is not None and self._group is not None:
            worker = PodWorker(kubelet=self._access(change.new), pod=change.new, refusal=self._refusal(change.new))
            task = self._group.create_task(self._work(worker), name=f"pod {change.key}")
            self._workers[uid] = (worker, task)

    def _refusal(self, pod: Obj) -> Refusal | None:
        """Why this pod, which kubelet sees for the first time, is not taken. After a restart the oldest come first."""
        if is_deleting(pod) or phase_of(pod) in TERMINAL_PHASES:
            return None
        others = [worker.pod for worker, _ in self._workers.values() if _is_active(worker)]
        others += [
            each
            for each in self._pods.all()
            if uid_of(each) not in self._workers and _age(each) < _age(pod) and phase_of(each) not in TERMINAL_PHASES
        ]
        found = pod_status.refusal(pod, others, allocatable=self.options.machine.amounts, unseen=self.options.unseen)
        if found is not None:
            log.info("node %s: pod %s: %s: %s", self.options.node_name, key_of(pod), found.reason, found.message)
        return found

    async def _work(self, worker: PodWorker) -> None:
        try:
            await worker.run()
        except Exception:
            log.exception("node %s: pod %s", self.options.node_name, name_of(worker.pod))
        finally:
            del self._workers[worker.uid]

    def _access(self, pod: Obj) -> KubeletAccess:
        number = int.from_bytes(uid_of(pod).encode()[-2:], "big")
        return KubeletAccess(
            sync_s=self.options.sync_s,
            backoff_s=self.options.backoff_s,
            dra=self.dra,
            runtime=self._runtime,
            wall=self._wall,
            jitter=self._jitter,
            resolve=lambda names: cdi.resolve(self.options.cdi_dir, names),
            patch_status=self._patch_status,
            remove=self._remove,
            warn=lambda subject, reason, message: self._events.record(
                Regarding.of(PODS, subject), reason, message, type="Warning"
            ),
            host_ip=self.options.machine.address,
            pod_ip=f"10.244.{number >> 8}.{number & 255}",
        )

    async def _patch_status(self, pod: Obj, status: Obj) -> Obj | None:
        body = {"metadata": {"uid": uid_of(pod)}, "status": status}
        patched = await self._client.patch(
            _PODS, name_of(pod), body, namespace=namespace_of(pod), kind=Patch.STRATEGIC, subresource="status"
        )
        self._pods.note(patched)
        return patched

    async def _remove(self, pod: Obj) -> None:
        await self._client.delete(_PODS, name_of(pod), namespace_of(pod), uid=uid_of(pod), grace_period_s=0)

    async def _get_claim(self, namespace: str, name: str) -> Obj | None:
        try:
            return await self._client.get(_CLAIMS, name, namespace)
        except errors.NotFound:
            return None

    async def _reconcile(self) -> None:
        """Unprepare what pods held that are not on this node any more: they may have ended while kubelet did not run."""
        await self._pods.synced.wait()
        while True:
            live = {uid_of(pod) for pod in self._pods.all()}
            for uid in self._runtime.pods() - live - set(self._workers):
                self._runtime.forget(uid)
            await self.dra.reconcile(live | set(self._workers))
            # A driver that has just connected may be the one that was missing.
            self._driver_connected.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.options.reconcile_s):
                    await self._driver_connected.wait()

    # -- drivers ---------------------------------------------------------------------------------------------------

    def _driver_found(self, driver: str) -> None:
        self._driver_connected.set()
        wipe = self._wipes.pop(driver, None)
        if wipe is not None:
            wipe.cancel()

    def _driver_lost(self, driver: str) -> None:
        if self._group is None or driver in self._wipes:
            return
        wipe = self._wipe(driver, delay_s=self.options.wiping_delay_s)
        try:
            self._wipes[driver] = self._group.create_task(wipe, name=f"wipe {driver}")
        except RuntimeError:  # the group is shutting down: a kubelet that stops wipes nothing
            wipe.close()

    async def _wipe(self, driver: str, *, delay_s: float) -> None:
        """Delete this node's ResourceSlices (of one driver), unless the driver is back within the delay."""
        await asyncio.sleep(delay_s)
        fields = f"spec.nodeName={self.options.node_name}" + (f",spec.driver={driver}" if driver else "")
        attempt = 0
        while True:
            try:
                await self._client.request("DELETE", RESOURCE_SLICES.path(), params={"fieldSelector": fields})
                self._wipes.pop(driver, None)
                return
            except errors.ApiError as error:
                log.info("node %s: slices not wiped yet: %s", self.options.node_name, error)
                await asyncio.sleep(self._jitter(RECONNECT, attempt))
                attempt += 1

    def _jitter(self, backoff: Backoff, attempt: int) -> float:
        return backoff.delay(attempt, self._random)


def _is_active(worker: PodWorker) -> bool:
    """Whether a pod takes part of the node: also while it stops; not once it is deleted from the API."""
    return not worker.gone and not worker.ended and worker.refusal is None


def _age(pod: Obj) -> tuple[str, str]:
    return str(meta(pod).get("creationTimestamp") or ""), uid_of(pod)
