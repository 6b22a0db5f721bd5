"""Keeps cpu and memory on nodes for gangs that have a place held there: `status.nominatedNodeName` of their gated pods.

Devices that are held for a gang no other gang gets; but kube-scheduler places pods that ask for none, and does not know of the place.
It counts a pod that is nominated to a node there, gated or not, against pods of the same or a lower priority (tried on 1.36.2).

Level-triggered: what is wanted follows from the reservations of the last decision, what is there from the pods. One write a pod.
Invariants:
- no pod is nominated to a node while pods of another gang are on their way there (released, not bound): the engine may have put that
  gang beside the held place, where until others have ended the two do not fit together, and kube-scheduler would refuse it;
- pods that autoscalers are shown are not nominated: an autoscaler passes nominated pods over;
- without --nominate-nodes nothing is nominated, and what an earlier leader nominated is taken back.
Source: KEP-5278 (kube-scheduler and other components write the field), kubernetes pkg/scheduler/backend/queue/nominator.go.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from fairlead.controller.autoscaling.visible import may_be_shown
from fairlead.controller.book.book import GangState
from fairlead.controller.commit.part import Part, Shared
from fairlead.controller.commit.writes import GivenUpError
from fairlead.controller.gangs.membership.gangs import Gang, GangId
from fairlead.controller.gangs.membership.members import Stage
from fairlead.controller.gangs.release import pinned_node
from fairlead.engine.types.plan import Reservation
from fairlead.kube import core, errors

log = logging.getLogger(__name__)

REFUSED_S = 60.0  # until it is tried again after the apiserver refused it


class NominatedNodes(Part):
    """The nominations of one term."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        self._enabled, book = shared.options.nominate_nodes, shared.book
        self._reservations: Mapping[GangId, Reservation] = book.all(GangState.reservation) if self._enabled else {}
        self._nominated, self._coming = book.all(GangState.nominated), book.all(GangState.coming)
        self._refused_until = 0.0
        self._said = ""
        self._first = True

    def sync(self) -> None:
        """After a run of the loop."""
        if self._first:
            self._first = False
            self._look_at_all()
        if not (self._reservations or self._nominated or self._coming):
            return
        self._end_coming()
        if self._refused_until > self._wall():
            return
        for gang_id in sorted(self._nominated.keys() | self._reservations.keys()):
            gang = self._caches.gangs.get(gang_id)
            state = self._book[gang_id]
            todo = self._todo(gang) if gang is not None else []
            nominated = gang is not None and any(_nominated(member.pod) for member in gang.gated)
            state.nominated = bool(todo) or nominated or None
            if gang is not None and todo and not state.busy:
                self._start(gang)

    def _look_at_all(self) -> None:
        """What the leader before left: nominated pods, and gangs that it released and that are not bound yet."""
        for gang_id, gang in self._caches.gangs.items():
            if any(_nominated(member.pod) for member in gang.gated):
                self._book[gang_id].nominated = True
            nodes = _on_their_way(gang)
            if nodes and self._enabled:
                self._book[gang_id].coming = nodes

    def _end_coming(self) -> None:
        for gang_id in list(self._coming):
            gang = self._caches.gangs.get(gang_id)
            if gang is None or not (self._book[gang_id].busy or _on_their_way(gang)):
                self._book[gang_id].coming = None

    def _wanted(self, gang: Gang) -> dict[str, str]:
        """The node of each pod, by UID."""
        reservation, demand = self._reservations.get(gang.id), self._book[gang.id].demand
        if reservation is None or (demand is not None and demand.mode == "Visible" and demand.state == "Asked"):
            return {}
        taken = {node for gang_id, nodes in self._coming.items() if gang_id != gang.id for node in nodes}
        return {each.pod.uid: each.node for each in reservation.assignments if each.node not in taken}

    def _todo(self, gang: Gang) -> list[tuple[core.Pod, str]]:
        """Pods with the node that each is to be nominated to; "": none."""
        wanted = self._wanted(gang)
        return [
            (member.pod, wanted.get(member.uid, ""))
            for member in gang.gated
            if may_be_shown(member.pod) and _nominated(member.pod) != wanted.get(member.uid, "")
        ]

    def _start(self, gang: Gang) -> None:
        gang_id = gang.id

        async def write() -> None:
            for pod, _ in self._todo(gang):
                latest = self._caches.latest(pod)
                node = self._wanted(gang).get(pod.metadata.uid, "")  # another gang may be on its way there by now
                if may_be_shown(latest) and _nominated(latest) != node and not await self._write(latest, node):
                    return

        self._tasks.start(
            f"room for {gang.namespace}/{gang.name}", write(), ended=lambda: self._caches.triggers.gang(gang_id)
        )

    async def make_way(self, gang_id: GangId, nodes: Collection[str]) -> None:
        """Before pods of the gang are released to these nodes: no other gang's pods are nominated there until they are bound."""
        if not self._enabled:
            return
        coming = self._book[gang_id].coming = frozenset(nodes)
        for other in sorted(self._nominated.keys() - {gang_id}):
            gang = self._caches.gangs.get(other)
            for member in gang.gated if gang is not None else ():
                latest = self._caches.latest(member.pod)
                if _nominated(latest) in coming and may_be_shown(latest):
                    await self._write(latest, "")

    async def _write(self, pod: core.Pod, node: str) -> bool:
        """False where the apiserver refuses it, so that it is not tried for each pod."""
        try:
            await self._writer.nominate(pod, node)
        except (errors.ApiError, GivenUpError) as error:
            self._refused_until = self._wall() + REFUSED_S
            text = (
                f"pod {pod.metadata.key}: status.nominatedNodeName not written, so that pods without devices may take the cpu and memory that "
                f"are kept for it: {error}"
                + (
                    "; set controller.nominateNodes=true in the chart's values, or leave out --nominate-nodes"
                    if isinstance(error, errors.Forbidden)
                    else ""
                )
            )
            if text != self._said:
                log.warning("%s", text)
                self._said = text
            return False
        return True


def _nominated(pod: core.Pod) -> str:
    return pod.status.nominated_node_name


def _on_their_way(gang: Gang) -> frozenset[str]:
    """Nodes of released pods that are not bound."""
    return frozenset(
        node
        for member in gang.members
        if member.stage is Stage.RELEASED and not member.pod.spec.node_name
        if (node := pinned_node(member.pod)) is not None
    )
