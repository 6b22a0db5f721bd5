"""The pipelined cluster: as it will be when all that is leaving has gone and all nominated gangs have started.

What is leaving are pods, and devices whose pods were deleted by force: the API knows neither pod nor claim any more, and only the node's
driver says that their containers run still.

A gang is nominated only for nodes and devices that it will really find there, not for counts. Victims are tried out on the
same ledger: `releasing` counts a unit as gone, and the statement rolls that back. Nothing is evicted here.
Invariants: `queue.used` is what queues hold once leaving pods are gone and nominated gangs have started; `queue.releasing`
is what leaving pods and victims hold beyond that now. What a nominated gang is to have is held: no later gang of the same
decision starts on it.
Source: KAI-Scheduler's pipelined pods on releasing resources.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

from fairlead.api.bounds import DEFAULTS
from fairlead.engine.allocator.steps import StepAccounts
from fairlead.engine.inventory.device import Device
from fairlead.engine.placement.model import PlacementResult, UnitPlacement
from fairlead.engine.placement.shapes import PlacementUnit
from fairlead.engine.queues.cache import SchedulerCache
from fairlead.engine.queues.charges import Charge, add
from fairlead.engine.queues.gangs import AssumedGang
from fairlead.engine.queues.statement import Statement
from fairlead.engine.queues.tree import Queue
from fairlead.engine.reclaim.candidates import EvictionUnit, TentativeAdmission
from fairlead.engine.reclaim.protection import Protection
from fairlead.engine.snapshot import Snapshot
from fairlead.engine.types.gangs import GangRequest, RunningGang, RunningMember

RELEASING_S = DEFAULTS.termination_grace_s
"""How long a device that its node is releasing is awaited: the pod that had it was deleted by force, and its queue is not known."""
AHEAD_S = 60.0
"""Clocks may differ by so much; what is said to be released since a later time is not awaited."""


def awaited_until(device: Device, now: float) -> float:
    """Until when others wait for a device that its node is releasing, unix seconds; -inf where it is not known since when."""
    since = device.kind.releasing_since
    return -inf if since is None or since > now + AHEAD_S else since + RELEASING_S


class PipelinedCluster:
    """One per decision, made when pods are leaving or the first gang finds no place."""

    def __init__(
        self, cache: SchedulerCache, snapshot: Snapshot, protection: Protection, accounts: StepAccounts
    ) -> None:
        self.cache = cache
        self.accounts = accounts
        self.snapshot = snapshot
        placer, self.domains = cache.pipelined
        placer.begin()
        self.statement = Statement(placer, self.domains, snapshot.inventory, snapshot.nodes, accounts)
        self.version = 0  # grows when something comes free
        self._protection = protection
        self.leaving = False  # some pods go for another reason
        self.assumed: dict[str, Sequence[UnitPlacement]] = {}  # gang id: what an admitted gang holds of this ledger
        self._failed: dict[object, tuple[int, PlacementResult]] = {}  # by signature: at which version

    def leave(self, running: Iterable[tuple[RunningGang, Queue]], leaving: set[str], now: float) -> list[float]:
        """Pods that go anyway are gone, with the claims that no staying pod uses; `leaving` are UIDs of more such pods.

        Not those that have been leaving for longer than their bound: their devices are not coming free, and their queue uses
        them still. Returns when the others reach theirs, unix seconds.
        """
        ends: list[float] = []
        for gang, queue in running:
            going: list[RunningMember] = []
            for member in gang.members:
                if member.leaving or member.pod.uid in leaving:
                    until = self._protection.awaited_until(gang, queue, member)
                    if until is None or until > now:
                        going.append(member)
                        ends += () if until is None else (until,)
            if not going:
                continue
            gone = {member.pod.uid for member in going}
            self.leaving = True
            staying = {uid for member in gang.members if member.pod.uid not in gone for uid in member.claims}
            uids = dict.fromkeys(uid for member in going for uid in member.claims if uid not in staying)
            claims = [claim for uid in uids if (claim := self.snapshot.inventory.claim(uid)) is not None]
            charge: Charge = {}
            for claim in claims:
                add(charge, self.cache.charges.of_allocated(claim, self.snapshot.inventory))
            add(charge, self.cache.charges.pods.of_pods(member.pod.uid for member in going))
            devices = sum(not item.admin for claim in claims for item in claim.devices)
            self.statement.do(queue.release, charge, devices)
            self.statement.do(self.statement.releasing, going, claims)
        self.statement.commit()
        self.note_more_free()
        return ends

    def release(self, devices: Sequence[Device], now: float) -> list[float]:
        """Devices that their nodes are releasing are free, but for those that have been so for longer than is awaited.

        Returns when the others have been, unix seconds.
        """
        awaited = [device for device in devices if awaited_until(device, now) > now]
        if awaited:
            self.statement.do(self.statement.released, awaited)
            self.statement.commit()
            self.note_more_free()
        return sorted({awaited_until(device, now) for device in awaited})

    def note_more_free(self) -> None:
        """What found no place may find one now."""
        self.version += 1

    def releasing(self, unit: EvictionUnit, only: str | None, times: int) -> None:
        """The change by which the unit's devices and room are free; `only`: those on this node, while that is looked at."""
        quiet = only is not None
        if isinstance(unit, TentativeAdmission):
            held = [entry for entry in unit.held if only is None or entry.node.name == only]
            self.statement.holding(held, -times, quiet=quiet)
        elif only is None:
            claims = [claim for claims in unit.claims.values() for claim in claims]
            self.statement.releasing(unit.members, claims, times)
        else:
            members = [member for member in unit.members if member.node == only]
            self.statement.releasing(members, unit.claims.get(only, ()), times, quiet=True)

    def assume(self, gang: AssumedGang) -> None:
        """A gang that was admitted now has its devices later, too."""
        self.assumed[gang.pending.id] = self.statement.hold(gang.placed)

    def place(
        self, gang: GangRequest, units: Sequence[PlacementUnit], signature: object, *, spread: bool
    ) -> PlacementResult:
        """Places for the whole gang, or none; failures are kept until more comes free."""
        known = self._failed.get(signature)
        if known is not None and known[0] == self.version:
            return known[1]
        outcome = self.statement.place(gang, units, self.snapshot.search_steps, spread=spread)
        if not outcome.placed and not outcome.starved:
            self._failed[signature] = (self.version, outcome)
        return outcome
