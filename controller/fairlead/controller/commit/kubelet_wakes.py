"""Makes kubelet sync pods whose claims' names were put right after they had come to their node, and those that may be prepared now.

Kubelet tries to prepare the claim that a pod's status names. Where that fails it syncs the pod again after 60 to 90 s; a change
of the status alone does not make it look earlier, a change of an annotation does. Source: kubelet config/config.go
checkAndUpdatePod, pod_workers.go completeWork.
Example: the claim controller names its own claim of pod a-0 late, after a-0 was bound; kubelet cannot prepare that one. As soon
as the status names the allocated claim again, whichever program wrote that, an annotation of a-0 is changed. The same where a driver
refused a claim, since containers of a pod that was deleted by force had its devices, and takes that back when they have ended.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from fairlead.controller.commit.eviction_writes import Writer
from fairlead.controller.commit.tasks import Tasks
from fairlead.controller.gangs.claims import claims
from fairlead.controller.watch.informers import Informers
from fairlead.kube import core, prepare_refusals, resource
from fairlead.kube.informer import Change

log = logging.getLogger(__name__)

WAKE_AFTER_S = (0.0, 1.0, 3.0, 6.0, 12.0, 30.0)
"""When kubelet is woken, since the names were seen right; each time only if the pod has not started.

More than once: the apiserver lets a kubelet read a claim only when its authorizer has seen, too, that a pod there uses it.
"""


class _Wakes(NamedTuple):
    since: float | None  # None: not yet seen by `step`
    done: int


class KubeletWakes:
    """In memory only: after a change of leader such a pod starts at kubelet's next sync."""

    def __init__(self, informers: Informers, writer: Writer, tasks: Tasks) -> None:
        self._pods_of = informers.pods_of
        self._writer = writer
        self._tasks = tasks
        self._due: dict[str, _Wakes] = {}  # by pod UID
        self._unsubscribe = informers.pods.subscribe(self._pod_changed), informers.claims.subscribe(self._claim_changed)

    def close(self) -> None:
        """To be called when the term ends."""
        for unsubscribe in self._unsubscribe:
            unsubscribe()

    def _pod_changed(self, change: Change[core.Pod]) -> None:
        old, new = change.old, change.new
        if new is None or new.status.phase != "Pending":
            self._due.pop(change.object.metadata.uid, None)
        elif old is not None and old.spec.node_name and claims.names_used(old) != claims.names_used(new):
            self._due[new.metadata.uid] = _Wakes(since=None, done=0)

    def _claim_changed(self, change: Change[resource.ResourceClaim]) -> None:
        old, new = change.old, change.new
        if old is None or new is None or not prepare_refusals.refusal(old) or prepare_refusals.refusal(new):
            return
        for pod in self._pods_of(new).values():
            if pod.spec.node_name and pod.status.phase == "Pending":
                self._due[pod.metadata.uid] = _Wakes(since=None, done=0)

    def step(self, pod: core.Pod, now: float) -> float | None:
        """For a pod whose status names the right claims. Returns when the next step is due; None: never, or after a change."""
        wakes = self._due.get(pod.metadata.uid)
        if wakes is None:
            return None
        since = now if wakes.since is None else wakes.since
        done = wakes.done
        if now >= since + WAKE_AFTER_S[done]:
            log.info("pod %s: its claims can be prepared by now; kubelet is to sync it", pod.metadata.key)
            self._tasks.start(f"sync of {pod.metadata.uid}", self._writer.wake_kubelet(pod))
            done += 1
        if done == len(WAKE_AFTER_S):
            del self._due[pod.metadata.uid]
            return None
        self._due[pod.metadata.uid] = _Wakes(since, done)
        return since + WAKE_AFTER_S[done]
