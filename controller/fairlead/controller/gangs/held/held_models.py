"""Of which models the devices of a running gang are, and whether they may differ: what its pods, a TenancyPolicy or its queue say. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from fairlead.api.models import Models
from fairlead.engine.inventory.inventory import Inventory
from fairlead.engine.inventory.models import NO_MODEL, model_of
from fairlead.engine.types.allocation import AllocatedClaim
from fairlead.kube import resource

LISTED_MAX = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldModels:
    """`held`: devices by model, the most first."""

    rule: Models
    held: tuple[tuple[str, int], ...]

    def status(self) -> dict[str, object]:
        return {"rule": self.rule, "held": [f"{count} × {model}" for model, count in self.held[:LISTED_MAX]]}


def held_models(claims: Iterable[resource.ResourceClaim], inventory: Inventory, rule: Models) -> HeldModels | None:
    """None where no device has a model, or its pool is not published now."""
    counts: Counter[str] = Counter()
    for claim in claims:
        allocated = AllocatedClaim.of(claim)
        for each in allocated.devices if allocated is not None else ():
            device = None if each.admin else inventory.device(each.ref)
            if device is not None and (model := model_of(device)) != NO_MODEL:
                counts[str(model)] += 1
    if not counts:
        return None
    return HeldModels(rule=rule, held=tuple(sorted(counts.items(), key=lambda each: (-each[1], each[0]))))
