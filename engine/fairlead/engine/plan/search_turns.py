"""Which of a namespace's gangs are searched for in a decision: as many as the namespace's steps suffice for, the others next time.

What no count rules out may take a search through every way. Each namespace has so many steps of a decision (`allocator.steps`);
when they are used up its other gangs stay pending, with reason `SearchBudgetExhausted`, and those of other namespaces are decided on
as ever. The plan names the gangs that had a turn in vain, `Plan.searched`, and the next snapshot says so: until all others of the
namespace had theirs they are passed over. So each has its turn, in an order that follows from snapshots alone.
Of gangs that a namespace has steps enough for, as is usual, nothing is named, and none is passed over.
Not passed over: gangs for which others were evicted, and those that replace members, since devices are held for them.

Example: ten gangs, steps for three of them: the first decision searches for 1, 2 and 3, the next for 4, 5 and 6, and the fifth for 1 again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.engine.allocator.steps import StepAccounts
from fairlead.engine.types.reasons import Code, Reason

if TYPE_CHECKING:
    from collections.abc import Container

    from fairlead.engine.queues.gangs import PendingGang
    from fairlead.engine.snapshot import Snapshot
    from fairlead.engine.types.gangs import GangRequest

NAMESPACE_STEPS = 50_000  # a quarter of a second or more
DEVICE_STEPS = 10  # further ones for each device of the cluster: a look at all nodes and what runs there is ordinary
ALONE_STEPS = 400_000  # by default, where gangs of no other namespace wait
EVER_STEPS = 125_000  # by default, on the empty cluster
EVER_GANG_STEPS = 100_000  # of these for one gang
NAMESPACES = 2  # that may use all of theirs in one decision
TURN_S = 30.0  # after which those that had no turn are considered again, though nothing else has changed
TURN_STEPS = 100  # a gang that used fewer had no turn: it costs little to look at it each time
FEW = 16  # alternatives of a gang's requests that cost nothing to look at
LOOKS_STEP = 1_000  # further pairs of an alternative and a device of the cluster that cost a step


class SearchTurns:
    """The order in which the gangs of one decision are searched for. `accounts`: on which its searches are charged."""

    def __init__(self, snapshot: Snapshot, devices: int) -> None:
        """`devices`: how many the cluster has."""
        alone = len({gang.namespace for gang in snapshot.gangs}) <= 1
        self._each = snapshot.namespace_steps or (ALONE_STEPS if alone else NAMESPACE_STEPS)
        self._each += DEVICE_STEPS * devices
        self.accounts = StepAccounts(each=self._each, together=NAMESPACES * self._each)
        # What was searched on the empty cluster is remembered, so that it costs time once.
        self.ever = StepAccounts(each=snapshot.namespace_steps or (ALONE_STEPS if alone else EVER_STEPS), together=None)
        self.ever_steps = snapshot.search_steps if alone else min(snapshot.search_steps, EVER_GANG_STEPS)
        self._devices = devices
        self._had = snapshot.searched
        self._has: dict[str, dict[str, None]] = {}  # by namespace, UIDs of gangs that had a turn now
        self._missed: set[str] = set()  # namespaces of which a gang has had none
        self._crowded: set[str] = set()  # of these, those of which not all kinds of gangs are considered
        self._began = 0
        self.any_passed_over = False

    def crowded(self, namespaces: set[str]) -> None:
        """Not all kinds of their gangs are considered (`pending_kinds`): whatever is decided on now had its turn."""
        self._crowded |= namespaces
        self._missed |= namespaces

    def had(self, gang: GangRequest) -> None:
        """The gang needs no search to be left pending."""
        if gang.namespace in self._crowded:
            self._has.setdefault(gang.namespace, {})[gang.uid] = None

    def passed_by(self, gang: GangRequest) -> None:
        """The gang is of a kind that is not considered now."""
        self.any_passed_over = True
        if gang.uid in self._had:
            self._has.setdefault(gang.namespace, {})[gang.uid] = None

    def begin(self, pending: PendingGang) -> Reason | None:
        """The gang is decided on: its namespace pays from now on. Why it is passed over, if it is."""
        gang = pending.gang
        account = self.accounts.charge(gang.namespace)
        self._began = account.used
        first = gang.preemptor or gang.replaces
        if gang.uid in self._had and not first:
            self._note_turn(pending)
            self.any_passed_over = True
            return self.passed_over(pending)
        if account.exhausted() and not _plain(pending):
            self._note_missed(pending)
            return self.passed_over(pending)
        account.spend(self._looks(pending))
        return None

    def end(self, pending: PendingGang, *, stays: bool) -> None:
        """It has been decided on."""
        account = self.accounts.payer
        if not stays:
            return
        if account.exhausted() and 2 * self._began > self._each:
            self._note_missed(pending)  # what others had left over was no turn
        elif account.used - self._began >= TURN_STEPS:
            self._note_turn(pending)
        else:
            self.had(pending.gang)

    def _note_turn(self, pending: PendingGang) -> None:
        self._has.setdefault(pending.gang.namespace, {})[pending.gang.uid] = None

    def _note_missed(self, pending: PendingGang) -> None:
        self._missed.add(pending.gang.namespace)
        self.any_passed_over = True

    @property
    def out(self) -> bool:
        """Whether the namespace of the gang that is being decided on has no steps left."""
        return self.accounts.payer.exhausted()

    def searched(self, waiting: Container[str]) -> tuple[str, ...]:
        """The value of `Plan.searched`. `waiting`: UIDs of the gangs that are left pending."""
        found = [uid for namespace in sorted(self._missed) for uid in self._has.get(namespace, ())]
        return tuple(sorted({uid for uid in found if uid in waiting}))

    def _looks(self, pending: PendingGang) -> int:
        """What it costs to look at the devices for each alternative, and to say of each why it is not served."""
        shapes = {unit.shape for unit in pending.units}
        alternatives = sum(len(each) for shape in shapes for claim in shape.claims for each in claim.alternatives)
        return max(0, alternatives - FEW) * self._devices // LOOKS_STEP

    def passed_over(self, pending: PendingGang) -> Reason:
        """Why it stays pending."""
        namespace = pending.gang.namespace
        return Reason(
            code=Code.SEARCH_ENDED,
            message=f"gangs of namespace {namespace} that wait take longer to find devices for than a decision has time for one "
            "namespace; it is considered in one of the next",
            advice="ask for devices with fewer alternatives and constraints, and alike in pods that need the same",
        )


def _plain(pending: PendingGang) -> bool:
    """Whether it is placed without a search where its devices are free."""
    return all(unit.shape.plain and not unit.shape.facets for unit in pending.units)
