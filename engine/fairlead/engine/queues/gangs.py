"""A gang on its way: pending in its queue, then assumed to have its devices, now or once others have gone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from fairlead.engine.placement.shapes import signature
from fairlead.engine.queues.charges import chargeable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairlead.engine.placement.model import UnitPlacement
    from fairlead.engine.placement.shapes import PlacementUnit
    from fairlead.engine.queues.charges import Charge
    from fairlead.engine.queues.tree import Queue
    from fairlead.engine.types.gangs import GangRequest


def with_models(gang: GangRequest, queue: Queue) -> GangRequest:
    """With what the queue, or the first above it that says so, says of models where the gang does not."""
    if gang.models is not None:
        return gang
    said = next((step.spec.models for step in queue.path() if step.spec.models is not None), None)
    return gang if said in {None, "same"} else replace(gang, models=said)


@dataclass(frozen=True, slots=True)
class Cost:
    """What the units of a gang cost: `least` whatever they get; `choices`, on devices of one kind, where there are several.

    `flavors`: of which they may cost something at all.
    """

    least: Charge
    choices: tuple[Charge, ...] = ()
    flavors: frozenset[str] = frozenset()


class PendingGang:
    """A pending gang in its queue, with what it costs at least. Outlives a decision: as long as gang, queue and devices do.

    `equivalence` is its equivalence class: one object for all gangs of a queue that a decision treats alike but for their
    age. `classes` has those there are. `observes`: it holds no device, since all that it asks for is by admin access.
    """

    __slots__ = (
        "charge",
        "claim_keys",
        "cost",
        "devices",
        "equivalence",
        "gang",
        "id",
        "observes",
        "queue",
        "rank",
        "shares_claims",
        "source",
        "units",
    )

    def __init__(
        self,
        gang: GangRequest,
        queue: Queue,
        units: list[PlacementUnit],
        cost: Cost,
        classes: dict[object, object],
    ) -> None:
        self.source = gang
        self.gang = gang = with_models(gang, queue)
        self.id = gang.id
        self.claim_keys = [claim.key for claim in gang.claims]
        self.queue = queue
        self.units = units
        self.cost = cost
        self.charge = charge = cost.least
        self.shares_claims = any(len(unit.members) > 1 for unit in units)
        self.devices = sum(unit.shape.least for unit in units)
        requests = [found[0] for unit in units for claim in unit.shape.claims for found in claim.alternatives if found]
        self.observes = bool(requests) and all(request.admin for request in requests)
        self.rank = (-gang.priority, gang.created, gang.uid)
        alike = (
            queue.name,
            signature(gang, units, spread=queue.spec.strategy == "spread"),
            tuple(sorted(charge.items())),
            gang.priority,
            gang.preempts,
            gang.preemptor,
            gang.replaces,
            gang.kept,
            gang.run_s,
            (gang.namespace, gang.quota_charge) if gang.quota_charge else None,
        )
        self.equivalence = classes.setdefault(alike, object())  # compared by identity: cheap to look up


@dataclass(frozen=True, slots=True)
class AssumedGang:
    """The gang, where it is placed, and what its queue is charged for that."""

    pending: PendingGang
    placed: Sequence[UnitPlacement]
    charge: Charge

    @property
    def devices(self) -> int:
        """How many it holds, without those by admin access."""
        return sum(1 for _ in chargeable(self.placed))
