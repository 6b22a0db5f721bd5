"""Whether a gang is on hold: by its own object, its queue's, or that of a queue above.

A gang on hold asks for nothing: it is not in the order of its queue, no share is divided for it, nothing is evicted or reserved for
it, and it does not stand in the way of the gangs behind it, not even in a strict queue. What runs goes on; so a member that
replaces one of a gang that runs (`GangRequest.replaces`) is admitted, else the hold would stop the gang after its replace-timeout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fairlead.engine.queues.tree import Queue, Tree
from fairlead.engine.types.reasons import Code, Reason

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fairlead.engine.snapshot import Snapshot
    from fairlead.engine.types.gangs import GangRequest, RunningGang
    from fairlead.engine.types.hold import Hold
    from fairlead.engine.types.settings import QueueSpec


class Found(NamedTuple):
    """`queue`: whose it is; "" for the gang's own."""

    hold: Hold
    queue: str

    def resume(self, gang: GangRequest | RunningGang) -> str:
        """The command that takes it away."""
        if self.queue:
            return f"fairlead resume queue {self.queue}"
        return f"fairlead resume gang {gang.name} -n {gang.namespace}"

    def __str__(self) -> str:
        return f"queue {self.queue} is {self.hold}" if self.queue else str(self.hold)


def hold_of(gang: GangRequest | RunningGang, queue: Queue) -> Found | None:
    """Its own, else that of the nearest queue on the way up."""
    return next(_all(gang, queue), None)


def evicting_hold(gang: RunningGang, queue: Queue) -> Found | None:
    """The first of those that say that what runs goes, too."""
    return next((found for found in _all(gang, queue) if found.hold.evict), None)


def _all(gang: GangRequest | RunningGang, queue: Queue) -> Iterator[Found]:
    if gang.hold is not None:
        yield Found(gang.hold, "")
    if queue.tree.any_hold:
        yield from (Found(step.spec.hold, step.name) for step in queue.path() if step.spec.hold is not None)


def on_hold(gang: GangRequest, queue: Queue) -> Reason | None:
    """Why the gang is not admitted; None where no hold forbids it."""
    found = None if gang.replaces else hold_of(gang, queue)
    if found is None:
        return None
    return Reason(code=Code.ON_HOLD, message=str(found), advice=f"it is considered again after `{found.resume(gang)}`")


def held_queues(queues: Sequence[QueueSpec]) -> dict[str, Found]:
    """By name, of the queues that take no gangs now: their own hold, or the nearest above."""
    by_name = {each.name: each for each in queues}
    found: dict[str, Found] = {}
    for each in queues:
        at: QueueSpec | None = each
        seen = set[str]()
        while at is not None and at.hold is None and at.name not in seen:
            seen.add(at.name)
            at = by_name.get(at.parent or "")
        if at is not None and at.hold is not None:
            found[each.name] = Found(at.hold, at.name)
    return found


def gangs_on_hold(snapshot: Snapshot) -> tuple[GangRequest, ...]:
    """Those of the snapshot's pending gangs that a hold keeps from being admitted."""
    own = any(gang.hold is not None for gang in snapshot.gangs)
    if not own and not any(queue.hold is not None for queue in snapshot.queues):
        return ()
    tree = Tree(snapshot.queues)
    placed = ((gang, tree.resolve(gang)) for gang in snapshot.gangs)
    return tuple(gang for gang, queue in placed if isinstance(queue, Queue) and on_hold(gang, queue) is not None)
