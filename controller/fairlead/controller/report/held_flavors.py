"""Of which flavor allocated claims are: the one in whose measure their devices count most; of equal ones the first by name."""

from __future__ import annotations

from collections.abc import Iterable

from fairlead.controller.watch.caches import Caches
from fairlead.controller.watch.settings import Settings
from fairlead.engine.inventory.selectors import Selectors
from fairlead.engine.queues.charges import Charge, Charges, add
from fairlead.engine.types.allocation import AllocatedClaim
from fairlead.kube import resource


class HeldFlavors:
    def __init__(self, caches: Caches) -> None:
        self._caches = caches
        self._settings: Settings | None = None
        self._charges = Charges((), Selectors())

    def of(self, claims: Iterable[resource.ResourceClaim]) -> str:
        """Of all of these together; "" where no flavor takes their devices."""
        settings = self._caches.rules.settings()
        if settings is not self._settings:
            self._settings, self._charges = settings, Charges(settings.flavors, Selectors())
        total: Charge = {}
        for claim in claims:
            allocated = AllocatedClaim.of(claim)
            if allocated is not None:
                add(total, self._charges.of_allocated(allocated, self._caches.tables.inventory))
        return min(total, key=lambda flavor: (-total[flavor], flavor), default="")
