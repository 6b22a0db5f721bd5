"""Which actions there are, in their order, each with its weight; and what several of them do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from fairlead.sandbox.objects import name_of, namespace_of
from tests.chaos.world import TEAMS, World

Act = Callable[[World, Random], str | None]


@dataclass(frozen=True)
class Action:
    name: str
    weight: float
    act: Act


ACTIONS: list[Action] = []


def action(weight: float) -> Callable[[Act], Act]:
    def add(act: Act) -> Act:
        ACTIONS.append(Action(act.__name__.strip("_"), weight, act))
        return act

    return add


def later(world: World, random: Random, mean_s: float, work: Callable[[], object]) -> float:
    after_s = min(random.expovariate(1 / mean_s), 4 * mean_s)
    world.cluster.admin.call(after_s, work)
    return after_s


def pods_of_teams(world: World) -> list[dict[str, Any]]:
    return [pod for pod in world.objects("", "pods") if namespace_of(pod) in TEAMS]


def claims_of_teams(world: World) -> list[dict[str, Any]]:
    return [claim for claim in world.objects("resource.k8s.io", "resourceclaims") if namespace_of(claim) in TEAMS]


ODD = "odd-"  # begins the names of pods that may wait forever: who makes them deletes them


def is_odd(pod: dict[str, Any]) -> bool:
    return name_of(pod).startswith(ODD)
