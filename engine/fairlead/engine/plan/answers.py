"""From placements and queues to the frozen values of the plan. Decides nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from operator import itemgetter

from fairlead.engine.allocator.result import ShareIds, allocation
from fairlead.engine.placement.model import UnitPlacement
from fairlead.engine.plan.gang import Unschedulable
from fairlead.engine.queues.cache import ClusterTotals
from fairlead.engine.queues.gangs import PendingGang
from fairlead.engine.queues.tree import Queue, Tree
from fairlead.engine.types.gangs import ClaimRequest, GangRequest
from fairlead.engine.types.plan import Admission, Assignment, ClaimAllocation, FlavorTotal, FlavorUse, QueueUse, Waiting
from fairlead.engine.types.reasons import Reason
from fairlead.engine.types.settings import FlavorSpec
from fairlead.engine.types.values import Amount, PodRef
from fairlead.kube import resource


def admission(
    gang: GangRequest,
    queue: str,
    placed: Sequence[UnitPlacement],
    classes: Mapping[str, resource.DeviceClass],
    share_ids: ShareIds,
) -> Admission:
    nodes: dict[PodRef, str] = {}
    given: dict[str, resource.AllocationResult] = {}
    for entry in placed:
        node = entry.node.info.name
        for member in entry.unit.members:
            nodes[member.pod] = node
        for claim, ask, picks in zip(entry.unit.claims, entry.unit.shape.claims, entry.picks, strict=True):
            given[claim.key] = allocation(claim.key, ask, picks, node, classes, share_ids)
    users: dict[str, list[PodRef]] = {}
    for member in gang.members:
        for key in member.claims:
            users.setdefault(key, []).append(member.pod)
    return Admission(
        namespace=gang.namespace,
        name=gang.name,
        uid=gang.uid,
        queue=queue,
        assignments=tuple(Assignment(pod=member.pod, node=nodes[member.pod]) for member in gang.members),
        claims=tuple(_claim(claim, given, users[claim.key]) for claim in gang.claims if claim.key in users),
    )


def _claim(claim: ClaimRequest, given: Mapping[str, resource.AllocationResult], users: list[PodRef]) -> ClaimAllocation:
    return ClaimAllocation(
        key=claim.key,
        namespace=claim.namespace,
        name=claim.name,
        allocation=given[claim.key] if claim.allocation is None else claim.allocation,
        reserved_for=tuple(users),
        already_allocated=claim.allocation is not None,
    )


def waiting(
    found: Iterable[tuple[GangRequest, str | None, int, Reason | Unschedulable]],
    explain: Callable[[GangRequest, Reason | Unschedulable], Reason],
    pending: Mapping[str, PendingGang],
    last: int,
) -> tuple[Waiting, ...]:
    """In order of position; gangs that were not considered (position 0) come after `last`. `pending`: by id."""
    explained = [
        (position or last + 1, gang.uid, position, gang, queue, explain(gang, why))
        for gang, queue, position, why in found
    ]
    explained.sort(key=itemgetter(0, 1))
    places: Counter[str | None] = Counter()
    places_of = {gang.id: _next(places, queue) for _, _, _, gang, queue, _ in explained if not gang.joins}
    return tuple(
        Waiting(
            namespace=gang.namespace,
            name=gang.name,
            uid=gang.uid,
            queue=queue,
            position=position or last + place,
            reason=reason,
            place=places_of.get(gang.id),
            ends_by=gang.ends_by,
            asks=pending[gang.id].charge if gang.id in pending else {},
        )
        for place, (_, _, position, gang, queue, reason) in enumerate(explained, start=1)
    )


def _next(places: Counter[str | None], queue: str | None) -> int:
    places[queue] += 1
    return places[queue]


def queue_uses(
    tree: Tree,
    gpus: Mapping[Queue, Amount],
    left: Iterable[Waiting],
    admitted: Iterable[PendingGang],
    leaving: Container[str],
) -> tuple[QueueUse, ...]:
    """Use, demand and shares of every Queue object; () when there are none. `gpus`: whole GPUs held, where that is known.

    `left` wait on, `admitted` start now. Each gang counts once: with more members of it where it runs; and where it waits or
    starts again while pods of it are leaving (`leaving`, by id), there.
    """
    if tree.implicit:
        return ()
    waits = [(each.id, each.queue) for each in left if each.place is not None]
    starts = [(each.id, each.queue.name) for each in admitted if not each.gang.joins]
    waiting, starting = (Counter(queue for _, queue in gangs) for gangs in (waits, starts))
    again = Counter(queue for gang, queue in (*waits, *starts) if gang in leaving)
    uses = []
    for name in sorted(tree.queues):
        queue = tree.queues[name]
        held = {flavor for amounts in (queue.used, queue.demand) for flavor, value in amounts.items() if value}
        flavors = sorted(queue.quotas.keys() | held)  # a trial that was rolled back leaves zeros
        uses.append(
            QueueUse(
                name=name,
                flavors=tuple(
                    FlavorUse(
                        flavor=flavor,
                        used=queue.used.get(flavor, 0),
                        demand=queue.demand.get(flavor, 0),
                        fair_share=queue.fair.get(flavor, 0),
                        deserved=queue.deserved(flavor),
                        limit=min(queue.bounds(flavor), default=None),
                    )
                    for flavor in flavors
                ),
                waiting=waiting[name],
                admitted=queue.running + starting[name] - again[name],
                gpus=gpus.get(queue, 0),
            )
        )
    return tuple(uses)


def flavor_totals(
    flavors: Sequence[FlavorSpec], totals: ClusterTotals, allocated: Mapping[str, Amount]
) -> tuple[FlavorTotal, ...]:
    return tuple(
        FlavorTotal(
            flavor=flavor.name,
            devices=int(totals.taken.get(flavor.name, 0)),
            total=totals.charge.get(flavor.name, 0),
            allocated=allocated.get(flavor.name, 0),
        )
        for flavor in flavors
    )
