"""Which gangs are being evicted for which, as their marks say. An index over marks; pure."""

from __future__ import annotations

from collections.abc import Iterable

from fairlead.controller.gangs import eviction_marks
from fairlead.controller.gangs.gangs import Gang, GangId


class Victims:
    """Kept current by `update` for each gang that changed."""

    def __init__(self) -> None:
        self._victims: dict[GangId, set[GangId]] = {}  # by beneficiary; never empty
        self._beneficiary: dict[GangId, GangId] = {}  # by victim

    def update(self, gang_id: GangId, gang: Gang | None) -> None:
        """Reads the gang's marks again; None: the gang is gone."""
        before = self._beneficiary.pop(gang_id, None)
        if before is not None:
            self._victims[before].discard(gang_id)
            if not self._victims[before]:
                del self._victims[before]
        pairs = eviction_marks.marked(gang) if gang else ()
        beneficiary = next((mark.beneficiary_id for _, mark in pairs), None)
        if beneficiary is not None:
            self._beneficiary[gang_id] = beneficiary
            self._victims.setdefault(beneficiary, set()).add(gang_id)

    def of(self, beneficiary: GangId) -> tuple[GangId, ...]:
        return tuple(sorted(self._victims.get(beneficiary, ())))

    def of_any(self, beneficiaries: Iterable[GangId]) -> set[GangId]:
        return {victim for gang_id in beneficiaries for victim in self._victims.get(gang_id, ())}
