"""What a gang consists of: units of pods that share claims which are still to be allocated, by kind."""

from __future__ import annotations

from typing import NamedTuple

from fairlead.evidence.document import Claim, Gang, Member, canonical


class Kind(NamedTuple):
    """Units that are alike, and how many there are: the pods of the first, its claims to allocate, and its allocated ones."""

    members: tuple[Member, ...]
    claims: tuple[Claim, ...]
    bound: tuple[Claim, ...]
    number: int


def kinds(gang: Gang) -> list[Kind]:
    """What the gang consists of, in the order in which its members show it: pods that share an unallocated claim are one unit.

    Claims that a member names and that are not there are left out.
    """
    claims = {claim.key: claim for claim in gang.claims}
    units: list[tuple[set[str], list[Member]]] = []
    for member in gang.members:
        to_allocate = (key for key in member.claims if key in claims and claims[key].allocation is None)
        keys, members = set(to_allocate), list[Member]()
        joined = [unit for unit in units if unit[0] & keys]
        place = units.index(joined[0]) if joined else len(units)
        for unit in joined:
            units.remove(unit)
            keys |= unit[0]
            members += unit[1]
        units.insert(place, (keys, [*members, member]))
    found: dict[str, Kind] = {}
    for _, members in units:
        used = [
            claims[key] for key in dict.fromkeys(key for member in members for key in member.claims) if key in claims
        ]
        own = tuple(claim for claim in used if claim.allocation is None)
        bound = tuple(claim for claim in used if claim.allocation is not None)
        selectors = {canonical(each.allocation.node_selector) for each in bound if each.allocation is not None} - {
            "null"
        }
        alike = canonical(([claim.spec for claim in own], [member.spec for member in members], sorted(selectors)))
        kind = found.get(alike, Kind(tuple(members), own, bound, 0))
        found[alike] = kind._replace(number=kind.number + 1)
    return list(found.values())
