"""How a queue with one more gang stands against its fair share: the questions that order, reclaim and reservations ask.

A queue may hold the larger of `deserved` and `fair`. "Over its share" is said of the first queue on the way up from the
gang's own for which that no longer holds, in any flavor that the gang asks for.
Contested: queues beside it hold or ask for these flavors, too. An only child's share is all that its parent has, and to be
over that share takes nothing from other queues. Each flavor by itself: what others ask of one does not contest another.
Example, 8 devices, queues a and b deserve 2 each: a alone asks for 6 and has a fair share of 6, so 7 would be over its share,
but uncontested. When b asks for 4, both have a fair share of 4 and a's fifth device is over a contested share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairlead.engine.queues.tree import Queue
    from fairlead.engine.types.amounts import Amount


def over_contested_share(queue: Queue, charge: Mapping[str, Amount]) -> Queue | None:
    """The first queue on the way up that would hold more than its share with this charge, where that share is contested."""
    deciding = queue.tree.deciding(charge)
    return next((step for step in queue.path() if _over_contested(step, deciding)), None)


def beyond_share(queue: Queue, charge: Mapping[str, Amount]) -> list[tuple[Queue, str, Amount]]:
    """Queue on the way up, flavor, and by how much the queue would hold more than its share of that with this charge."""
    return [
        (step, flavor, more)
        for step in queue.path()
        for flavor, value in queue.tree.deciding(charge).items()
        if (more := _excess(step, flavor, value)) > 0
    ]


def borrows(queue: Queue, charge: Mapping[str, Amount]) -> bool:
    """Whether the queue holds more than a contested share already, in one of these flavors."""
    return over_contested_share(queue, dict.fromkeys(charge, 0)) is not None


def fits_share(queue: Queue, charge: Mapping[str, Amount]) -> bool:
    """Whether the charge alone, with nothing else of the queues in use, is within their shares."""
    return all(
        value <= max(step.deserved(flavor), step.fair.get(flavor, 0))
        for step in queue.path()
        for flavor, value in queue.tree.deciding(charge).items()
    )


def _over_contested(step: Queue, charge: Mapping[str, Amount]) -> bool:
    """Whether queues beside it hold or ask for a flavor of which it would hold more than its share."""
    over = [flavor for flavor, value in charge.items() if _excess(step, flavor, value) > 0]
    if not over:
        return False
    siblings = step.tree.roots if step.parent is None else step.parent.children
    return any(other.demand.get(flavor) for other in siblings if other is not step for flavor in over)


def _excess(step: Queue, flavor: str, value: Amount) -> Amount:
    """Beyond the share, with so much more; negative where some of it is left."""
    return step.used.get(flavor, 0) + value - max(step.deserved(flavor), step.fair.get(flavor, 0))
