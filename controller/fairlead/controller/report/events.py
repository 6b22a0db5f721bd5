"""Events on Gang and Queue objects, on pods, on PodDisruptionBudgets, and on the leader's lease."""

from __future__ import annotations

from typing import Protocol

from fairlead.api import names
from fairlead.controller.gangs.membership.gangs import GangId
from fairlead.controller.watch.caches import Caches
from fairlead.kube import core, resources
from fairlead.kube.events import EventRecorder, Regarding


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
        raw = self._caches.gang_object(gang)
        uid = raw["metadata"].get("uid", "") if raw else ""
        about = Regarding(api_version=names.API_VERSION, kind="Gang", namespace=gang[0], name=gang[1], uid=uid)
        self._recorder.record(about, reason, message, type="Warning" if warning else "Normal")
        if self._noted is not None:
            self._noted(gang, reason, message, warning=warning)

    def budget(self, namespace: str, name: str, reason: str, message: str) -> None:
        """A warning on a PodDisruptionBudget."""
        raw = self._caches.disruption_budgets.get(f"{namespace}/{name}")
        uid = raw["metadata"].get("uid", "") if raw else ""
        about = Regarding(api_version="policy/v1", kind="PodDisruptionBudget", namespace=namespace, name=name, uid=uid)
        self._recorder.record(about, reason, message, type="Warning")

    def queue(self, name: str, reason: str, message: str) -> None:
        """A warning on a Queue."""
        raw = self._caches.queues.get(name)
        uid = raw["metadata"].get("uid", "") if raw else ""
        about = Regarding(api_version=names.API_VERSION, kind="Queue", name=name, uid=uid)
        self._recorder.record(about, reason, message, type="Warning")

    def lease(self, reason: str, message: str) -> None:
        """A warning on the controller's lease: what concerns the controller itself."""
        self._recorder.record(self._lease, reason, message, type="Warning")

    def pod(self, pod: core.Pod, reason: str, message: str, *, warning: bool = False) -> None:
        about = Regarding.of(resources.PODS, pod)
        self._recorder.record(about, reason, message, type="Warning" if warning else "Normal")
