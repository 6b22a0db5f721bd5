"""A gang that waits for its own predecessors: what it lacks is held by gangs that its rollout ends only once it runs.

Such a gang never starts by waiting, though its predecessors could end: nothing else gives it its devices, or its queue's quota. It is
told so where, with all but its predecessors gone, there would still be too little. Devices are counted node by node, without
constraints among them: more may seem to be there than is, never less.

Example: a Deployment of one replica whose pod has the only 8 GPUs that its node selector allows, and maxSurge 1: the new pod waits for
the old one, which goes when the new one is ready. With another node of 8 in use by others it waits for those.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from fairlead.engine.placement.model import CandidateNode
from fairlead.engine.placement.shapes import PlacementUnit, UnitShape
from fairlead.engine.plan.session import Session
from fairlead.engine.queues.charges import Charge, add
from fairlead.engine.queues.gangs import PendingGang
from fairlead.engine.queues.limits import over_limit
from fairlead.engine.queues.tree import Queue
from fairlead.engine.types.reasons import Code, Reason
from fairlead.engine.types.values import Amount

_LACKS_DEVICES = {Code.NO_DEVICES, Code.OVER_SHARE, Code.PROTECTED, Code.HELD, Code.NODES_FULL}
NAMED_MAX = 3


def waiting_for_itself(session: Session, pending: PendingGang, reason: Reason) -> Reason:
    """The reason of a gang with predecessors: another where it waits for these alone."""
    gang = pending.gang
    if reason.code in _LACKS_DEVICES:
        stuck, lack = _lacks_devices(session, gang.predecessors, pending.units), "devices"
    elif reason.code is Code.OVER_LIMIT:
        stuck, lack = _over_limit(session, pending), "quota"
    else:
        return reason
    if not stuck:
        return reason
    named, more = ", ".join(gang.predecessors[:NAMED_MAX]), len(gang.predecessors) - NAMED_MAX
    return replace(
        reason,
        code=Code.OWN_PREDECESSOR,
        message=f"it waits for the {lack} of {named}{f' and {more} more' if more > 0 else ''}, which its own rollout ends only when it is "
        f"ready: neither goes on; {reason.message}",
        advice="let the rollout end old pods first: maxSurge: 0 and maxUnavailable: 1 in its strategy, or type: Recreate; or end the old "
        "pods by hand, or add devices and quota for both",
        could_ever_fit=False,
    )


def _lacks_devices(session: Session, predecessors: Sequence[str], units: Sequence[PlacementUnit]) -> bool:
    kept = frozenset(predecessors)
    wanted: Counter[UnitShape] = Counter(unit.shape for unit in units)
    for shape, count in wanted.items():
        most = 0
        for node in session.cache.node_snapshot.all:
            if all(node.info.refuses(needs) is None for needs in shape.needs):
                most += _units_without(session, node, shape, kept)
            if most >= count:
                break
        if most < count:
            return True
    return False


def _units_without(session: Session, node: CandidateNode, shape: UnitShape, kept: frozenset[str]) -> int:
    """How many units the node has devices for, with all gangs gone but these."""
    owners, snapshot = session.running.owners, session.cache.node_snapshot
    most: list[int] = []
    for claim in shape.claims:
        for alternatives in claim.alternatives:
            found = 0
            for request in alternatives:
                left = 0
                for device in snapshot.candidates(node, request).devices:
                    users = () if device.use is None or device.shared else device.use.claims
                    left += not any(owners.get(uid, ("", ""))[0] in kept for uid in users)
                found = max(found, left // max(request.count, 1))
            most.append(found)
    return min(most, default=0)


def _over_limit(session: Session, pending: PendingGang) -> bool:
    """Whether the gang and its predecessors are more than a limit on the way up allows, whatever else goes."""
    kept = frozenset(pending.gang.predecessors)
    charges: dict[Queue, Charge] = {}
    for gang, queue in session.running.gangs:
        if gang.id not in kept:
            continue
        for uid in gang.claims:
            claim = session.snapshot.inventory.claim(uid)
            charge = {} if claim is None else session.cache.charges.of_allocated(claim, session.snapshot.inventory)
            for step in queue.path():
                add(charges.setdefault(step, {}), charge)
        for step in queue.path():
            add(charges.setdefault(step, {}), session.cache.charges.pods.of_gang(gang))

    def view(queue: Queue, flavor: str) -> Amount:
        return charges.get(queue, {}).get(flavor, 0)

    return bool(over_limit(pending.queue, pending.charge, view))
