"""What a viewer may see, and the facts less everything else; pure.

The rule: objects of namespaces in which the viewer may not list gangs are absent, and no text names one of them. Devices are there for
those who may list nodes: which are held is shown to all of them, by which gang and claim only where they may see that. Queues are there
for those who may list queues; the names of the queues of one's own gangs, and of the queues above them, are known anyway.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from fairlead.kube.resources import Raw
from fairlead.ui.model import plain_pods
from fairlead.ui.model.facts import ELSEWHERE, Facts, Hardware, Holder
from fairlead.ui.model.redaction import Redaction, known_queues, queues_of

NAMED_MAX = 5
SCOPES_MAX = 256


@dataclass(frozen=True)
class Scope:
    """The rights of a viewer, as a key: viewers of equal scope see the same.

    `namespaces`: where gangs may be listed; None: in all. `cluster`: nodes may be listed, so devices are shown. `queues`: queues may be.
    """

    namespaces: frozenset[str] | None
    cluster: bool
    queues: bool

    def sees(self, namespace: str) -> bool:
        return self.namespaces is None or namespace in self.namespaces

    @property
    def namespaces_why(self) -> str:
        """Why gangs are missing; "" where none is."""
        if self.namespaces is None:
            return ""
        need = "ask for a role with the verb list on gangs.fairlead.dev"
        if not self.namespaces:
            return f"gangs: you may list them in no namespace that has any; {need}"
        named = sorted(self.namespaces)
        more = f" and {len(named) - NAMED_MAX} more" if len(named) > NAMED_MAX else ""
        return f"gangs of other namespaces than {', '.join(named[:NAMED_MAX])}{more} are not shown: you may not list them; {need}"

    @property
    def cluster_why(self) -> str:
        return (
            ""
            if self.cluster
            else "nodes: you may not list them, so devices are not shown; ask for a role with the verb list on nodes"
        )

    @property
    def queues_why(self) -> str:
        return (
            ""
            if self.queues
            else "queues: you may not list them; ask for a role with the verb list on queues.fairlead.dev"
        )


EVERYTHING = Scope(namespaces=None, cluster=True, queues=True)


def restrict(facts: Facts, scope: Scope) -> Facts:
    """What a viewer of that scope may see; what is missing has its reason in `refused`."""
    if scope == EVERYTHING:
        return facts
    redaction = redaction_of(facts, scope)
    refused = dict(facts.refused)
    if scope.namespaces is not None:
        refused["gangs"] = scope.namespaces_why
    if not scope.queues:
        refused["queues"] = scope.queues_why
    if not scope.cluster:
        refused["nodes"] = scope.cluster_why
    return replace(
        facts,
        hardware=None if facts.hardware is None or not scope.cluster else _hardware(facts.hardware, scope, redaction),
        gangs=tuple(map(redaction.object, _of(facts.gangs, scope))),
        pods=tuple(map(redaction.object, _of(facts.pods, scope))),
        queues=tuple(map(redaction.object, facts.queues)) if scope.queues else (),
        claims=tuple(claim for claim in facts.claims if scope.sees(claim.metadata.namespace)),
        refused=refused,
    )


class ScopedFacts:
    """Restricted facts are made once for each scope: viewers of equal scope have the same object while the facts are the same."""

    def __init__(self, most: int = SCOPES_MAX) -> None:
        self._most = most
        self._made: OrderedDict[Scope, tuple[Facts, Facts]] = OrderedDict()

    def of(self, facts: Facts, scope: Scope) -> Facts:
        known = self._made.get(scope)
        if known is None or known[0] is not facts:
            known = (facts, restrict(facts, scope))
            self._made[scope] = known
        self._made.move_to_end(scope)
        while len(self._made) > self._most:
            self._made.popitem(last=False)
        return known[1]


def restrict_events(events: Iterable[Raw], facts: Facts, scope: Scope) -> tuple[Raw, ...]:
    """Events on an object that the viewer may see, with what their messages name. `facts`: all of them, not restricted."""
    if scope.namespaces is None:
        return tuple(events)
    redaction = redaction_of(facts, scope)
    return tuple(raw | {"message": redaction.text(str(raw.get("message") or ""))} for raw in events)


def redaction_of(facts: Facts, scope: Scope) -> Redaction:
    """Of texts for a viewer of that scope. `facts`: all of them, not restricted."""
    if scope.namespaces is None:
        return Redaction(namespaces=None)
    queues = known_queues(facts)
    own = queues_of((*_of(facts.gangs, scope), *_of(facts.pods, scope)), facts.queues)
    nodes = () if facts.hardware is None else (node.name for node in facts.hardware.nodes.all())
    return Redaction(
        namespaces=scope.namespaces,
        hidden=frozenset(namespaces_of(facts) - scope.namespaces),
        queues=frozenset() if scope.queues else frozenset(queues - own),
        nodes=frozenset(nodes),
    )


def namespaces_with_gangs(facts: Facts) -> frozenset[str]:
    """Those of which pages show something: gangs, pods that are one, and claims."""
    found = {raw["metadata"].get("namespace", "") for raw in facts.gangs}
    found |= {pod["metadata"].get("namespace", "") for pod in facts.pods if plain_pods.is_plain(pod)}
    return frozenset(found | {claim.metadata.namespace for claim in facts.claims})


def namespaces_of(facts: Facts) -> set[str]:
    """Those that have a gang, a pod or a claim."""
    return {raw["metadata"].get("namespace", "") for raw in (*facts.gangs, *facts.pods)} | {
        claim.metadata.namespace for claim in facts.claims
    }


def _of(objects: Iterable[Raw], scope: Scope) -> Iterable[Raw]:
    if scope.namespaces is None:
        return objects
    return (raw for raw in objects if raw["metadata"].get("namespace", "") in scope.namespaces)


def _hardware(hardware: Hardware, scope: Scope, redaction: Redaction) -> Hardware:
    if scope.namespaces is None:
        return hardware
    holders: dict[str, Holder] = {}
    for uid, holder in hardware.holders.items():
        claim = hardware.inventory.claim(uid)
        seen = claim is not None and scope.sees(claim.namespace)
        queue = "" if redaction.hides_queue(holder.queue) else holder.queue
        holders[uid] = Holder(gang=holder.gang if seen else "", queue=queue, starting=holder.starting)
    reserved = {
        node: gang if scope.sees(gang.partition("/")[0]) else ELSEWHERE for node, gang in hardware.reserved.items()
    }
    return replace(hardware, holders=holders, reserved=reserved, namespaces=scope.namespaces)
