"""An item of the checklist, its answer, and the kinds that only the checklist reads.

`not checkable here` names what was missing: a right, or a thing that no API shows. An item is a function of what was read, declared with its
title and fix; its key is the function's name:

    @STORAGE.item("object storage for checkpoints and models", "write checkpoints to S3, …", CSI_DRIVERS)
    def object_storage(seen: Seen) -> Answer: ...
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from fairlead.cli.health.reading import SHARED
from fairlead.cli.health.seen import Seen
from fairlead.cli.health.support import SERVED_GROUPS
from fairlead.kube import resources
from fairlead.kube.resources import Raw, Resource

Status = Literal["pass", "fail", "not checkable here"]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """`why` is what was seen."""

    status: Status
    why: str


def passed(why: str) -> Answer:
    return Answer(status="pass", why=why)


def failed(why: str) -> Answer:
    return Answer(status="fail", why=why)


def unknown(why: str) -> Answer:
    return Answer(status="not checkable here", why=why)


Check = Callable[[Seen], Answer]
Given = Callable[[Seen], Answer | None]
"""Why nothing can be said; None where something can."""


@dataclass(frozen=True, kw_only=True)
class Item:
    """`key` is unique, `title` what is needed, `fix` a sentence or a command that brings it about. `reads`: without which it is not checkable."""

    key: str
    title: str
    fix: str
    check: Check
    reads: tuple[Resource[Any], ...] = ()
    given: Given = lambda _: None

    def answer(self, seen: Seen) -> Answer:
        if gap := seen.gap(*self.reads):
            return unknown(gap)
        return self.given(seen) or self.check(seen)

    def structured(self, group: str, answer: Answer) -> dict[str, Any]:
        """The fix is of use where the item does not pass."""
        return {
            "group": group,
            "item": self.key,
            "title": self.title,
            "status": answer.status,
            "why": answer.why,
            "fix": None if answer.status == "pass" else self.fix,
        }


@dataclass(frozen=True)
class Group:
    key: str
    items: list[Item] = field(default_factory=list)

    def item(
        self, title: str, fix: str, *reads: Resource[Any], given: Given = lambda _: None
    ) -> Callable[[Check], Check]:
        def add(check: Check) -> Check:
            key = check.__name__.replace("_", "-")
            self.items.append(Item(key=key, title=title, fix=fix, check=check, reads=reads, given=given))
            return check

        return add

    def by_hand(self, key: str, title: str, fix: str, why: str) -> None:
        """An item that no API shows."""
        self.items.append(Item(key=key, title=title, fix=fix, check=lambda _: unknown(why)))


# -- kinds, those of other systems in whatever version the cluster serves ----------------------------------------------


def _of(group: str, plural: str, kind: str) -> Resource[Raw]:
    return Resource(group=group, version="", plural=plural, kind=kind, namespaced=True, type=dict)


SERVICE_MONITORS = _of("monitoring.coreos.com", "servicemonitors", "ServiceMonitor")
POD_MONITORS = _of("monitoring.coreos.com", "podmonitors", "PodMonitor")
RULES = _of("monitoring.coreos.com", "prometheusrules", "PrometheusRule")
NODE_POOLS = _of("karpenter.sh", "nodepools", "NodePool")
SCALED_OBJECTS = _of("keda.sh", "scaledobjects", "ScaledObject")
AUTOSCALERS = _of("autoscaling", "horizontalpodautoscalers", "HorizontalPodAutoscaler")
CSI_DRIVERS = _of("storage.k8s.io", "csidrivers", "CSIDriver")

OPTIONAL = (SERVICE_MONITORS, POD_MONITORS, RULES, NODE_POOLS, SCALED_OBJECTS, AUTOSCALERS, CSI_DRIVERS)
LOOK_INTO = ("argoproj.io", *SERVED_GROUPS, *dict.fromkeys(each.group for each in OPTIONAL))
"""Groups whose kinds are looked up: argoproj.io is of Argo Workflows and of Argo CD."""
KINDS: tuple[Resource[Any], ...] = (
    *SHARED,
    resources.CONFIG_MAPS,
    resources.PRIORITY_CLASSES,
    resources.RESOURCE_QUOTAS,
    resources.NETWORK_POLICIES,
    resources.PERSISTENT_VOLUME_CLAIMS,
)
