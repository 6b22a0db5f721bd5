"""Kubelet is woken for pods whose claims' names were put right on their node, until they start, and for no others."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, cast

import msgspec
import pytest

from fairlead.controller.commit.kubelet_wakes import KubeletWakes
from fairlead.controller.commit.tasks import Tasks
from fairlead.controller.commit.writer import Writer
from fairlead.kube import core
from fairlead.kube.informer import Informer
from fairlead.kube.store import Change
from fairlead.kube.watching import ADDED, DELETED, MODIFIED


class Woken:
    """Counts in place of writing."""

    def __init__(self) -> None:
        self.handlers: list[Callable[[Change[core.Pod]], None]] = []
        self.pods: list[str] = []
        self.wakes = KubeletWakes(cast(Informer[core.Pod], self), cast(Writer, self), cast(Tasks, self))

    def subscribe(self, handler: Callable[[Change[core.Pod]], None]) -> None:
        self.handlers.append(handler)

    def see(self, old: core.Pod | None, new: core.Pod | None) -> None:
        kind = ADDED if old is None else DELETED if new is None else MODIFIED
        for handler in self.handlers:
            handler(Change(kind, "ml/a", old, new))

    async def wake_kubelet(self, pod: core.Pod) -> None:
        raise AssertionError("not run here")

    def start(self, name: str, job: Coroutine[Any, Any, None]) -> None:
        job.close()
        self.pods.append(name)


def pod(claim: str, *, node: str = "n", phase: str = "Pending") -> core.Pod:
    body = {
        "metadata": {"name": "a", "namespace": "ml", "uid": "u"},
        "spec": {"nodeName": node, "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]},
        "status": {"phase": phase, "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": claim}]},
    }
    return msgspec.convert(body, core.Pod)


def test_kubelet_is_woken_at_growing_intervals_while_the_pod_has_not_started():
    woken = Woken()
    woken.see(pod("wrong"), pod("right"))
    now, at = 100.0, []
    due: float | None = now
    while due is not None:
        at.append(due - now)
        due = woken.wakes.step(pod("right"), due)
    assert at == [0.0, 1.0, 3.0, 6.0, 12.0, 30.0]
    assert woken.pods == ["sync of u"] * 6
    assert woken.wakes.step(pod("right"), now + 1000) is None


def test_a_step_before_its_time_does_nothing():
    woken = Woken()
    woken.see(pod("wrong"), pod("right"))
    assert woken.wakes.step(pod("right"), 100.0) == 101.0
    assert woken.wakes.step(pod("right"), 100.5) == 101.0
    assert woken.pods == ["sync of u"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(None, pod("right"), id="seen for the first time"),
        pytest.param(pod("wrong", node=""), pod("right", node=""), id="before it was bound"),
        pytest.param(pod("right", node=""), pod("right"), id="bound with the right name"),
        pytest.param(pod("wrong"), pod("right", phase="Running"), id="it runs"),
    ],
)
def test_other_changes_wake_nothing(old: core.Pod | None, new: core.Pod):
    woken = Woken()
    woken.see(old, new)
    assert woken.wakes.step(new, 100.0) is None
    assert woken.pods == []


@pytest.mark.parametrize("end", [pod("right", phase="Running"), None], ids=["started", "deleted"])
def test_it_ends_when_the_pod_starts_or_goes(end: core.Pod | None):
    woken = Woken()
    woken.see(pod("wrong"), pod("right"))
    woken.wakes.step(pod("right"), 100.0)
    woken.see(pod("right"), end)
    assert woken.wakes.step(pod("right"), 200.0) is None
    assert woken.pods == ["sync of u"]
