"""The Job controller: writes the status, releases recorded pods, deletes and creates.

The decisions are in jobs.py and job_pods.py; here are the caches and the writes. Runs as
system:serviceaccount:kube-system:job-controller.
"""

from __future__ import annotations

import logging
import time
from typing import Final

from fairlead.kube import errors
from fairlead.kube.client import Client, Patch
from fairlead.kube.events import EventRecorder, Regarding
from fairlead.kube.informer import Change
from fairlead.kube.limits import Clock
from fairlead.kube.resources import JOBS, PODS, Raw, raw
from fairlead.sandbox.controllers import job_pods, jobs
from fairlead.sandbox.controllers.job_pods import BackoffRecord
from fairlead.sandbox.controllers.loop import Loop
from fairlead.sandbox.informers import Informers
from fairlead.sandbox.objects import Obj, controller_of, finalizers_of, is_true, key_of, name_of, namespace_of, uid_of

log = logging.getLogger(__name__)

ORPHAN: Final = "orphan:"
_JOBS: Final = raw(JOBS)
_PODS: Final = raw(PODS)


class JobController(Loop[str]):
    name = "job controller"

    def __init__(
        self,
        client: Client,
        informers: Informers,
        events: EventRecorder,
        *,
        backoff_s: float = 10.0,
        batch_s: float = 0.0,
        wall: Clock = time.time,
    ) -> None:
        super().__init__()
        self._client = client
        self._events = events
        self._backoff_s = backoff_s
        self._batch_s = batch_s
        self._backoffs: dict[str, BackoffRecord] = {}  # by UID of the Job
        self._wall = wall
        self._jobs = informers.of(JOBS)
        self._pods = informers.of(PODS)
        self._jobs.subscribe(self._job_changed)
        self._pods.subscribe(self._pod_changed)

    def _job_changed(self, change: Change[Raw]) -> None:
        self.queue.add(change.key)
        if change.new is None:
            self._backoffs.pop(uid_of(change.object), None)
            for pod in self._pods.by_index("owner", uid_of(change.object)):
                self.queue.add(f"{ORPHAN}{key_of(pod)}")

    def _pod_changed(self, change: Change[Raw]) -> None:
        owner = controller_of(change.object)
        if owner is None or owner.get("kind") != "Job":
            return
        key = f"{namespace_of(change.object)}/{owner['name']}"
        job = self._jobs.get(key)
        if job is not None and uid_of(job) == owner["uid"]:
            self.queue.add_after(key, self._batch_s)  # upstream: syncJobBatchPeriod, 1 s
        elif change.new is not None and job_pods.is_tracked(change.new):
            self.queue.add(f"{ORPHAN}{change.key}")

    async def sync(self, key: str) -> None:
        if key.startswith(ORPHAN):
            await self._sync_orphan(key.removeprefix(ORPHAN))
            return
        job = self._jobs.get(key)
        if job is None or jobs.is_managed_elsewhere(job):
            return
        pods = self._pods.by_index("owner", uid_of(job))
        record = self._backoffs.get(uid_of(job), BackoffRecord())
        work = jobs.job_work(job, pods, now_s=self._wall(), backoff_s=self._backoff_s, backoff=record)
        if work.status is not None:
            before = job
            job = await self._client.replace(_JOBS, {**job, "status": work.status}, subresource="status")
            self._jobs.note(job)
            self._record(before, job)
        self._backoffs[uid_of(job)] = work.backoff
        by_name = {name_of(pod): pod for pod in pods}
        for name in work.releases:
            await self._release(by_name[name])
        for name in work.deletes:
            await self._delete(job, by_name[name])
        for wanted in work.creates:
            created = await self._client.create(_PODS, wanted, namespace_of(job))
            self._pods.note(created)
            self._events.record(Regarding.of(JOBS, job), "SuccessfulCreate", f"Created pod: {name_of(created)}")
        if work.again_after_s is not None:
            self.queue.add_after(key, work.again_after_s)

    async def _sync_orphan(self, key: str) -> None:
        """A pod whose Job does not exist is not counted: its tracking finalizer is removed."""
        pod = self._pods.get(key)
        owner = controller_of(pod) if pod is not None else None
        if pod is None or owner is None or not job_pods.is_tracked(pod):
            return
        try:
            job = await self._client.get(_JOBS, str(owner["name"]), namespace_of(pod))
        except errors.NotFound:
            await self._release(pod)
            return
        if uid_of(job) != owner["uid"]:
            await self._release(pod)

    async def _release(self, pod: Obj) -> None:
        kept = [each for each in finalizers_of(pod) if each != job_pods.TRACKING]
        body = {"metadata": {"uid": uid_of(pod), "finalizers": kept or None}}
        try:
            released = await self._client.patch(
                _PODS, name_of(pod), body, namespace=namespace_of(pod), kind=Patch.MERGE
            )
        except errors.NotFound:
            return
        if not released["metadata"].get("deletionTimestamp"):
            self._pods.note(released)

    async def _delete(self, job: Obj, pod: Obj) -> None:
        try:
            await self._client.delete(_PODS, name_of(pod), namespace_of(pod), uid=uid_of(pod))
        except errors.NotFound:
            return
        self._events.record(Regarding.of(JOBS, job), "SuccessfulDelete", f"Deleted pod: {name_of(pod)}")

    def _record(self, before: Obj, after: Obj) -> None:
        for kind, reason in (("Complete", "Completed"), ("Failed", "Failed"), ("Suspended", "Suspended")):
            if is_true(after, kind) and not is_true(before, kind):
                log.info("job %s: %s", key_of(after), kind)
                found = next(each for each in after["status"]["conditions"] if each["type"] == kind)
                self._events.record(
                    Regarding.of(JOBS, after),
                    found["reason"] if kind == "Failed" else reason,
                    found["message"],
                    type="Warning" if kind == "Failed" else "Normal",
                )
