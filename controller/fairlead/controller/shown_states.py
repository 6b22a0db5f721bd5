"""What of a gang is shown, collected from where it is known: the book, its pods and claims, the cluster's tables, and Events."""

from __future__ import annotations

from fairlead.controller.autoscaling.awaited import AwaitedNodes
from fairlead.controller.book.book import Book
from fairlead.controller.book.shown import SchedulingState
from fairlead.controller.gangs.admission import recovery
from fairlead.controller.gangs.claims.allocations import held_claims
from fairlead.controller.gangs.evictions import eviction_marks
from fairlead.controller.gangs.held import leaving
from fairlead.controller.gangs.held.idleness import IdleNotice, notice
from fairlead.controller.gangs.held.placement import HeldModels, held_models, placement
from fairlead.controller.gangs.membership.gangs import Gang
from fairlead.controller.report.kubelet_events import KubeletEvents
from fairlead.controller.watch.caches import Caches

LONG_S = 60.0  # pods that take longer to end are named, with what bounds that


class ShownStates:
    def __init__(self, caches: Caches, book: Book, awaited: AwaitedNodes, kubelet_events: KubeletEvents) -> None:
        self._caches = caches
        self._book = book
        self._awaited = awaited
        self._kubelet_events = kubelet_events

    def of(self, gang: Gang, now: float) -> SchedulingState:
        state = self._book[gang.id]
        return SchedulingState(
            waiting=state.waiting,
            admitting=state.admitting,
            queue=self._caches.rules.queue_of(gang.id),
            last_failure=state.backoff.why if state.backoff else "",
            eviction=eviction_marks.progress(gang, state.attempts.refused if state.attempts else ""),
            victims=tuple(sorted("/".join(victim) for victim in state.victims or ())),
            reservation=state.reservation,
            leaving=self._leaving(gang, now),
            forecast=state.forecast,
            idle=self._idle(gang, now),
            placement=placement(gang, self._level_of) if gang.released else (),
            models=self._models(gang) if gang.released else None,
            hold="" if (held := self._caches.rules.held_by(gang)) is None else str(held),
            nodes=self._awaited.of(gang.id, now) if gang.gated else None,
            untried=recovery.untried(gang, now)[0],
            lost=self._caches.lookup.lost_nodes(gang) if gang.released else (),
            refused=self._kubelet_events.of(gang, now) if gang.released else None,
        )

    def _leaving(self, gang: Gang, now: float) -> str:
        """Of pods that take longer than usual to end: most are gone before anyone reads of them."""
        bound_s = (
            self._caches.rules.bounds(gang).termination_grace_s
            if any(each.terminating for each in gang.released)
            else 0
        )
        found = [
            member
            for member in leaving.holding(gang)
            if (member.pod.metadata.deletion_grace_period_seconds or 0) > min(bound_s, LONG_S)
            or (leaving.leaving_since(member.pod) or now) + LONG_S < now
        ]
        return leaving.description(found, bound_s)

    def _idle(self, gang: Gang, now: float) -> IdleNotice | None:
        found = self._caches.rules.idle(gang, now) if gang.released else None
        return None if found is None else notice(gang, *found, now)

    def _level_of(self, label: str, node: str) -> str | None:
        """What the node is labelled with, else the one value that its devices have of such an attribute."""
        tables = self._caches.tables
        info = tables.nodes.get(node)
        if info is None:
            return None
        if label in info.labels:
            return info.labels[label]
        devices = tables.inventory.on_node(node, info.labels).devices
        values = {str(value) for device in devices for _, value in device.values(label)}
        return values.pop() if len(values) == 1 else None

    def _models(self, gang: Gang) -> HeldModels | None:
        caches = self._caches
        return held_models(held_claims(gang.members).values(), caches.tables.inventory, caches.rules.models_of(gang))
