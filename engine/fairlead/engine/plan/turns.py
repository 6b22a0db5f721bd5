"""The turns of a decision: which gangs go first in any case and which last, and which of a namespace's gangs are searched for now.

Nothing is admitted that the next decision would take back: gangs for which others were evicted go first; then those within their queues'
shares; then those over them.
What no count rules out may take a search through every way. Each namespace has so many steps of a decision (`allocator.steps`); when they
are used up its other gangs stay pending, with reason `SearchBudgetExhausted`, and those of other namespaces are decided on as ever. The
plan names the gangs that had a turn in vain, `Plan.searched`, and the next snapshot says so: until all others of the namespace had theirs
they are passed over. So each has its turn, in an order that follows from snapshots alone. Of gangs that a namespace has steps enough for,
as is usual, nothing is named, and none is passed over; nor are gangs for which others were evicted, and those that replace members.
Example: ten gangs, steps for three of them: the first decision searches for 1, 2 and 3, the next for 4, 5 and 6, and the fifth for 1 again.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence

from fairlead.engine.allocator.steps import StepAccounts
from fairlead.engine.queues.gangs import PendingGang
from fairlead.engine.queues.tree import Queue
from fairlead.engine.reclaim.policy import fits_share, over_contested_share
from fairlead.engine.snapshot import Snapshot
from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.reasons import Code, Reason


def preemptors_first(pending: Sequence[PendingGang]) -> list[PendingGang]:
    """Members that replace others of a gang that runs; then gangs for which others were evicted, in order, and those that
    could evict them again at once: of higher priority in the same queue, and within its share.
    """
    least: dict[Queue, int] = {}  # priority of a preemptor of the queue
    for each in pending:
        if each.gang.preemptor:
            least[each.queue] = min(each.gang.priority, least.get(each.queue, each.gang.priority))
    first = [
        each
        for each in pending
        if each.gang.preemptor
        or each.gang.replaces
        or (
            each.queue in least
            and each.gang.priority > least[each.queue]
            and each.queue.spec.preemption != "Never"
            and over_contested_share(each.queue, each.charge) is None
        )
    ]
    return sorted(
        first, key=lambda each: (not each.gang.replaces, -each.gang.priority, not each.gang.preemptor, each.rank)
    )


def by_share(
    pending: Sequence[PendingGang], reserve: Callable[[PendingGang], None]
) -> tuple[list[PendingGang], list[PendingGang], list[PendingGang]]:
    """Three turns: gangs within their queues' shares; those that could get there by preempting in their own queue, with the
    gangs that they could preempt at once; and those that get what is left over. For those of the last two `reserve` is called.
    """
    within: list[PendingGang] = []
    contending: list[PendingGang] = []
    beyond: list[PendingGang] = []
    least: dict[
        tuple[Queue, str], int
    ] = {}  # lower priorities of queue and flavor than this could be preempted at once
    strict: set[Queue] = set()  # where all wait behind one that does
    known: dict[
        object, tuple[bool, bool]
    ] = {}  # of each equivalence class: over a share, and whether preempting may help
    for each in sorted(pending, key=lambda each: each.rank):
        queue = each.queue
        verdict = known.get(each.equivalence)
        if verdict is None:
            over_now = over_contested_share(queue, each.charge) is not None
            verdict = known[each.equivalence] = (over_now, over_now and may_preempt_into_share(each))
        over, contends = verdict
        behind = queue in strict or would_be_victim(each, least)
        if not over and not behind:
            within.append(each)
            continue
        reserve(each)
        if queue.spec.ordering == "StrictFIFO":
            strict.add(queue)
        elif contends:
            note_contender(each, least)
        (contending if contends or not over else beyond).append(each)
    return within, contending, beyond


def note_contender(pending: PendingGang, least: dict[tuple[Queue, str], int]) -> None:
    """Gangs of its queue with lower priority that may get devices of the same flavors wait for it."""
    for flavor in pending.cost.flavors:
        least.setdefault((pending.queue, flavor), pending.gang.priority)


def would_be_victim(pending: PendingGang, least: Mapping[tuple[Queue, str], int]) -> bool:
    """Whether a contender of its queue could preempt it at once. What gets devices of other flavors alone is of no use to it."""
    priority = pending.gang.priority
    return any(priority < least.get((pending.queue, flavor), priority) for flavor in pending.cost.flavors)


def may_preempt_into_share(pending: PendingGang) -> bool:
    """Whether a gang that is over its queue's share would be within, if gangs of its own queue were preempted."""
    return pending.queue.spec.preemption != "Never" and fits_share(pending.queue, pending.charge)


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
        """Not all kinds of their gangs are considered (`pending`): whatever is decided on now had its turn."""
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
