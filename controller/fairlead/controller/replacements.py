"""Members of running gangs that are being replaced: their places held in the engine's tables, and for how long.

A gang may be short of its size for `timeout_s`. Then it is evicted whole, to start again together, if its pods are still being
made; else (nothing is known to make another) its places are given up and the others run on. A place on a broken device is not
refilled: the engine, which sees who held it, evicts the gang whole. So it matters not whether the cluster's own taint eviction has
deleted the pod before the first decision: with the place refilled, three members of four would wait for a peer that is another.
What is kept here may be lost with this process: a new leader holds no place of a member lost before, and counts the time anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from fairlead.controller.book.book import Book
from fairlead.controller.book.gang_state import GangState, Replacement
from fairlead.controller.gangs.held import vacancies
from fairlead.controller.gangs.held.vacancies import Vacancy
from fairlead.controller.gangs.membership.gangs import Gang, GangId
from fairlead.controller.watch.tables import Tables
from fairlead.engine.reclaim.evictions import BrokenDevices
from fairlead.engine.types.gangs import GangRequest, RunningGang
from fairlead.engine.types.plan import Admission


class Replacements:
    def __init__(self, book: Book, tables: Tables, *, timeout_s: float) -> None:
        self._book = book
        self._tables = tables
        self._timeout_s = timeout_s
        self._known = book.all(GangState.replacement)

    def update(self, gang_id: GangId, gang: Gang | None, now: float) -> None:
        """The gang changed: the places of members that it lost are held, those that it needs no more given up."""
        if gang is None or not gang.started or gang.solo:
            self._forget(gang_id)
            return
        known = self._book[gang_id].replacement = self._known.get(gang_id) or Replacement()
        running = {member.uid for member in gang.running}
        for uid, place in list(known.places.items()):
            if uid not in running:
                del known.places[uid]
                known.vacant[uid] = place
        for member in gang.running:
            found = vacancies.vacancy_of(member)
            if found is not None:
                known.places[member.uid] = found
        replaced = vacancies.may_be_replaced(gang)
        short = vacancies.short_of(gang) if replaced else 0
        if not replaced or not vacancies.unbound(gang):
            known.short_since, known.given_up = None, False
        elif known.short_since is None:
            known.short_since = now
        keep = 0 if known.given_up else short
        for uid in list(known.vacant)[: max(0, len(known.vacant) - keep)]:
            self._release(known, uid)
        for vacancy in known.vacant.values():
            self._tables.hold(vacancy.member.pod, vacancy.node, vacancy.claims)

    def deadline(self, gang_id: GangId) -> float | None:
        """When the gang may not be short any longer; unix seconds."""
        known = self._known.get(gang_id)
        if known is None or known.short_since is None or known.given_up:
            return None
        return known.short_since + self._timeout_s

    def overdue(self, gang: Gang, now: float) -> str:
        """Why the gang is to be evicted whole; "" if it is not. Gives up its places where no more pods are known to come."""
        deadline = self.deadline(gang.id)
        if deadline is None or now < deadline or not vacancies.short_of(gang):
            return ""
        if vacancies.more_pods_come(gang):
            return vacancies.overdue_text(gang, self._timeout_s)
        known = self._known[gang.id]
        known.given_up = True
        for uid in list(known.vacant):
            self._release(known, uid)
        return ""

    # -- around a decision -----------------------------------------------------------------------------------------

    def lift(self, requests: Iterable[GangRequest], now: float) -> list[GangRequest]:
        """The requests, those that replace members marked; what is held for them is free until `restore`.

        Without those that would replace a member whose device broke.
        """
        found: list[GangRequest] = []
        broken = BrokenDevices(self._tables.inventory, now)
        for request in requests:
            gang_id = (request.namespace, request.name)
            known = self._known.get(gang_id)
            if known is None or not known.vacant:
                found.append(request)
                continue
            if any(_hurt(vacancy, broken) for vacancy in known.vacant.values()):
                continue
            known.lifted = tuple(known.vacant.values())
            for vacancy in known.lifted:
                self._tables.unhold(vacancy.member.pod, vacancy.claims)
            found.append(replace(request, replaces=True))
        lifted = self._lifted()
        if len(lifted) < 2:
            return found
        return [self._apart(request, lifted) for request in found]

    def _lifted(self) -> dict[GangId, Replacement]:
        return {gang_id: known for gang_id, known in self._known.items() if known.lifted}

    def _apart(self, request: GangRequest, lifted: Mapping[GangId, Replacement]) -> GangRequest:
        """Two gangs with held places do not take one another's while there are others."""
        if not request.replaces:
            return request
        mine = (request.namespace, request.name)
        others = (vacancy for gang_id, each in lifted.items() if gang_id != mine for vacancy in each.lifted)
        nodes = vacancies.avoided_nodes(lifted[mine].lifted, others)
        return replace(request, avoid=tuple(sorted({*request.avoid, *nodes})))

    def short(self) -> list[GangId]:
        """Gangs for which places are held now."""
        return [gang_id for gang_id, known in self._known.items() if known.vacant and not known.lifted]

    def running(self, gang_id: GangId, running: RunningGang, now: float) -> RunningGang:
        """With the places that are held for it now."""
        known = self._known.get(gang_id)
        if known is None or not known.vacant or known.lifted:
            return running
        broken = BrokenDevices(self._tables.inventory, now)
        hurt = frozenset(uid for uid, vacancy in known.vacant.items() if _hurt(vacancy, broken))
        return vacancies.with_vacancies(running, tuple(known.vacant.values()), hurt)

    def restore(self, admissions: Iterable[Admission]) -> None:
        """The decision is made: what was not taken is held again."""
        lifted = self._lifted()
        taken: set[tuple[str, str, str]] = set()
        nodes: dict[GangId, list[str]] = {}
        for admission in admissions if lifted else ():
            nodes[admission.namespace, admission.name] = [each.node for each in admission.assignments]
            taken |= {
                (result.driver, result.pool, result.device)
                for claim in admission.claims
                for result in claim.allocation.devices.results
                if not result.admin_access
            }
        for gang_id, known in lifted.items():
            filled = nodes.get(gang_id, [])
            order = sorted(known.lifted, key=lambda vacancy: vacancy.node not in filled)
            for vacancy in order[: len(filled)]:
                del known.vacant[vacancy.uid]
            for vacancy in order[len(filled) :]:
                if vacancies.devices_of(vacancy) & taken:
                    del known.vacant[vacancy.uid]
                else:
                    self._tables.hold(vacancy.member.pod, vacancy.node, vacancy.claims)
            known.lifted = ()

    # -- giving up -------------------------------------------------------------------------------------------------

    def _release(self, known: Replacement, uid: str) -> None:
        vacancy = known.vacant.pop(uid)
        self._tables.unhold(vacancy.member.pod, vacancy.claims)

    def _forget(self, gang_id: GangId) -> None:
        known = self._book.take(gang_id, GangState.replacement)
        if known is not None:
            for uid in list(known.vacant):
                self._release(known, uid)


def _hurt(vacancy: Vacancy, broken: BrokenDevices) -> bool:
    return any(broken.fault(claim.metadata.uid) is not None for claim in vacancy.claims)
