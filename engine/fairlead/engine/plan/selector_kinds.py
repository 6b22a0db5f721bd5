"""How many kinds of device selector a namespace may have decided on at once: each is evaluated on every device of the cluster.

Gangs whose claims have equal selectors cost little more than one of them, whatever else they ask for. A tenant with thousands of
gangs whose selectors all differ would make decisions take minutes, and everybody waits for the next decision. So of each
namespace those kinds are considered whose oldest gang has waited longest; gangs of other kinds stay pending, and say why.

Example: 1,600 devices: 62 kinds of each namespace. The 63rd is considered when the last gang of one of them has started or gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.engine.types.reasons import Code, Reason

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fairlead.engine.types.gangs import GangRequest
    from fairlead.engine.types.neighbours import Neighbours

EVALUATIONS = 100_000  # selectors times devices, of one namespace
KINDS_MIN = 16

Kinds = frozenset[tuple[str, ...]]  # of one gang: the selectors of each request that has some
Terms = tuple["Neighbours", ...]  # of one gang: what its members need of the pods around them


class SelectorKinds:
    """Of one decision. `known` is kept between decisions, by gang UID; memory only."""

    def __init__(
        self, gangs: Iterable[GangRequest], devices: int, known: dict[str, tuple[GangRequest, Kinds, Terms]]
    ) -> None:
        self.neighbours: list[Neighbours] = []  # what pods of these gangs need of others: found on the same way
        self.most = max(KINDS_MIN, EVALUATIONS // max(1, devices))
        self._kinds: dict[str, Kinds] = {}  # by gang UID, where there are any
        self._considered: dict[str, Kinds] = {}  # by namespace, where there are too many
        oldest: dict[str, dict[tuple[str, ...], tuple[bool, float, str]]] = {}
        before, kept = dict(known), known
        kept.clear()
        for gang in gangs:
            found = before.get(gang.uid)
            if found is None or found[0] is not gang:
                found = (gang, _kinds(gang), _neighbours(gang))
            kept[gang.uid] = found
            if found[2]:
                self.neighbours += found[2]
            if found[1]:
                self._kinds[gang.uid] = found[1]
                ranks = oldest.setdefault(gang.namespace, {})
                rank = (not (gang.preemptor or gang.replaces), gang.created, gang.id)  # first those others go for
                for kind in found[1]:
                    ranks[kind] = min(rank, ranks.get(kind, rank))
        for namespace, ranks in oldest.items():
            if len(ranks) > self.most:
                self._considered[namespace] = frozenset(
                    sorted(ranks, key=lambda kind: (ranks[kind], kind))[: self.most]
                )

    def refusal(self, gang: GangRequest) -> Reason | None:
        """Why the gang is not considered now; None if it is."""
        considered = self._considered.get(gang.namespace)
        if considered is None or self._kinds.get(gang.uid, frozenset()) <= considered:
            return None
        return Reason(
            code=Code.SEARCH_ENDED,
            message=f"more than {self.most} kinds of device selector wait in namespace {gang.namespace}, and those that came first "
            "are considered first",
            advice="use equal selectors in claims that ask for the same: pods that differ otherwise are decided on together",
        )


def _neighbours(gang: GangRequest) -> Terms:
    return tuple(dict.fromkeys(own for member in gang.members if (own := member.needs.neighbours) is not None))


def _kinds(gang: GangRequest) -> Kinds:
    if len(gang.members) + len(gang.placed_nodes) < gang.size:
        return frozenset()  # it is not considered yet
    found = set()
    for claim in gang.claims:
        for request in claim.spec.devices.requests:
            for each in (request.exactly, *request.first_available):
                texts = tuple(item.cel.expression for item in each.selectors if item.cel) if each is not None else ()
                if texts:
                    found.add(texts)
    return frozenset(found)
