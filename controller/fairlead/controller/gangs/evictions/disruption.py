"""PodDisruptionBudgets and queues' disruption budgets: how many evictions are allowed now.

The engine, which chooses victims, and the evictor count by this one rule. A PodDisruptionBudget's own arithmetic
(healthy, desired) is the disruption controller's; `allowed` is read from its status. Source: policy/v1; the apiserver's
`eviction.go`: a pod that is not running, or is terminating, needs no budget. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from fairlead.api.durations import duration_s
from fairlead.engine.types.settings import DisruptionBudget
from fairlead.kube import core, labels, nulls, timestamps
from fairlead.kube.objects import LabelSelector

EVICTIONS_MAX = 1000  # times kept per queue, as the API allows


@dataclass(frozen=True, slots=True, kw_only=True)
class PodBudget:
    """One PodDisruptionBudget. `selector` None selects nothing, an empty one every pod of the namespace."""

    namespace: str
    name: str
    selector: LabelSelector | None
    allowed: int

    def selects(self, pod: core.Pod) -> bool:
        if self.selector is None or pod.metadata.namespace != self.namespace:
            return False
        return labels.matches(self.selector, pod.metadata.labels)

    def for_engine(self) -> DisruptionBudget:
        return DisruptionBudget(namespace=self.namespace, name=self.name, allowed=self.allowed)


def read_budget(raw: Mapping[str, Any]) -> PodBudget:
    """As for the apiserver, a status older than its spec allows nothing. Nor does an unreadable selector."""
    meta, status = raw["metadata"], raw.get("status") or {}
    current = status.get("observedGeneration", 0) >= meta.get("generation", 0)
    wanted = (raw.get("spec") or {}).get("selector")
    try:
        selector = None if wanted is None else nulls.convert(wanted, LabelSelector)
    except msgspec.ValidationError:
        selector, current = LabelSelector(), False
    return PodBudget(
        namespace=meta.get("namespace", ""),
        name=meta["name"],
        selector=selector,
        allowed=max(0, int(status.get("disruptionsAllowed") or 0)) if current else 0,
    )


def budgets_of(pod: core.Pod, budgets: Iterable[PodBudget]) -> tuple[str, ...]:
    """Names of those that select the pod."""
    return tuple(sorted(each.name for each in budgets if each.selects(pod)))


def refusal(pods: Sequence[core.Pod], budgets: Iterable[PodBudget]) -> str:
    """Why these pods cannot all be evicted now; "" when they can. Pods that need no budget do not count."""
    counted = [pod for pod in pods if pod.status.phase == "Running" and not pod.metadata.deletion_timestamp]
    for each in budgets:
        asked = sum(each.selects(pod) for pod in counted)
        if asked > each.allowed:
            return (
                f"PodDisruptionBudget {each.namespace}/{each.name} allows {each.allowed} of the {asked} "
                f"eviction{'s' if asked != 1 else ''} that this needs"
            )
    return ""


def times_in_window(spec: Mapping[str, Any], times: Iterable[str], *, now: float) -> tuple[str, ...]:
    """A Queue's eviction times within its disruption budget's window, oldest first; () without a budget."""
    budget = spec.get("disruptionBudget")
    if not budget:
        return ()
    since = now - _window_s(spec)
    return tuple(sorted(time for time in times if (timestamps.parsed(time) or 0.0) > since))[-EVICTIONS_MAX:]


def evictions_left(spec: Mapping[str, Any], times: Iterable[str], *, now: float) -> int | None:
    """How many gangs of the queue may still be evicted for others; None without a budget."""
    budget = spec.get("disruptionBudget")
    if not budget:
        return None
    return max(0, int(budget.get("evictions", 0)) - len(times_in_window(spec, times, now=now)))


def next_refill(spec: Mapping[str, Any], times: Iterable[str], *, now: float) -> float | None:
    """Unix seconds at which the oldest eviction leaves the window; None when none is in it."""
    counted = times_in_window(spec, times, now=now)
    return timestamps.parse(counted[0]) + _window_s(spec) if counted else None


def _window_s(spec: Mapping[str, Any]) -> float:
    return duration_s(spec["disruptionBudget"].get("window") or "1h")
