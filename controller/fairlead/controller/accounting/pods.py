"""What the ledger is told of pods: those of gangs that are bound, with what the Flavors with measure Resource count them for.

The same pods and amounts as queues are charged for (`engine.queues.pod_charges`), but from the binding on, which the API remembers: so what
a new leader tells is what the one before would have. A look compares gangs by identity, and costs those that changed. Without such
Flavors nothing is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager

from fairlead.api.resource_units import in_units
from fairlead.controller.accounting.claims import Attribution
from fairlead.controller.gangs.membership.gangs import Gang, GangId, ended_s
from fairlead.engine.inventory.node_table import NodeTable
from fairlead.engine.queues.pod_charges import PodCharges
from fairlead.engine.types.settings import FlavorSpec
from fairlead.history.ledger.pod_entries import PodAmount, PodEnded, PodSeen, PodUse
from fairlead.kube import core, timestamps
from fairlead.kube.timestamps import microseconds

Told = tuple[list[PodSeen], list[PodEnded]]


class PodNotes:
    """`renew` where flavors or queues changed; then `changed`, or `everything`."""

    def __init__(
        self,
        gangs: Mapping[GangId, Gang],
        nodes: NodeTable,
        attribution: Attribution,
        capacity_type: Callable[[str | None], str | None],
        contained: Callable[[GangId], AbstractContextManager[None]],
    ) -> None:
        self._gangs = gangs
        self._nodes = nodes
        self._attribution = attribution
        self._capacity_type = capacity_type
        self._contained = contained
        self._charges = PodCharges((), nodes)
        self._counted: dict[str, tuple[FlavorSpec, int]] = {}  # by flavor: since when it counts as it does
        self._told: dict[GangId, dict[str, tuple[str, PodSeen]]] = {}  # by gang and pod UID: its node, what was told
        self._looked: dict[GangId, Gang] = {}
        self._cursor = -1
        self._all = False

    def renew(self, flavors: Iterable[FlavorSpec], created_us: Mapping[str, int], now: float) -> None:
        """`created_us`: of flavors by name; one that is not there counts from now on."""
        own = sorted((each for each in flavors if each.measure == "Resource"), key=lambda each: each.name)
        before, self._counted = self._counted, {}
        for flavor in own:
            known = before.get(flavor.name)
            if known is None:
                self._counted[flavor.name] = flavor, created_us.get(flavor.name, microseconds(now))
            else:
                self._counted[flavor.name] = known if known[0] == flavor else (flavor, microseconds(now))
        self._charges = PodCharges(own, self._nodes)
        self._all = True

    def everything(self, now: float) -> Told:
        """All pods that are there, also those that have ended."""
        self._told.clear()
        self._looked.clear()
        self._all = True
        seen, ended = self.changed(now)
        if self._counted:
            finished = (member.pod for gang in self._gangs.values() for member in gang.members if member.pod.finished)
            ended += [_ended(pod.metadata.uid, pod, now) for pod in finished]
        return seen, ended

    def changed(self, now: float) -> Told:
        seen: list[PodSeen] = []
        ended: list[PodEnded] = []
        if not self._counted and not self._told:
            return seen, ended
        for gang_id in self._due():
            with self._contained(gang_id):
                self._look(gang_id, now, seen, ended)
        return seen, ended

    def _due(self) -> list[GangId]:
        """Gangs that are new, changed or gone, and those with a pod on a node that changed."""
        changed = self._nodes.node_changes.since(self._cursor)
        self._cursor = self._nodes.node_changes.cursor
        every, self._all = self._all or changed is None, False
        due = {gang_id for gang_id, gang in self._gangs.items() if every or self._looked.get(gang_id) is not gang}
        due |= self._looked.keys() - self._gangs.keys()
        if changed and not every:
            names = set(changed)
            due |= {gang_id for gang_id, pods in self._told.items() if any(node in names for node, _ in pods.values())}
        return sorted(due)

    def _look(self, gang_id: GangId, now: float, seen: list[PodSeen], ended: list[PodEnded]) -> None:
        gang, before = self._gangs.get(gang_id), self._told.pop(gang_id, {})
        self._looked.pop(gang_id, None)
        found: dict[str, tuple[str, PodSeen]] = {}
        pods = {} if gang is None else {member.uid: member.pod for member in gang.members}
        for member in () if gang is None or not self._counted else gang.released:
            if member.bound:
                found[member.uid] = member.pod.spec.node_name, self._seen(member.pod, before.get(member.uid), now)
        seen += [each for uid, (_, each) in found.items() if uid not in before or before[uid][1] != each]
        ended += [_ended(uid, pods.get(uid), now) for uid in before if uid not in found]
        if gang is not None:
            self._looked[gang_id] = gang
        if found:
            self._told[gang_id] = found

    def _seen(self, pod: core.Pod, before: tuple[str, PodSeen] | None, now: float) -> PodSeen:
        since_us = before[1].since_us if before is not None else bound_us(pod, now)
        holder = self._attribution.holder(pod)
        found = self._nodes.pod(pod.metadata.uid)
        if found is None:  # it ends just now
            return PodSeen(pod_uid=pod.metadata.uid, holder=holder, since_us=since_us)
        node, needs = found
        capacity_type = self._capacity_type(node)
        uses: list[PodUse] = []
        for name, value in self._charges.of(needs, self._charges.at(self._nodes.get(node))).items():
            flavor, counted_us = self._counted[name]
            resource = flavor.resource_name or ""
            amount = PodAmount(name, resource, in_units(resource, value), capacity_type)
            uses.append(PodUse(amount, counted_us))
        return PodSeen(pod_uid=pod.metadata.uid, holder=holder, since_us=since_us, uses=tuple(uses))


def bound_us(pod: core.Pod, now: float) -> int:
    """When it was bound, as its condition says; else when kubelet saw it, else now."""
    condition = pod.condition("PodScheduled")
    scheduled = condition.last_transition_time if condition is not None and condition.status == "True" else None
    at = timestamps.parsed(scheduled) or timestamps.parsed(pod.status.start_time)
    return microseconds(now if at is None else min(at, now))


def _ended(uid: str, pod: core.Pod | None, now: float) -> PodEnded:
    at = ended_s(pod) if pod is not None and pod.finished else 0.0
    return PodEnded(uid, microseconds(min(at or now, now)))
