"""The running gangs as units that can be evicted: a whole gang, or one member of an elastic gang's surplus.

Reclaim, preemption and reservations all look at running gangs through these units: by node, by queue, in one total order.
It has what a unit holds and until when min-runtime protects it; which queue must give one up is `policy`'s.
Order: idle gangs where their queue says so (`suspended`), surplus before whole gangs, lower priority first, least work to lose first (saved or started last, then created last), then UID.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from operator import attrgetter

from fairlead.engine.inventory.inventory import Inventory
from fairlead.engine.placement.model import UnitPlacement
from fairlead.engine.queues.charges import Charge, Charges, add, chargeable
from fairlead.engine.queues.gangs import AssumedGang
from fairlead.engine.queues.tree import Queue
from fairlead.engine.reclaim.protection import Protection, works_since
from fairlead.engine.types.allocation import AllocatedClaim
from fairlead.engine.types.gangs import RunningGang, RunningMember

Rank = tuple[bool, float, float, float, str, str]
_rank = attrgetter("rank")


class EvictionUnit:
    """What one eviction frees. `members` are the pods that would go; those that are leaving already are not among them."""

    runs = True  # False: this decision gave it its devices, see `plan.preemption`
    starts = True  # False: it is only nominated for devices that come free
    turn = 0  # of one that does not start: its gang's place in this decision's order

    def __init__(
        self,
        gang: RunningGang,
        queue: Queue,
        members: Sequence[RunningMember],
        claims: Mapping[str, list[AllocatedClaim]],
        charge: Charge,
        devices: int,
        *,
        whole: bool,
        suspended: bool = False,
    ) -> None:
        self.gang = gang
        self.id = gang.id
        self.queue = queue
        self.members = members
        self.claims = claims  # by node
        self.charge = charge  # replaced, never changed: it may be that of a claim
        self.devices = devices
        self.whole = whole
        self.started = gang.started if whole else members[0].started or gang.started
        self.works_since = works_since(gang, self.started)
        last = "" if whole else members[0].pod.uid
        # A suspended gang is compared as surplus of the lowest priority, though it goes whole.
        self.rank: Rank = (
            whole and not suspended,
            -inf if suspended else gang.priority,
            -self.works_since,
            -gang.created,
            gang.uid,
            last,
        )

    def __repr__(self) -> str:
        return f"EvictionUnit({self.gang.id}{'' if self.whole else ' ' + self.members[0].pod.name})"

    def devices_on(self, node: str) -> int:
        """How many it holds on this node."""
        return sum(claim.counted for claim in self.claims.get(node, ()))

    @property
    def kind(self) -> tuple[Queue, frozenset[str]]:
        """Its queue, and the flavors of which it holds something: shares of queues forbid or allow all of a kind."""
        return self.queue, frozenset(self.charge)

    @property
    def nodes(self) -> Iterable[str]:
        if len(self.members) == 1 and self.claims.keys() == {(node := self.members[0].node)}:
            return (node,)
        return dict.fromkeys([member.node for member in self.members] + list(self.claims))


class TentativeAdmission(EvictionUnit):
    """A gang to which this decision has given devices: what the next decision could evict, this one need not start.

    `held` is what it holds of the pipelined ledger. `starts`: admitted; else only nominated for what comes free. min-runtime
    protects it as it would protect the running gang from the next decision, so that both come to the same answer.
    """

    runs = False

    def __init__(
        self, assumed: AssumedGang, held: Sequence[UnitPlacement], now: float, turn: int, *, starts: bool
    ) -> None:
        gang = assumed.pending.gang
        members = tuple(
            RunningMember(pod=member.pod, node=placed.node.name, started=now)
            for placed in assumed.placed
            for member in placed.unit.members
        )
        as_running = RunningGang(
            namespace=gang.namespace,
            name=gang.name,
            uid=gang.uid,
            queue=gang.queue,
            claims=(),
            priority=gang.priority,
            created=gang.created,
            started=now,
            size=len(members),
            members=members,
            ends_by=None if gang.run_s is None else now + gang.run_s,
        )
        super().__init__(as_running, assumed.pending.queue, members, {}, assumed.charge, assumed.devices, whole=True)
        self.held = held
        self.starts = starts
        self.turn = turn

    def devices_on(self, node: str) -> int:
        return sum(1 for _ in chargeable(placed for placed in self.held if placed.node.name == node))


class VictimCandidates:
    """The units of all running gangs. Per decision: `add_running` each gang, `sort` once, then `insert` and `remove`.

    `now` (unix seconds) decides what min-runtime still protects. `suspended`: whether a gang goes before all others, unprotected by it.
    """

    def __init__(
        self,
        inventory: Inventory,
        charges: Charges,
        now: float,
        *,
        suspended: Callable[[RunningGang, Queue], bool],
    ) -> None:
        self._suspended = suspended
        self._inventory = inventory
        self._charges = charges
        self.now = now
        self.units: list[EvictionUnit] = []
        self.by_queue: dict[Queue, list[EvictionUnit]] = defaultdict(list)
        self.protected: dict[EvictionUnit, float] = {}  # until when
        self.unprotected: dict[tuple[Queue, frozenset[str]], list[EvictionUnit]] = defaultdict(
            list
        )  # others, by flavors
        self._by_node: dict[str, list[EvictionUnit]] | None = None
        self.protection = Protection()
        self.version = 0  # grows when others are candidates, or one holds less
        self._whole: dict[str, EvictionUnit] = {}  # by gang id
        self.staying: dict[str, int] = {}  # gang id: members that are not leaving

    def add_running(self, gang: RunningGang, queue: Queue, leaving: set[str]) -> None:
        """The units of a gang of this queue; `leaving` are the UIDs of pods that go for another reason."""
        members: Sequence[RunningMember] = gang.members
        if not members:
            self._add_unknown(gang, queue)
            return
        for member in members:
            if member.leaving or (leaving and member.pod.uid in leaving):
                members = [other for other in members if not (other.leaving or other.pod.uid in leaving)]
                break
        if not members:
            return
        whole = self._of_one_pod(gang, queue, members[0]) if len(gang.members) == 1 else None
        if whole is None:
            whole = self._unit(gang, queue, members, _node_of_claims(members), whole=True)
        suspended = gang.idle is not None and self._suspended(gang, queue)
        min_runtime_s = -inf if suspended else self.protection.min_runtime_s(gang, queue)
        self.staying[whole.id] = len(members)
        self._whole[whole.id] = whole
        self._add(whole, whole.started + min_runtime_s)
        if len(members) > gang.size:
            self._add_surplus(gang, queue, members, min_runtime_s)

    def _of_one_pod(self, gang: RunningGang, queue: Queue, member: RunningMember) -> EvictionUnit | None:
        """A gang of one pod with one claim, the common case, at the least cost. None: it has more or fewer claims."""
        claim = self._inventory.claim(member.claims[0]) if len(member.claims) == 1 else None
        if claim is None:
            return None
        charge = self._charges.of_allocated(claim, self._inventory)
        if self._charges.pods:
            charge = {**charge, **self._charges.pods.of_pods([member.pod.uid])}
        suspended = gang.idle is not None and self._suspended(gang, queue)
        claims = {member.node: [claim]}
        return EvictionUnit(gang, queue, gang.members, claims, charge, claim.counted, whole=True, suspended=suspended)

    def _add_surplus(
        self, gang: RunningGang, queue: Queue, members: Sequence[RunningMember], min_runtime_s: float
    ) -> None:
        """Each member of a gang that runs with more than its size, by the claims that no other member uses."""
        users = Counter(uid for member in gang.members for uid in member.claims)
        for member in members:
            own = {uid: member.node for uid in member.claims if users[uid] == 1}
            unit = self._unit(gang, queue, [member], own, whole=False)
            if unit.claims:
                self._add(unit, unit.started + min_runtime_s)

    def _add_unknown(self, gang: RunningGang, queue: Queue) -> None:
        """A gang whose pods the controller has not seen: never a victim, but a reservation may wait for its end."""
        held: dict[str, str] = {}
        for uid in gang.claims:
            claim = self._inventory.claim(uid)
            for item in claim.devices if claim is not None else ():
                device = self._inventory.device(item.ref)
                if device is not None and device.node is not None:
                    held.setdefault(uid, device.node)
        unit = self._unit(gang, queue, (), held, whole=True)
        self.staying[unit.id] = 0
        self._add(unit, inf)

    def _add(self, unit: EvictionUnit, until: float) -> None:
        if until > self.now:
            self.protected[unit] = until
        self.units.append(unit)
        self.by_queue[unit.queue].append(unit)

    def _unit(
        self,
        gang: RunningGang,
        queue: Queue,
        members: Sequence[RunningMember],
        held: Mapping[str, str],
        *,
        whole: bool,
    ) -> EvictionUnit:
        """`held`: claim UID and node."""
        claims: dict[str, list[AllocatedClaim]] = {}
        charge: Charge = {}
        devices = 0
        for uid, node in held.items():
            claim = self._inventory.claim(uid)
            if claim is not None:
                claims.setdefault(node, []).append(claim)
                devices += claim.counted
                more = self._charges.of_allocated(claim, self._inventory)
                if len(held) == 1:
                    charge = more
                else:
                    add(charge, more)
        if self._charges.pods:
            charge = {**charge, **self._charges.pods.of_pods(member.pod.uid for member in members)}
        suspended = gang.idle is not None and self._suspended(gang, queue)
        return EvictionUnit(gang, queue, members, claims, charge, devices, whole=whole, suspended=suspended)

    def sort(self) -> None:
        """Once, after the last `add_running`."""
        self.units.sort(key=_rank)
        for units in self.by_queue.values():
            units.sort(key=_rank)
            for unit in units:
                if unit not in self.protected:
                    self.unprotected[unit.kind].append(unit)

    @property
    def by_node(self) -> Mapping[str, list[EvictionUnit]]:
        """The candidates of each node, in order, once sorted. Built when a place is looked for: a refusal needs no nodes."""
        if self._by_node is None:
            self._by_node = {}
            for unit in self.units:
                for node in unit.nodes:
                    self._by_node.setdefault(node, []).append(unit)
        return self._by_node

    def shrink(self, unit: EvictionUnit) -> None:
        """A member of a surplus is evicted for good: the unit of its whole gang holds so much less."""
        if unit.whole:
            return
        assert self.by_node  # by where all of them are still
        self.version += 1
        whole = self._whole[unit.id]
        self.staying[unit.id] -= 1
        whole.members = [member for member in whole.members if member not in unit.members]
        whole.claims = {
            node: [claim for claim in claims if claim not in unit.claims.get(node, ())]
            for node, claims in whole.claims.items()
        }
        listed = self.unprotected[whole.kind]
        open_ = whole in listed
        if open_:
            listed.remove(whole)
        charge = dict(whole.charge)
        add(charge, unit.charge, -1)
        whole.charge = {flavor: value for flavor, value in charge.items() if value}
        if open_:
            insort(self.unprotected[whole.kind], whole, key=_rank)
        whole.devices -= unit.devices

    def insert(self, units: Iterable[EvictionUnit]) -> None:
        """More units, which start now, into the sorted ones."""
        self.version += 1
        for unit in units:
            insort(self.units, unit, key=_rank)
            insort(self.by_queue[unit.queue], unit, key=_rank)
            until = self.now + self.protection.min_runtime_s(unit.gang, unit.queue)
            if unit.starts and until > self.now:
                self.protected[unit] = until
            else:
                insort(self.unprotected[unit.kind], unit, key=_rank)
            if self._by_node is not None:
                for node in unit.nodes:
                    insort(self._by_node.setdefault(node, []), unit, key=_rank)

    def remove(self, unit: EvictionUnit) -> None:
        """One that was inserted."""
        self.version += 1
        self.units.remove(unit)
        self.by_queue[unit.queue].remove(unit)
        if self.protected.pop(unit, None) is None:
            self.unprotected[unit.kind].remove(unit)
        if self._by_node is not None:
            for node in unit.nodes:
                self._by_node[node].remove(unit)


def _node_of_claims(members: Iterable[RunningMember]) -> dict[str, str]:
    """Claim UID: the node of the first member that uses it."""
    nodes: dict[str, str] = {}
    for member in members:
        for uid in member.claims:
            nodes.setdefault(uid, member.node)
    return nodes
