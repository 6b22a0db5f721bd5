"""Where a gang's members are, level by level, and of which models their devices are: what its status says of its devices.

Levels are shown of gangs with a topology, with subgroups or with ranks: in how many domains its members are, which ranks in which, and
how far neighbouring ranks are apart. They are those that the gang names, outermost first, then the node. Pure: what nodes are labelled
with is a function that the rim passes in.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from fairlead.api import topology
from fairlead.api.models import Models
from fairlead.controller.gangs.claims.allocations import node_of
from fairlead.controller.gangs.membership.gangs import Gang
from fairlead.controller.gangs.membership.members import Member
from fairlead.engine.inventory.inventory import Inventory
from fairlead.engine.inventory.models import NO_MODEL, model_of
from fairlead.engine.types.allocation import AllocatedClaim
from fairlead.kube import resource

NODE = "kubernetes.io/hostname"
WHERE_MAX = 16  # domains that are listed for a level
RANGES_MAX = 8  # of ranks, for a domain
Value = Callable[[str, str], str | None]
"""What a node, by name, has of a level, by label or device attribute; None where it has nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelPlacement:
    """`apart`: of pairs of members with neighbouring ranks, how many are in different domains; None without ranks."""

    level: str
    asked: str  # "required", "preferred of each subgroup"; "" of the node, where nothing asks for it
    domains: int
    apart: int | None
    where: tuple[str, ...]

    def status(self) -> dict[str, object]:
        found = {"level": self.level, "asked": self.asked, "domains": self.domains, "apart": self.apart}
        return {key: value for key, value in found.items() if value not in ("", None)} | {"where": list(self.where)}


def placement(gang: Gang, value: Value) -> tuple[LevelPlacement, ...]:
    """The placement of its members that have a node and are not being deleted; () where there is none."""
    named = gang.topology or gang.subgroup_topology
    if not named and (gang.placed < gang.size or not gang.ranks):
        return ()
    there = [(member, node) for member in gang.released if not member.terminating and (node := node_of(member))]
    if len(there) < 2:
        return ()
    outer, inner = _levels(gang.topology), _levels(gang.subgroup_topology)
    found: list[LevelPlacement] = []
    for levels, whose in ((outer, ""), (inner, " of each subgroup")):
        before = required(outer) if whose else []
        for depth, level in enumerate(levels, start=1):
            labels = [*before, *(each.label for each in levels[:depth])]
            paths = {node: _path(node, labels, value) for _, node in there}
            found.append(_level(gang, there, paths, level.label, f"{level.mode}{whose}"))
    if NODE not in {each.level for each in found}:
        found.append(_level(gang, there, {node: node for _, node in there}, NODE, ""))
    return tuple(found)


def required(levels: Iterable[topology.Level]) -> list[str]:
    return [level.label for level in levels if level.mode == "required"]


def _levels(text: str | None) -> tuple[topology.Level, ...]:
    try:
        return topology.levels(text) if text else ()
    except ValueError:
        return ()


def _path(node: str, labels: Sequence[str], value: Value) -> str:
    return topology.PATH.join(value(label, node) or "-" for label in dict.fromkeys(labels))


def _level(
    gang: Gang, there: Sequence[tuple[Member, str]], paths: dict[str, str], label: str, asked: str
) -> LevelPlacement:
    members: dict[str, list[Member]] = defaultdict(list)
    for member, node in there:
        members[paths[node]].append(member)
    ranks = sorted((gang.ranks[member.uid], paths[node]) for member, node in there if member.uid in gang.ranks)
    apart = sum(one != other for (_, one), (_, other) in pairwise(ranks)) if len(ranks) > 1 else None
    by_rank = sorted(members, key=lambda path: (min(_ranks(gang, members[path]), default=-1), path))
    where = [_where(path, gang, members[path]) for path in by_rank]
    if len(where) > WHERE_MAX:
        where = [*where[: WHERE_MAX - 1], f"and {len(where) - WHERE_MAX + 1} more"]
    return LevelPlacement(level=label, asked=asked, domains=len(members), apart=apart, where=tuple(where))


def _ranks(gang: Gang, members: Iterable[Member]) -> list[int]:
    return sorted(gang.ranks[member.uid] for member in members if member.uid in gang.ranks)


def _where(path: str, gang: Gang, members: Sequence[Member]) -> str:
    count = f"{len(members)} member{'s' if len(members) != 1 else ''}"
    found = _ranks(gang, members)
    if len(found) != len(members):
        return f"{path}: {count}"
    return f"{path}: {count}, rank{'s' if len(found) != 1 else ''} {_ranges(found)}"


def _ranges(numbers: Sequence[int]) -> str:
    """0-3, 8, 10-11."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in spans]
    more = f" and {len(texts) - RANGES_MAX} more ranges" if len(texts) > RANGES_MAX else ""
    return ", ".join(texts[:RANGES_MAX]) + more


LISTED_MAX = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldModels:
    """`held`: devices by model, the most first."""

    rule: Models
    held: tuple[tuple[str, int], ...]

    def status(self) -> dict[str, object]:
        return {"rule": self.rule, "held": [f"{count} × {model}" for model, count in self.held[:LISTED_MAX]]}


def held_models(claims: Iterable[resource.ResourceClaim], inventory: Inventory, rule: Models) -> HeldModels | None:
    """None where no device has a model, or its pool is not published now."""
    counts: Counter[str] = Counter()
    for claim in claims:
        allocated = AllocatedClaim.of(claim)
        for each in allocated.devices if allocated is not None else ():
            device = None if each.admin else inventory.device(each.ref)
            if device is not None and (model := model_of(device)) != NO_MODEL:
                counts[str(model)] += 1
    if not counts:
        return None
    return HeldModels(rule=rule, held=tuple(sorted(counts.items(), key=lambda each: (-each[1], each[0]))))
