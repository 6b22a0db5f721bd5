"""PodDisruptionBudgets and queues' disruption budgets: how much may be evicted now. Pure.

Exists so that the core, which chooses victims, and the rim, which evicts them, count by one rule. A budget's own arithmetic
(healthy, desired) is the cluster's disruption controller's; we read what it allows. Source: policy/v1; the apiserver's
`eviction.go`: a pod that is not running, or is on its way out, asks no budget.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from fairlead.api.gang import duration_s
from fairlead.engine.types.settings import DisruptionBudget
from fairlead.kube import core, labels, timestamps
from fairlead.kube.objects import LabelSelector

EVICTIONS_MAX = 1000  # times kept per queue, as the API allows


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """One PodDisruptionBudget. `selector` None selects nothing, an empty one every pod of the namespace."""

    namespace: str
    name: str
    selector: LabelSelector | None
    allowed: int

    def covers(self, pod: core.Pod) -> bool:
        if self.selector is None or pod.metadata.namespace != self.namespace:
            return False
        return labels.matches(self.selector, pod.metadata.labels)

    @property
    def facts(self) -> DisruptionBudget:
        return DisruptionBudget(namespace=self.namespace, name=self.name, allowed=self.allowed)


def guard(raw: Mapping[str, Any]) -> Guard:
    """A status that lags behind its spec allows nothing, as for the apiserver. A selector that can't be read neither."""
    meta, status = raw["metadata"], raw.get("status") or {}
    current = status.get("observedGeneration", 0) >= meta.get("generation", 0)
    wanted = (raw.get("spec") or {}).get("selector")
    try:
        selector = None if wanted is None else msgspec.convert(wanted, LabelSelector)
    except msgspec.ValidationError:
        selector, current = LabelSelector(), False
    return Guard(
        namespace=meta.get("namespace", ""),
        name=meta["name"],
        selector=selector,
        allowed=max(0, int(status.get("disruptionsAllowed") or 0)) if current else 0,
    )


def guards_of(pod: core.Pod, guards: Iterable[Guard]) -> tuple[str, ...]:
    return tuple(sorted(each.name for each in guards if each.covers(pod)))


def refusal(pods: Sequence[core.Pod], guards: Iterable[Guard]) -> str:
    """Why these pods cannot all be evicted now; empty when they can. Those that ask no budget are left out."""
    counted = [pod for pod in pods if pod.status.phase == "Running" and not pod.metadata.deletion_timestamp]
    for each in guards:
        asked = sum(each.covers(pod) for pod in counted)
        if asked > each.allowed:
            return (
                f"PodDisruptionBudget {each.namespace}/{each.name} allows {each.allowed} of the {asked} "
                f"eviction{'s' if asked != 1 else ''} that this needs"
            )
    return ""


def recent(spec: Mapping[str, Any], times: Iterable[str], *, now: float) -> tuple[str, ...]:
    """Of the times of a Queue's status those within its disruption budget's window, oldest first."""
    budget = spec.get("disruptionBudget")
    if not budget:
        return ()
    since = now - duration_s(budget.get("window") or "1h")
    return tuple(sorted(time for time in times if _time(time) > since))[-EVICTIONS_MAX:]


def evictions_left(spec: Mapping[str, Any], times: Iterable[str], *, now: float) -> int | None:
    """How many gangs of the queue may still be evicted for others; None without a budget."""
    budget = spec.get("disruptionBudget")
    if not budget:
        return None
    return max(0, int(budget.get("evictions", 0)) - len(recent(spec, times, now=now)))


def refill(spec: Mapping[str, Any], times: Iterable[str], *, now: float) -> float | None:
    """When the oldest eviction leaves the window of a queue's disruption budget."""
    counted = recent(spec, times, now=now)
    if not counted:
        return None
    return timestamps.parse(counted[0]) + duration_s(spec["disruptionBudget"].get("window") or "1h")


def _time(text: str) -> float:
    try:
        return timestamps.parse(text)
    except ValueError:
        return 0.0
