"""The tentative changes of a decision to one ledger, in order: tried, rolled back to a checkpoint, or committed.

A decision tries much that it does not keep: a gang on nodes that break its queue's limit, victims of which one turns out
not to be needed. Every such change goes through a Statement, so "evict these, place that, else restore" reads:

    mark = statement.checkpoint()
    policy.evict(unit)                      # any changes, nested trials included
    if not fits():
        statement.rollback(mark)            # as if nothing had happened since the checkpoint

A change is a function whose last argument, `times`, is +1 to do it and -1 to undo it. Both together leave no trace, since all
that is changed are exact counts (devices, room on nodes, what queues use, what budgets have left): so one function says both,
and no second one has to be kept its inverse. Changes of different gangs commute, and `undo` can take back one in the middle
of the log: that is a change of its own, rolled back like others.

Invariants: `rollback(to)` leaves ledger and queues as they were at that checkpoint; after `commit` nothing before it can be
rolled back, but still undone. Nodes whose devices or room changed are logged, so that their scores are worked out again.
Source: KAI-Scheduler pkg/scheduler/framework/statement.go (checkpoint, rollback, commit).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any

from fairlead.engine.allocator.result import Pick, SearchStatus
from fairlead.engine.allocator.steps import StepAccounts, StepBudget
from fairlead.engine.inventory.device import Device
from fairlead.engine.inventory.inventory import Inventory
from fairlead.engine.inventory.node_table import NodeTable
from fairlead.engine.placement.model import CandidateNode, PlacementResult, UnitPlacement
from fairlead.engine.placement.search.placer import Placer
from fairlead.engine.placement.shapes import PlacementUnit
from fairlead.engine.placement.topology.domain_search import TopologyDomains
from fairlead.engine.types.allocation import AllocatedClaim
from fairlead.engine.types.gangs import GangRequest, RunningMember
from fairlead.engine.types.values import DeviceRef

Change = Callable[..., None]


class Statement:
    """One per ledger and decision: that of now, and the pipelined one (`reclaim.releasing`)."""

    def __init__(
        self,
        placer: Placer,
        domains: TopologyDomains,
        inventory: Inventory,
        nodes: NodeTable,
        accounts: StepAccounts,
    ) -> None:
        """`accounts`: on which the steps of searches are charged."""
        self.placer = placer
        self.accounts = accounts
        self.domains = domains
        self.ledger = placer.ledger
        self._inventory = inventory
        self._nodes = nodes
        self._log: list[tuple[Change, tuple[Any, ...], int]] = []
        self._commits = 0  # with changes
        self._released_claims: dict[str, int] = {}  # by UID: how many units that hold it are released
        self._released_pods: dict[str, int] = {}

    def checkpoint(self) -> int:
        return len(self._log)

    def rollback(self, to: int) -> None:
        log = self._log
        while len(log) > to:
            change, args, times = log.pop()
            change(*args, -times)

    def commit(self) -> None:
        self._commits += bool(self._log)
        self._log.clear()

    @property
    def stamp(self) -> tuple[int, int]:
        """Another one once anything is changed; where all of it is rolled back, the same."""
        return self._commits, len(self._log)

    def do(self, change: Change, *args: Any) -> None:
        change(*args, 1)
        self._log.append((change, args, 1))

    def undo(self, change: Change, *args: Any) -> None:
        """Take back one `do` of these arguments, wherever it is in the log, or before it."""
        change(*args, -1)
        self._log.append((change, args, -1))

    def allocated(self, placed: Sequence[UnitPlacement]) -> None:
        """The placer has just taken these."""
        self._log.append((self._allocate, (placed,), 1))

    def place(self, gang: GangRequest, units: Sequence[PlacementUnit], steps: int, *, spread: bool) -> PlacementResult:
        budget = self.accounts.budget(steps)
        result = self.domains.place(gang, units, budget, spread=spread)
        result.starved = budget.account.exhausted() and result.status is SearchStatus.BUDGET_ENDED
        self.allocated(result.placed)
        return result

    def put(self, unit: PlacementUnit, site: CandidateNode, budget: StepBudget) -> UnitPlacement | None:
        """The unit on this node, if it finds devices and room there."""
        placed = self.placer.put(unit, site, budget)
        if not isinstance(placed, UnitPlacement):
            return None
        self.allocated((placed,))
        return placed

    def deallocate(self, placed: Sequence[UnitPlacement]) -> None:
        self.undo(self._allocate, placed)

    def _allocate(self, placed: Sequence[UnitPlacement], times: int) -> None:
        if times < 0:
            self.placer.undo(placed)
        else:
            self.placer.redo(placed)

    def hold(self, placed: Iterable[UnitPlacement]) -> list[UnitPlacement]:
        """Keep these devices and this room from others, even where they are in use; returns what was not held before."""
        held = [
            UnitPlacement(
                entry.unit, entry.node, [[pick for pick in picks if self._free(pick)] for picks in entry.picks]
            )
            for entry in placed
        ]
        self.do(self.holding, held)
        return held

    def _free(self, pick: Pick) -> bool:
        return not pick.request.admin and (pick.device.shared or pick.device not in self.ledger.taken)

    def unhold(self, held: Sequence[UnitPlacement]) -> None:
        self.undo(self.holding, held)

    def withhold(self, sites: Sequence[CandidateNode], kept: Container[DeviceRef]) -> list[Device]:
        """Nothing may take the free devices of these nodes but the kept, until `restore`. Counters count as before."""
        free = [
            each for site in sites for each in site.devices.devices if each.ref not in kept and self.ledger.free(each)
        ]
        self.do(self._withholding, sites, free)
        return free

    def restore(self, sites: Sequence[CandidateNode], withheld: Sequence[Device]) -> None:
        self.undo(self._withholding, sites, withheld)

    def _withholding(self, sites: Iterable[CandidateNode], devices: Iterable[Device], times: int) -> None:
        taken = self.ledger.taken
        change = taken.update if times > 0 else taken.difference_update
        change(devices)
        for site in sites:
            self.placer.changed(site)

    def holding(self, held: Sequence[UnitPlacement], times: int, *, quiet: bool = False) -> None:
        """The change that `hold` is. `quiet`: it does not outlast a look at these nodes, whose change is not logged."""
        ledger = self.ledger
        change = ledger.reserve if times > 0 else ledger.unreserve
        for entry in held:
            for needs in entry.unit.shape.needs:
                ledger.count_pod(entry.node.info, needs, times)
            for facet in entry.unit.shape.facets:
                ledger.add_facet(entry.node.info, facet, times)
            for picks in entry.picks:
                for pick in picks:
                    change(pick.device, pick.consumption)
            if not quiet:
                self.placer.changed(entry.node)

    def released(self, devices: Sequence[Device], times: int) -> None:
        """The change by which these, which their nodes are releasing, count as free."""
        released = self.ledger.released
        change = released.update if times > 0 else released.difference_update
        change(devices)
        sites = self.placer.node_snapshot.by_name
        for node in dict.fromkeys(device.node for device in devices):
            if node in sites:
                self.placer.changed(sites[node])

    def releasing(
        self, members: Iterable[RunningMember], claims: Iterable[AllocatedClaim], times: int, *, quiet: bool = False
    ) -> None:
        """The change by which claims and pods count as gone. A claim of several units is free once the first is released."""
        sites = self.placer.node_snapshot.by_name
        touched: dict[CandidateNode, None] = {}
        for claim in claims:
            if not _first(self._released_claims, claim.uid, times):
                continue
            self.ledger.count_releasing(claim, self._inventory, times)
            for held in () if quiet else claim.devices:
                device = self._inventory.device(held.ref)
                if device is not None and device.node in sites:
                    touched[sites[device.node]] = None
        for member in members:
            uid = member.pod.uid
            at = self._nodes.pod(uid)
            if at is None or not _first(self._released_pods, uid, times):
                continue
            name, needs = at
            node = self._nodes.get(name)
            if node is not None:
                self.ledger.count_pod_releasing(node, uid, needs, times)
            if name in sites:
                touched[sites[name]] = None
        for site in () if quiet else touched:
            self.placer.changed(site)


def _first(released: dict[str, int], uid: str, times: int) -> bool:
    """Whether this releases the first of the units that hold it, or restores the last that was released."""
    before = released.get(uid, 0)
    released[uid] = before + times
    return 0 in {before, before + times}
