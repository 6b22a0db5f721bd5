"""Kubelet is woken for pods whose claims' names were put right on their node, until they start, and for no others."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from fairlead.api import names
from fairlead.controller.commit.claim_reconciler import KubeletWakes
from fairlead.kube import core, prepare_refusals, resource
from fairlead.kube.store import Change
from fairlead.kube.watching import ADDED, DELETED, MODIFIED


class Woken:
    """Counts in place of writing; `users`: the pods that use the claim."""

    def __init__(self, *users: core.Pod) -> None:
        self.pods: list[str] = []
        self.handlers: dict[str, Callable[[Change[Any]], None]] = {}
        watched = {
            kind: SimpleNamespace(subscribe=partial(self.handlers.__setitem__, kind)) for kind in ("pods", "claims")
        }
        informers: Any = SimpleNamespace(**watched, pods_of=lambda _: {each.metadata.uid: each for each in users})
        whole: Any = self
        self.wakes = KubeletWakes(informers, whole, whole)

    def see(self, old: Any, new: Any, kind: str = "pods") -> None:
        self.handlers[kind](Change(ADDED if old is None else DELETED if new is None else MODIFIED, "ml/a", old, new))

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
        if due > now:
            assert woken.wakes.step(pod("right"), due - 0.5) == due, "before its time"
        at.append(due - now)
        due = woken.wakes.step(pod("right"), due)
    assert at == [0.0, 1.0, 3.0, 6.0, 12.0, 30.0]
    assert woken.pods == ["sync of u"] * 6
    assert woken.wakes.step(pod("right"), now + 1000) is None


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


def claim(refused: str = "") -> resource.ResourceClaim:
    said = prepare_refusals.conditions(refused, 0.0) if refused else []
    device = {"driver": names.DRIVER, "pool": "n", "device": "gpu-0", "conditions": said}
    return msgspec.convert({"metadata": {"name": "right"}, "status": {"devices": [device]}}, resource.ResourceClaim)


@pytest.mark.parametrize(("phase", "woken_for"), [("Pending", ["sync of u"]), ("Running", [])])
def test_kubelet_is_woken_when_a_driver_takes_its_refusal_back_unless_the_pod_runs(phase: str, woken_for: list[str]):
    user = pod("right", phase=phase)
    woken = Woken(user)
    woken.see(claim(), claim("gpu-0 is held"), "claims")
    assert woken.wakes.step(user, 100.0) is None
    woken.see(claim("gpu-0 is held"), claim(), "claims")
    woken.wakes.step(user, 101.0)
    assert woken.pods == woken_for
