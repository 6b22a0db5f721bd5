"""Deployments and ReplicaSets: a small world applies what their controllers decide, step by step."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from fairlead.kube import timestamps
from fairlead.sandbox.controllers import deployments, replica_sets
from fairlead.sandbox.objects import condition, is_true, labels_of, name_of, status_of

Obj = dict[str, Any]
NOW_S = 1_800_000_000.0


def deployment(replicas: int = 4, image: str = "a", **spec: Any) -> Obj:
    labels = {"app": "serve"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": image}]}}
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}}
    return {
        "metadata": {"name": "serve", "namespace": "ml", "uid": "d", "generation": 1},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": template,
            "strategy": strategy,
            **spec,
        },
        "status": {},
    }


class World:
    """`ready`: which pods get ready, by the image of their set; others stay as they are. `most`, `least`: of all steps."""

    def __init__(self, subject: Obj, ready: Callable[[str], bool] = lambda _: True) -> None:
        self.deployment, self.ready = subject, ready
        self.sets: dict[str, Obj] = {}
        self.pods: dict[str, list[Obj]] = {}
        self.now_s = NOW_S
        self.serial = itertools.count()
        self.most, self.least = 0, 10**9

    def settle(self) -> None:
        for _ in range(60):
            if not self.step():
                return
        raise AssertionError("the Deployment controller does not settle")

    def step(self) -> bool:
        sets = list(self.sets.values())
        changed = False
        if deployments.current(self.deployment, sets) is None and not self.deployment["spec"].get("paused"):
            made = deployments.new_set(self.deployment, sets)
            made["metadata"] |= {
                "uid": name_of(made),
                "creationTimestamp": timestamps.seconds(NOW_S + next(self.serial)),
            }
            self.sets[name_of(made)], self.pods[name_of(made)] = made, []
            changed = True
        every = [pod for pods in self.pods.values() for pod in pods]
        for name, replicas in deployments.scales(self.deployment, list(self.sets.values()), every).items():
            self.sets[name]["spec"]["replicas"] = replicas
            changed = True
        for name in deployments.outdated(self.deployment, list(self.sets.values())):
            del self.sets[name], self.pods[name]
            changed = True
        for name, found in self.sets.items():
            changed |= self.run_set(name, found)
        status, _ = deployments.deployment_status(self.deployment, list(self.sets.values()), now_s=self.now_s)
        changed |= status != self.deployment["status"]
        self.deployment["status"] = status
        living = [pod for pods in self.pods.values() for pod in pods]
        self.most = max(self.most, len(living))
        self.least = min(self.least, sum(is_true(pod, "Ready") for pod in living))
        return bool(changed)

    def run_set(self, name: str, found: Obj) -> bool:
        work = replica_sets.set_work(found, self.pods[name])
        gone = set(work.deletes)
        pods = [pod for pod in self.pods[name] if name_of(pod) not in gone]
        for _ in range(work.creates):
            pod = replica_sets.new_pod(found)
            pod["metadata"] |= {
                "name": f"{name}-{next(self.serial)}",
                "creationTimestamp": timestamps.seconds(self.now_s),
            }
            if self.ready(found["spec"]["template"]["spec"]["containers"][0]["image"]):
                pod["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
            pods.append(pod)
        self.pods[name] = pods
        status, _ = replica_sets.set_status(found, pods, now_s=self.now_s)
        changed = bool(work.creates or gone or status != found.get("status"))
        found["status"] = status
        return changed

    def images(self) -> list[str]:
        return sorted(pod["spec"]["containers"][0]["image"] for pods in self.pods.values() for pod in pods)

    def roll(self, **changes: Any) -> None:
        self.deployment["metadata"]["generation"] += 1
        image = changes.pop("image", None)
        self.deployment["spec"] |= changes
        if image is not None:
            template = self.deployment["spec"]["template"]
            self.deployment["spec"]["template"] = template | {
                "spec": {"containers": [{"name": "main", "image": image}]}
            }
        self.most, self.least = 0, 10**9


def test_its_pods_are_made_labelled_and_counted() -> None:
    world = World(deployment())
    world.settle()
    ((name, pods),) = world.pods.items()
    assert name.startswith("serve-")
    assert labels_of(pods[0]) == {"app": "serve", deployments.HASH: name.removeprefix("serve-")}
    status = status_of(world.deployment)
    assert (status["replicas"], status["readyReplicas"], status["updatedReplicas"], status["availableReplicas"]) == (
        4,
        4,
        4,
        4,
    )
    assert is_true(world.deployment, "Available")
    assert condition(world.deployment, "Progressing")["reason"] == "NewReplicaSetAvailable"  # type: ignore[index]


@pytest.mark.parametrize(
    ("replicas", "surge", "unavailable", "most", "least"),
    [
        (4, 1, 1, 5, 3),
        (4, 0, 1, 4, 3),
        (4, 1, 0, 5, 4),
        (4, "25%", "25%", 5, 3),
        (3, "25%", "25%", 4, 3),
        (4, "0%", "10%", 4, 3),
    ],
)
def test_a_new_template_rolls_within_its_bounds(
    replicas: int, surge: int | str, unavailable: int | str, most: int, least: int
) -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}
    world = World(deployment(replicas, strategy=strategy))
    world.settle()
    world.roll(image="b")
    world.settle()
    assert world.images() == ["b"] * replicas
    assert (world.most, world.least) == (most, least)
    assert sorted(deployments.revision_of(each) for each in world.sets.values()) == [1, 2]


def test_it_is_scaled_paused_and_keeps_a_short_history() -> None:
    world = World(deployment(2, revisionHistoryLimit=1))
    world.settle()
    world.roll(paused=True, image="b", replicas=3)
    world.settle()
    assert world.images() == ["a"] * 2
    world.roll(paused=False)
    world.settle()
    assert world.images() == ["b"] * 3
    for image in "cd":
        world.roll(image=image)
        world.settle()
    assert len(world.sets) == 2
    world.roll(replicas=0)
    world.settle()
    assert world.images() == []


def pod(name: str, node: str = "n1", *, ready: bool = True, age_s: float = 10.0, cost: str = "0") -> Obj:
    since = timestamps.seconds(NOW_S - age_s)
    return {
        "metadata": {"name": name, "creationTimestamp": since, "annotations": {replica_sets.DELETION_COST: cost}},
        "spec": {"nodeName": node} if node else {},
        "status": {
            "phase": "Running" if node else "Pending",
            "conditions": [{"type": "Ready", "status": str(ready), "lastTransitionTime": since}],
        },
    }


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (pod("x", ""), pod("y")),
        (pod("x", ready=False), pod("y")),
        (pod("x", cost="-5"), pod("y")),
        (pod("x", age_s=1), pod("y", age_s=100)),
    ],
    ids=["unbound", "not ready", "cheap", "younger"],
)
def test_which_pod_goes_when_a_set_shrinks(first: Obj, second: Obj) -> None:
    shrunk = {"metadata": {"name": "s", "namespace": "ml", "uid": "s"}, "spec": {"replicas": 1}}
    assert replica_sets.set_work(shrunk, [second, first]).deletes == ("x",)


def test_a_template_whose_pods_do_not_get_ready_stops_there_and_is_told_after_its_deadline() -> None:
    world = World(deployment(4, progressDeadlineSeconds=60), ready=lambda image: image == "a")
    world.settle()
    world.roll(image="b")
    world.settle()
    assert world.images() == ["a"] * 3 + ["b"] * 2
    assert is_true(world.deployment, "Available")
    world.now_s += 61
    world.settle()
    found = condition(world.deployment, "Progressing")
    assert found is not None
    assert (found["status"], found["reason"]) == ("False", "ProgressDeadlineExceeded")
    world.roll(image="a")
    world.settle()
    assert world.images() == ["a"] * 4


def test_recreate_waits_for_the_last_old_pod() -> None:
    world = World(deployment(2, strategy={"type": "Recreate"}))
    world.settle()
    world.roll(image="b")
    world.settle()
    assert world.images() == ["b"] * 2
    assert (world.most, world.least) == (2, 0)
