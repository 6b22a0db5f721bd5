"""What is said of one object: Kubernetes events; and in the log what could not be computed for it, while the loop over the others goes on.

Some of these loops run each second: a failure is counted each time, and logged again only when its text is another, or after `AGAIN_S`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from prometheus_client import Counter

from fairlead.api import names
from fairlead.controller.gangs.membership.gangs import GangId
from fairlead.controller.watch.caches import Caches
from fairlead.kube import core, resources
from fairlead.kube.containment import contained, described
from fairlead.kube.events import EventRecorder, Regarding
from fairlead.kube.limits import Clock

log = logging.getLogger(__name__)

AGAIN_S = 600.0
KNOWN_MAX = 10_000


class Noted(Protocol):
    def __call__(self, gang: GangId, what: str, text: str, *, warning: bool) -> None: ...


class Events:
    """The recorder aggregates and writes them later; recording never waits and never fails."""

    def __init__(
        self, recorder: EventRecorder, caches: Caches, lease: tuple[str, str], noted: Noted | None = None
    ) -> None:
        """`lease`: namespace and name. `noted` is told each event on a gang, too."""
        self._noted = noted
        self._lease = Regarding(api_version="coordination.k8s.io/v1", kind="Lease", namespace=lease[0], name=lease[1])
        self._recorder = recorder
        self._caches = caches

    def gang(self, gang: GangId, reason: str, message: str, *, warning: bool = False) -> None:
        about = _about(self._caches.gang_object(gang), names.API_VERSION, "Gang", gang[1], gang[0])
        self._recorder.record(about, reason, message, type="Warning" if warning else "Normal")
        if self._noted is not None:
            self._noted(gang, reason, message, warning=warning)

    def budget(self, namespace: str, name: str, reason: str, message: str) -> None:
        """A warning on a PodDisruptionBudget."""
        raw = self._caches.disruption_budgets.get(f"{namespace}/{name}")
        about = _about(raw, "policy/v1", "PodDisruptionBudget", name, namespace)
        self._recorder.record(about, reason, message, type="Warning")

    def queue(self, name: str, reason: str, message: str) -> None:
        """A warning on a Queue."""
        about = _about(self._caches.queues.get(name), names.API_VERSION, "Queue", name)
        self._recorder.record(about, reason, message, type="Warning")

    def lease(self, reason: str, message: str) -> None:
        """A warning on the controller's lease: what concerns the controller itself."""
        self._recorder.record(self._lease, reason, message, type="Warning")

    def pod(self, pod: core.Pod, reason: str, message: str, *, warning: bool = False) -> None:
        about = Regarding.of(resources.PODS, pod)
        self._recorder.record(about, reason, message, type="Warning" if warning else "Normal")


def _about(raw: Mapping[str, Any] | None, api_version: str, kind: str, name: str, namespace: str = "") -> Regarding:
    uid = raw["metadata"].get("uid", "") if raw else ""
    return Regarding(api_version=api_version, kind=kind, namespace=namespace, name=name, uid=uid)


class Failures:
    """`errors`: the counter of unexpected errors, by `where`."""

    def __init__(self, errors: Counter, *, clock: Clock = time.monotonic) -> None:
        self._errors = errors
        self._clock = clock
        self._said: dict[tuple[str, str], tuple[str, float]] = {}  # by where and what: the text, and when

    def contained(self, where: str, what: str) -> AbstractContextManager[None]:
        """`where`: the loop, one of few. `what`: the object, such as `gang ml/train`."""
        return contained(lambda error: self.note(where, what, described(error), error))

    def note(self, where: str, what: str, text: str, error: Exception | None = None) -> None:
        """`error`: None for what was raised elsewhere, such as in another process."""
        self._errors.labels(where).inc()
        key, now = (where, what), self._clock()
        before = self._said.get(key)
        if before is not None and before[0] == text and now - before[1] < AGAIN_S:
            return
        if len(self._said) >= KNOWN_MAX:
            self._said.clear()
        self._said[key] = (text, now)
        log.error("%s: %s is left out, the others are not: %s", where, what, text, exc_info=error)
