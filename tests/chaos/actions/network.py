"""What the network between programs does: it holds, cuts, delays, loses and doubles; apiservers that lag or forget."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from fairlead.sandbox.apiserver.store import WatchLag
from tests.chaos.actions.processes import some_program
from tests.chaos.actions.registry import ACTIONS, Act, Action, action, later
from tests.chaos.cluster import APISERVERS
from tests.chaos.world import World


def _some_paths(world: World, random: Random) -> tuple[str, list[Any]]:
    client = some_program(world, random).name
    if client in APISERVERS:
        server = "webhook"
    else:
        server = random.choice(APISERVERS)
    network, which = world.cluster.network, random.choice(("both", "there", "back"))
    there, back = network.path(client, server), network.path(server, client)
    arrow, paths = {"both": ("<->", [there, back]), "there": ("->", [there]), "back": ("<-", [back])}[which]
    return f"{client} {arrow} {server}", paths


def _network_fault(begin: Callable[[World, Random, Any], str], mean_s: float) -> Act:
    def act(world: World, random: Random) -> str | None:
        where, paths = _some_paths(world, random)
        told = [begin(world, random, path) for path in paths]
        for_s = later(world, random, mean_s, lambda: _heal(world, paths))
        return f"{where} {told[0]} for {for_s:.1f} s"

    return act


def _heal(world: World, paths: list[Any]) -> None:
    for path in paths:
        world.cluster.network.heal(path)


def _begin_held(world: World, random: Random, path: Any) -> str:
    world.cluster.network.hold(path)
    return "is silent"


def _begin_cut(world: World, random: Random, path: Any) -> str:
    world.cluster.network.cut(path)
    return "is cut"


def _begin_late(world: World, random: Random, path: Any) -> str:
    path.late_s = random.choice(((0.05, 0.3), (0.0, 3.0), (5.0, 12.0)))
    return f"is late by {path.late_s} s"


def _begin_lossy(world: World, random: Random, path: Any) -> str:
    path.lost = random.choice((0.02, 0.2, 0.6))
    return f"loses {path.lost:.0%}"


def _begin_doubled(world: World, random: Random, path: Any) -> str:
    path.doubled = 0.5
    return "doubles messages"


for _name, _begin, _weight, _mean_s in (
    ("silent", _begin_held, 5, 10.0),
    ("cut", _begin_cut, 4, 6.0),
    ("late", _begin_late, 5, 10.0),
    ("lossy", _begin_lossy, 4, 10.0),
    ("doubled", _begin_doubled, 3, 20.0),
):
    ACTIONS.append(Action(_name, _weight, _network_fault(_begin, _mean_s)))


@action(3)
def lagging_apiserver(world: World, random: Random) -> str | None:
    """One replica's watch caches show changes later than the other's, each resource by itself."""
    at = random.randrange(len(APISERVERS))
    state, most_s = world.cluster.states[at], random.choice((0.5, 3.0, 15.0))
    state.lag = WatchLag(most_s, random=Random(random.getrandbits(32)))

    def end() -> None:
        state.lag = None
        state.wake_watchers()

    for_s = later(world, random, 15.0, end)
    return f"{APISERVERS[at]} lags by up to {most_s} s, for {for_s:.1f} s"


@action(1)
def compact(world: World, random: Random) -> str | None:
    world.cluster.store.compact()
    return "etcd is compacted: old watches get 410"
