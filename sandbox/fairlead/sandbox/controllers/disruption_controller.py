"""The disruption controller: what a PodDisruptionBudget allows now, written into its status.

The apiserver answers evictions from that status alone, and refuses them while it is missing. Counted are budgets with an
absolute minAvailable; for maxUnavailable or a percentage the real one asks the pods' controllers for their scale, which
Jobs do not have: such a budget allows nothing and says so, here as there.
`budget_status` is the rule, a pure function; the class writes it. Source: kubernetes pkg/controller/disruption, 1.36.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from fairlead.kube import errors, labels, timestamps
from fairlead.kube.client import Client
from fairlead.kube.informer import Change
from fairlead.kube.limits import Clock
from fairlead.kube.objects import LabelSelector
from fairlead.kube.resources import POD_DISRUPTION_BUDGETS, PODS, Raw
from fairlead.sandbox.controllers.loop import Loop
from fairlead.sandbox.informers import Informers
from fairlead.sandbox.objects import (
    Obj,
    controller_of,
    is_deleting,
    is_true,
    key_of,
    labels_of,
    meta,
    name_of,
    namespace_of,
    phase_of,
    spec_of,
    status_of,
    with_condition,
)

log = logging.getLogger(__name__)

# An eviction that was allowed counts against the budget for so long, although its pod still exists.
FORGET_S: Final = 120.0


def selects(budget: Obj, pod: Obj) -> bool:
    """Whether a policy/v1 budget covers the pod: an empty selector covers all pods of the namespace, no selector none."""
    wanted = spec_of(budget).get("selector")
    if wanted is None or namespace_of(budget) != namespace_of(pod):
        return False
    return labels.matches(msgspec.convert(wanted, LabelSelector), labels_of(pod))


def budget_status(budget: Obj, pods: Iterable[Obj], *, now_s: float) -> Obj:
    """The status of a budget, given all pods that it selects."""
    counted = [pod for pod in pods if phase_of(pod) not in {"Succeeded", "Failed"}]
    before = status_of(budget)
    disrupted = {
        name: when
        for name, when in (before.get("disruptedPods") or {}).items()
        if any(name_of(pod) == name and not is_deleting(pod) for pod in counted)
        and now_s - timestamps.parse(str(when)) < FORGET_S
    }
    healthy = sum(is_true(pod, "Ready") and not is_deleting(pod) and name_of(pod) not in disrupted for pod in counted)
    expected, desired, problem = _desired(budget, counted)
    allowed = max(0, healthy - desired) if expected and not problem else 0
    status: Obj = {
        "observedGeneration": int(meta(budget).get("generation") or 0),
        "disruptionsAllowed": allowed,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": expected,
    }
    if disrupted:
        status["disruptedPods"] = disrupted
    condition: Mapping[str, Any] = {
        "type": "DisruptionAllowed",
        "status": "True" if allowed else "False",
        "reason": "SyncFailed" if problem else "SufficientPods" if allowed else "InsufficientPods",
        "message": problem,
        "observedGeneration": status["observedGeneration"],
    }
    status["conditions"] = with_condition(before.get("conditions") or (), condition, now=timestamps.seconds(now_s))
    return status


def _desired(budget: Obj, pods: list[Obj]) -> tuple[int, int, str]:
    """Expected pods, healthy pods that must stay, and the problem where these are not known."""
    spec = spec_of(budget)
    least = spec.get("minAvailable")
    if isinstance(least, int):
        return len(pods), least, ""
    unscaled = next((pod for pod in pods if controller_of(pod) is not None), None)
    if unscaled is not None:
        owner = controller_of(unscaled) or {}
        return len(pods), 0, f"{owner.get('kind')} {owner.get('name')} does not implement the scale subresource"
    return 0, 0, ""


class DisruptionController(Loop[str]):
    name = "disruption controller"
    workers = 2

    def __init__(self, client: Client, informers: Informers, *, wall: Clock = time.time) -> None:
        super().__init__()
        self._client = client
        self._wall = wall
        self._budgets = informers.of(POD_DISRUPTION_BUDGETS)
        self._pods = informers.of(PODS)
        self._budgets.subscribe(lambda change: self.queue.add(change.key))
        self._pods.subscribe(self._pod_changed)

    def _pod_changed(self, change: Change[Raw]) -> None:
        for budget in self._budgets.all():
            if any(pod is not None and selects(budget, pod) for pod in (change.old, change.new)):
                self.queue.add(key_of(budget))

    async def sync(self, key: str) -> None:
        budget = self._budgets.get(key)
        if budget is None:
            return
        pods = [pod for pod in self._pods.all() if selects(budget, pod)]
        status = budget_status(budget, pods, now_s=self._wall())
        if status.get("disruptedPods"):
            self.queue.add_after(key, FORGET_S)
        if status == status_of(budget):
            return
        try:
            body = {**budget, "status": status}
            self._budgets.note(await self._client.replace(POD_DISRUPTION_BUDGETS, body, subresource="status"))
        except errors.NotFound:
            log.debug("budget %s: does not exist any more", key)
