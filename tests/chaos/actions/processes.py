"""Programs that are killed, stand still, are slow, or have another time."""

from __future__ import annotations

from random import Random

from tests.chaos.actions.registry import action, later
from tests.chaos.cluster import CONTROLLERS
from tests.chaos.programs import Program
from tests.chaos.world import World


def some_program(world: World, random: Random) -> Program:
    favourites = (*CONTROLLERS, *CONTROLLERS, "webhook", "webhook")
    names_ = (*favourites, *(name for name, each in sorted(world.cluster.programs.items()) if each.wanted))
    return world.cluster.programs[random.choice(names_)]


@action(8)
def kill(world: World, random: Random) -> str | None:
    program = some_program(world, random)
    if not program.alive:
        return None
    program.kill()
    away_s = later(world, random, 4.0, lambda: start_again(world, program))
    return f"kill -9 {program.name} for {away_s:.1f} s"


def start_again(world: World, program: Program) -> None:
    """Unless it belongs to a node without power, which starts it itself."""
    if all(node.powered or not program.name.endswith(f"-{node.name}") for node in world.cluster.nodes.values()):
        program.start()


@action(8)
def pause(world: World, random: Random) -> str | None:
    program = some_program(world, random)
    if not program.runs:
        return None
    program.pause()
    paused = program.process
    assert paused is not None
    for_s = later(world, random, random.choice((0.5, 8.0, 25.0)), paused.resume)
    return f"pause {program.name} for {for_s:.1f} s"


@action(2)
def slow_threads(world: World, random: Random) -> str | None:
    program = some_program(world, random)
    if program.process is None:
        return None
    program.slow(random.choice((0.05, 1.0, 10.0)))
    for_s = later(world, random, 10.0, lambda: program.slow(0.0))
    return f"threads of {program.name} take up to {program.thread_s} s, for {for_s:.1f} s"


@action(2)
def clock_jump(world: World, random: Random) -> str | None:
    program = some_program(world, random)
    skew_s = random.choice((-120.0, -30.0, -2.0, 2.0, 30.0, 120.0))
    program.skew(skew_s)
    for_s = later(world, random, 20.0, lambda: program.skew(0.0))
    return f"clock of {program.name} jumps by {skew_s:+.0f} s, for {for_s:.1f} s"
