"""The slices of the node's pool as last built, and built again when what they follow from has changed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from fairlead.driver.backend.types import Inventory, MigPlacement
from fairlead.driver.publish import faults as fault_list
from fairlead.driver.publish import slices
from fairlead.driver.publish.draining import Drains
from fairlead.driver.publish.faults import Faults
from fairlead.driver.publish.kept import ALL, Kept
from fairlead.driver.publish.releasing import Spans
from fairlead.driver.publish.slices import Offer, PoolSlices
from fairlead.kube.resource import DeviceTaint

log = logging.getLogger(__name__)


class PoolBuilder:
    """`kept` is what the apiserver is believed to keep; `drains` are the GPUs that get no new claims.

    `own_mig` gives the MIG devices that the driver created, `releasing` what claims that are gone have still, by GPU.
    """

    def __init__(
        self,
        offer: Offer = Offer(),  # noqa: B008 - it is frozen
        *,
        kept: Kept = ALL,
        drains: Drains | None = None,
        own_mig: Callable[[], frozenset[MigPlacement]] = frozenset,
    ) -> None:
        self.built = PoolSlices(slices=())
        self.offer = offer
        self.kept = kept
        self.releasing: Callable[[], Spans] = dict
        self._drains = drains or Drains()
        self._own_mig = own_mig
        self._built_from: tuple[Inventory, slices.Facts] | None = None
        self._warned: tuple[str, ...] = ()

    def rebuild(self, inventory: Inventory, faults: Faults, partitionable: frozenset[str]) -> bool:
        """Whether the slices are others than before."""
        facts = slices.Facts(
            taints=_joined(fault_list.taints(faults), self._drains.taints()),
            reasons={uuid: fault_list.describe(faults, uuid) for uuid in faults},
            partitionable=partitionable,
            mig_in_use=frozenset(uuid for uuid, _, _ in self._own_mig()) if self.kept.counters is None else frozenset(),
            releasing=self.releasing(),
            kept=self.kept,
            offer=self.offer,
        )
        if (inventory, facts) == self._built_from:
            return False
        before, self.built = self.built, slices.build(inventory, facts)
        self._built_from = inventory, facts
        warnings = (*inventory.warnings, *self.built.warnings)
        for warning in sorted(set(warnings) - set(self._warned)):
            log.warning("%s", warning)
        self._warned = warnings
        return (self.built.slices, self.built.notes) != (before.slices, before.notes)


def _joined(
    one: Mapping[str, tuple[DeviceTaint, ...]], other: Mapping[str, tuple[DeviceTaint, ...]]
) -> dict[str, tuple[DeviceTaint, ...]]:
    return {uuid: one.get(uuid, ()) + other.get(uuid, ()) for uuid in sorted(one.keys() | other.keys())}
