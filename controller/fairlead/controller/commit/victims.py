"""Which gangs are being evicted for which, as their marks say: an index over marks. And which could be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fairlead.controller.book.book import Book
from fairlead.controller.book.gang_state import GangState
from fairlead.controller.gangs.evictions import eviction_marks
from fairlead.controller.gangs.membership import decisions
from fairlead.controller.gangs.membership.gangs import Gang, GangId
from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.plan import Waiting
from fairlead.kube.resources import Raw


class Victims:
    """Kept current by `update` for each gang that changed."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._victims = book.all(GangState.victims)  # never empty
        self._changed: set[GangId] = set()  # beneficiaries with other victims than before

    def update(self, gang_id: GangId, gang: Gang | None) -> None:
        """Reads the gang's marks again; None: the gang is gone."""
        before = self._book.take(gang_id, GangState.evicted_for)
        if before is not None:
            self._book[before].victims = self._victims[before] - {gang_id} or None
        pairs = eviction_marks.marked(gang) if gang else ()
        beneficiary = next((mark.beneficiary_id for _, mark in pairs), None)
        if beneficiary is not None:
            self._book[gang_id].evicted_for = beneficiary
            self._book[beneficiary].victims = {*self._victims.get(beneficiary, ()), gang_id}
        if before != beneficiary:
            self._changed |= {each for each in (before, beneficiary) if each is not None}

    def take_beneficiaries(self) -> set[GangId]:
        """Those that have other victims than at the last call."""
        taken, self._changed = self._changed, set()
        return taken

    def of(self, beneficiary: GangId) -> tuple[GangId, ...]:
        return tuple(sorted(self._victims.get(beneficiary, ())))

    def of_any(self, beneficiaries: Iterable[GangId]) -> set[GangId]:
        return {victim for gang_id in beneficiaries for victim in self._victims.get(gang_id, ())}


def is_preemptor(state: GangState, gang: Gang, gang_object: Raw | None, now: float) -> bool:
    """Whether devices are reserved for the gang because others are or were evicted for it."""
    return bool(state.victims or state.decided_for) or (
        bool(gang.gated) and decisions.reserved_until(gang_object, now) > now
    )


def may_evict(waiting: Waiting, request: GangRequest, least: Mapping[str, int]) -> bool:
    """Whether the gang that waits could evict a gang that is being admitted, once it runs; so it learns when min-runtime ends.

    `least` is the lowest priority of those by queue. Of its own queue a gang evicts those of lower priority only.
    """
    if not request.preempts or waiting.reason.could_ever_fit is False or waiting.queue is None:
        return False
    return any(queue != waiting.queue or priority < request.priority for queue, priority in least.items())
