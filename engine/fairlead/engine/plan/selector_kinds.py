"""How many kinds of device selector a namespace may have decided on at once: each is evaluated on every device of the cluster.

Gangs whose claims have equal selectors cost little more than one of them, whatever else they ask for. A tenant with thousands of
gangs whose selectors all differ would make decisions take minutes, and everybody waits for the next decision. So of each
namespace those kinds are considered whose oldest gang has waited longest; gangs of other kinds stay pending, and say why.

The same holds, with a higher limit, for what else tells devices apart: tolerations and requests for capacity.

Example: 1,600 devices: 62 kinds of each namespace. The 63rd is considered when the last gang of one of them has started or gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.engine.types.reasons import Code, Reason
from fairlead.kube.containment import contained
from fairlead.kube.spec_key import spec_key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fairlead.engine.types.gangs import GangRequest
    from fairlead.engine.types.neighbours import Neighbours

EVALUATIONS = 100_000  # selectors times devices, of one namespace
KINDS_MIN = 16
FILTERS_MIN = 256  # without a selector a device costs little; as many as one claim can name

Kinds = frozenset[tuple[object, ...]]  # of one gang: the selectors of each request that has some
Terms = tuple["Neighbours", ...]  # of one gang: what its members need of the pods around them
Known = tuple["GangRequest", Kinds, Kinds, Terms]


class SelectorKinds:
    """Of one decision. `known` is kept between decisions, by gang UID; memory only."""

    def __init__(self, gangs: Iterable[GangRequest], devices: int, known: dict[str, Known]) -> None:
        self.neighbours: list[Neighbours] = []  # what pods of these gangs need of others: found on the same way
        possible = EVALUATIONS // max(1, devices)
        self._selectors = _Considered(max(KINDS_MIN, possible), "device selector")
        self._filters = _Considered(max(FILTERS_MIN, possible), "toleration or capacity")
        before, kept = dict(known), known
        kept.clear()
        for gang in gangs:
            found = before.get(gang.uid)
            if found is None or found[0] is not gang:
                found = (gang, frozenset(), frozenset(), ())
                with contained(lambda _: None):  # it fails again where it is compiled, and is named there
                    found = (gang, *_kinds(gang), _neighbours(gang))
            kept[gang.uid] = found
            if found[3]:
                self.neighbours += found[3]
            self._selectors.add(gang, found[1])
            self._filters.add(gang, found[2])
        self._selectors.choose()
        self._filters.choose()

    def refusal(self, gang: GangRequest) -> Reason | None:
        """Why the gang is not considered now; None if it is."""
        return self._selectors.refusal(gang) or self._filters.refusal(gang)


class _Considered:
    """Kinds of one sort: of each namespace the first `most`, by the oldest gang that has them."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._kinds: dict[str, Kinds] = {}  # by gang UID, where there are any
        self._oldest: dict[str, dict[tuple[object, ...], tuple[bool, float, str]]] = {}
        self._considered: dict[str, Kinds] = {}  # by namespace, where there are too many

    def add(self, gang: GangRequest, kinds: Kinds) -> None:
        if not kinds:
            return
        self._kinds[gang.uid] = kinds
        ranks = self._oldest.setdefault(gang.namespace, {})
        rank = (not (gang.preemptor or gang.replaces), gang.created, gang.id)  # first those others go for
        for kind in kinds:
            ranks[kind] = min(rank, ranks.get(kind, rank))

    def choose(self) -> None:
        """After the last `add`."""
        for namespace, ranks in self._oldest.items():
            if len(ranks) > self._most:
                first = sorted(ranks, key=lambda kind: (ranks[kind], kind))[: self._most]
                self._considered[namespace] = frozenset(first)

    def refusal(self, gang: GangRequest) -> Reason | None:
        considered = self._considered.get(gang.namespace)
        if considered is None or self._kinds.get(gang.uid, frozenset()) <= considered:
            return None
        return Reason(
            code=Code.SEARCH_ENDED,
            message=f"more than {self._most} kinds of {self._name} wait in namespace {gang.namespace}, and those that came first "
            "are considered first",
            advice="use equal selectors in claims that ask for the same: pods that differ otherwise are decided on together",
        )


def _neighbours(gang: GangRequest) -> Terms:
    return tuple(dict.fromkeys(own for member in gang.members if (own := member.needs.neighbours) is not None))


def _kinds(gang: GangRequest) -> tuple[Kinds, Kinds]:
    """Of its requests the selectors, and what else tells devices apart."""
    if len(gang.members) + len(gang.placed_nodes) < gang.size:
        return frozenset(), frozenset()  # it is not considered yet
    selectors: set[tuple[object, ...]] = set()
    filters: set[tuple[object, ...]] = set()
    for claim in gang.claims:
        for request in claim.spec.devices.requests:
            for each in (request.exactly, *request.first_available):
                if each is None:
                    continue
                texts = tuple(item.cel.expression for item in each.selectors if item.cel)
                if texts:
                    selectors.add(texts)
                if each.tolerations or each.capacity is not None:
                    filters.add((each.device_class_name, texts, spec_key((each.tolerations, each.capacity))))
    return frozenset(selectors), frozenset(filters)
