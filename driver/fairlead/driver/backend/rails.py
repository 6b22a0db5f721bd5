"""Which rail of a rail-optimised fabric each GPU is on: that of the network card behind the same PCIe switch. Pure.

Cards behind a switch with a GPU are numbered in the order of their PCI addresses, all ports of a card as one. Where a switch has several
of both they are paired in order; GPUs that share a card share its rail. A GPU without such a card has none: a machine that does not
show its switches, as most virtual ones, needs `--rails`.

Example: GPUs 18:00.0 and 3a:00.0, cards 19:00.0 and 3b:00.0 behind their two switches, a storage card elsewhere: rails 0 and 1.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from fairlead.driver.backend.types import PciTree

RAIL_MAX = 255
_BUS_ID = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]")


def by_card(tree: PciTree, gpus: Collection[str], cards: Collection[str]) -> dict[str, int]:
    """The rail of each GPU that has one. `gpus`, `cards`: bus IDs; `cards` are those that do RDMA."""
    switch_of = {each.bus_id: each.parent for each in tree.devices}
    behind: dict[str, list[str]] = {}
    for card in sorted({_slot(each) for each in cards}):
        ports = [each for each in cards if _slot(each) == card]
        if (switch := switch_of.get(min(ports))) is not None:
            behind.setdefault(switch, []).append(card)
    paired: dict[str, str] = {}
    for switch, there in behind.items():
        below = sorted(gpu for gpu in gpus if switch_of.get(gpu) == switch)
        for position, gpu in enumerate(below):
            paired[gpu] = there[position * len(there) // len(below)]
    rails = {card: number for number, card in enumerate(sorted(set(paired.values())))}
    return {gpu: rails[card] for gpu, card in paired.items()}


def _slot(bus_id: str) -> str:
    return bus_id.rpartition(".")[0]


def parse(text: str) -> tuple[tuple[str, int], ...]:
    """`0000:18:00.0=0,0000:3a:00.0=1`: bus IDs and rails. Raises ValueError."""
    found: dict[str, int] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        bus_id, _, rail = part.lower().partition("=")
        if not _BUS_ID.fullmatch(bus_id) or not rail.isdecimal() or int(rail) > RAIL_MAX:
            raise ValueError(
                f"{part[:80]!r} is no rail of a GPU: write its PCI address and a number up to {RAIL_MAX}, such as 0000:18:00.0=0"
            )
        if found.setdefault(bus_id, int(rail)) != int(rail):
            raise ValueError(f"{bus_id} has two rails, {found[bus_id]} and {rail}: keep one")
    return tuple(sorted(found.items()))


def text(rails: Iterable[tuple[str, int]]) -> str:
    """As `parse` reads it."""
    return ",".join(f"{bus_id}={rail}" for bus_id, rail in rails)
