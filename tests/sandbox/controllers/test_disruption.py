"""What a PodDisruptionBudget allows, and that evictions keep to it."""

from typing import Any

import pytest

from fairlead.kube import errors, timestamps
from fairlead.kube.resources import POD_DISRUPTION_BUDGETS
from fairlead.sandbox.cluster import Cluster
from fairlead.sandbox.controllers import disruption_controller
from tests.support.sandbox import FOREVER, View, until
from tests.support.sandbox import pod as runnable

Obj = dict[str, Any]
NOW_S = 1_800_000_000.0


def pod(name: str, *, ready: bool = True, phase: str = "Running", job: bool = False, **metadata: Any) -> Obj:
    owners = [{"kind": "Job", "name": "j", "uid": "j", "controller": True}] if job else []
    return {
        "metadata": {"name": name, "namespace": "ml", "labels": {"app": "a"}, "ownerReferences": owners, **metadata},
        "status": {"phase": phase, "conditions": [{"type": "Ready", "status": "True" if ready else "False"}]},
    }


def budget(**spec: Any) -> Obj:
    return {
        "metadata": {"name": "b", "namespace": "ml", "generation": 2},
        "spec": {"selector": {"matchLabels": {"app": "a"}}, **spec},
    }


THREE = [pod("a"), pod("b"), pod("c", ready=False)]


@pytest.mark.parametrize(
    ("subject", "pods", "allowed", "reason"),
    [
        (budget(minAvailable=1), THREE, 1, "SufficientPods"),
        (budget(minAvailable=2), THREE, 0, "InsufficientPods"),
        (budget(minAvailable=1), [], 0, "InsufficientPods"),
        (budget(minAvailable=1), [*THREE, pod("d", phase="Succeeded")], 1, "SufficientPods"),
        (budget(minAvailable=1), [pod("a"), pod("b", deletionTimestamp="t")], 0, "InsufficientPods"),
        (budget(maxUnavailable=1), [pod("a", job=True), pod("b", job=True)], 0, "SyncFailed"),
        (budget(maxUnavailable=1), [pod("a")], 0, "InsufficientPods"),
    ],
)
def test_a_budget_allows_what_is_healthy_beyond_what_must_stay(
    subject: Obj, pods: list[Obj], allowed: int, reason: str
) -> None:
    status = disruption_controller.budget_status(subject, pods, now_s=NOW_S)
    assert (status["disruptionsAllowed"], status["conditions"][0]["reason"]) == (allowed, reason)
    assert status["observedGeneration"] == 2


def test_an_eviction_under_way_counts_until_its_pod_is_gone_or_it_is_forgotten() -> None:
    subject = budget(minAvailable=1)
    subject["status"] = {"disruptedPods": {"a": timestamps.seconds(NOW_S - 10)}}
    status = disruption_controller.budget_status(subject, THREE, now_s=NOW_S)
    assert (status["currentHealthy"], status["disruptionsAllowed"], list(status["disruptedPods"])) == (1, 0, ["a"])
    later = disruption_controller.budget_status(subject, THREE, now_s=NOW_S + 200)
    assert (later["currentHealthy"], "disruptedPods" in later) == (2, False)


async def test_evictions_keep_to_the_budget(stock: tuple[Cluster, View]) -> None:
    made, view = stock
    pods = [runnable(name, command=FOREVER) for name in ("a", "b")]
    for each in pods:
        each["metadata"]["labels"] = {"app": "a"}
    kept = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "kept", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}},
    }
    await made.apply([kept, *pods])

    async def allowed() -> bool:
        found = await view.get(POD_DISRUPTION_BUDGETS, "kept")
        return found is not None and found.get("status", {}).get("disruptionsAllowed") == 1

    await until(allowed)
    await view.client.evict("a", "default")
    with pytest.raises(errors.TooManyRequests, match="disruption budget"):
        await view.client.evict("b", "default")
