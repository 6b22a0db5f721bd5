"""Certificates of random clusters: each decision of a cluster's life, the gangs that it leaves waiting, and the facts."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from fairlead.api.certificate import Certificate
from fairlead.engine.prove.prover import Prover
from fairlead.engine.types.gangs import GangRequest
from fairlead.evidence.document import Facts
from tests.support.decisions_clusters import KINDS, Life
from tests.support.engine.evidence import facts_of_world
from tests.support.engine.world import World


def certificates(world: World, gangs: tuple[GangRequest, ...]) -> Iterator[tuple[Certificate, Facts, Any]]:
    """Of all gangs that a decision of now leaves waiting: certificate, facts, and the engine's reason."""
    snapshot = world.snapshot(*gangs)
    facts = facts_of_world(world, snapshot)
    digest = facts.digest()
    prover = Prover(snapshot, world.now)
    for waiting in prover.plan.waiting:
        yield prover.certificate(waiting.id, digest), facts, waiting.reason


def random_certificates(seed: int, steps: int = 12) -> Iterator[tuple[Certificate, Facts, Any]]:
    """Of one random cluster's life."""
    random = Random(f"proof {seed}")
    life = Life(KINDS[seed % len(KINDS)], random)
    for _ in range(steps):
        life.step()
        life.waiting = [life.current(entry) for entry in life.waiting]
        yield from certificates(life.world, tuple(life.waiting))
