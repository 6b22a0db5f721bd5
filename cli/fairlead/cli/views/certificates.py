"""A certificate in words, for people: what is proven, of what, and on which premises. Says nothing that is not in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from fairlead.api import certificate as form

NODES_MAX = 20
DEVICES_MAX = 4


def lines(certificate: form.Certificate) -> Iterator[str]:
    """The statement, one sentence a line, the headline first."""
    proven = not isinstance(certificate.because, form.NotProven)
    premises = ", provided that what is given to others is so" if certificate.given else ""
    yield f"gang {certificate.gang} cannot start now: {f'proven{premises}' if proven else 'not proven'}"
    yield from _because(certificate.because)
    for given in certificate.given:
        yield f"premise: gang {given.gang} has {len(given.devices)} devices ({given.role})"


def _because(said: form.Because) -> Iterator[str]:
    match said:
        case form.NotProven():
            yield f"the controller's reason is {said.code}; no proof of the known kinds was found"
        case form.Gathering():
            yield f"{said.present} of its {said.size} pods exist"
        case form.Invalid():
            yield (
                f"{said.field} of claim {said.claim} cannot be served on any cluster"
                if said.claim
                else "its topology cannot be read"
            )
        case form.QueueRefuses():
            yield {
                "Unknown": f"there is no Queue {said.queue}",
                "NotLeaf": f"Queue {said.queue} has queues below it and takes no gangs",
                "Namespace": f"Queue {said.queue} does not take pods of its namespace",
            }.get(said.fault, "it names no Queue, and none takes its namespace")
        case form.Limit():
            yield f"queue {said.queue}, flavor {said.flavor}: {said.used} used + {said.charge} asked > {said.limit} ({said.bound})"
        case form.Quota():
            yield f"ResourceQuota {said.quota}, {said.resource}: {said.used} used + {said.asked} asked > {said.limit}"
        case form.ClaimTaken():
            yield f"claim {said.claim} is being allocated for gang {said.gang}"
        case form.Behind():
            yield f"queue {said.queue} is strict FIFO, and gang {said.head} goes first, which cannot start:"
            yield from _because(said.because)
        case form.Place():
            yield from _place(said)


def _place(said: form.Place) -> Iterator[str]:
    yield f"units wanted (of each kind): {_vector(said.units)}"
    for domain in said.domains:
        where = "all nodes together" if domain.domain is None else f"domain {domain.domain}"
        together = f"; {len(domain.because.free)} free devices in all" if domain.because is not None else ""
        yield f"{where} take at most {_vector(domain.most)}{together}"
    if not said.domains:
        yield "its pods that run already are in several domains: none takes the others"
    for node in said.nodes[:NODES_MAX]:
        yield f"node {node.node} takes at most {_vector(node.most)}: {'; '.join(map(_bound, node.because)) or 'all fit'}"
    if len(said.nodes) > NODES_MAX:
        yield f"… and {len(said.nodes) - NODES_MAX} more nodes (-o json has all)"


def _bound(said: form.Bound) -> str:
    match said:
        case form.Refused():
            return f"refuses pods of kind {said.unit}: {said.by}{f' {said.what}' if said.what else ''}"
        case form.Room():
            return f"{said.resource}: {said.left}m left, {', '.join(f'{want}m' for want in said.wants)} wanted"
        case form.Devices():
            reasons = Counter(_reason(each) for each in said.ruled_out)
            shown = [f"{count} {reason}" for reason, count in reasons.most_common(DEVICES_MAX)]
            more = f", {len(reasons) - DEVICES_MAX} other reasons" if len(reasons) > DEVICES_MAX else ""
            ruled_out = f"; ruled out: {', '.join(shown)}{more}" if shown else ""
            return f"{len(said.free)} free of {len(said.free) + len(said.ruled_out)} devices{ruled_out}"


def _reason(said: form.RuledOut) -> str:
    match said:
        case form.Held():
            return f"held by {said.claim}"
        case form.GivenAway():
            return f"given to {said.gang}"
        case form.Counter():
            return f"by counter {said.counter_set}/{said.counter} ({said.left} left, {said.needs} needed)"
        case form.Filtered():
            return f"by {'/'.join(dict.fromkeys(said.by))}"


def _vector(units: tuple[int, ...]) -> str:
    return str(units[0]) if len(units) == 1 else str(units)
