"""Which GPUs of a node belong together: NVLink islands, GPUs that are reset together, rails of a fabric. Pure.

Islands are sets of GPUs that are all connected to one another: `matchAttribute` only compares values for equality, so each GPU publishes
the number of its island. A connected component that is no clique (a cube mesh, a ring of bridges) is split, largest clique first: an
island never implies a link that does not exist. Islands are numbered by their smallest minor; a GPU without peers has none.
Example: eight GPUs in a cube mesh, two quads joined by four links, are two islands of four.

A GPU is reset alone, unless NVLinks join it to others without a switch between them, or it is older than Ampere: then with all that its
links reach, directly or over others, for a link is trained by both ends at once.
Source: nvidia-smi(1), --gpu-reset: from Ampere on GPUs with NVLink connections can be reset one by one where a Fabric
Manager, or from Hopper on the hardware, takes care of the switches; otherwise all that are connected, in one command.

The rail of a GPU is that of the network card behind the same PCIe switch. Cards behind a switch with a GPU are numbered in the order of
their PCI addresses, all ports of a card as one. Where a switch has several of both they are paired in order; GPUs that share a card share
its rail. A GPU without such a card has none: a machine that does not show its switches, as most virtual ones, needs `--rails`.
Example: GPUs 18:00.0 and 3a:00.0, cards 19:00.0 and 3b:00.0 behind their two switches, a storage card elsewhere: rails 0 and 1.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from fairlead.driver.backend.types import Gpu, PciTree


def islands(gpus: Iterable[Gpu]) -> dict[int, int]:
    """Island number by minor. GPUs in MIG mode have none: MIG switches NVLink off."""
    linked = {gpu.minor: gpu for gpu in gpus if gpu.nvlink and not gpu.mig_enabled}
    peers = {
        # A link counts when both ends report it.
        minor: {peer for peer in gpu.nvlink.peers if peer in linked and minor in _peers(linked[peer])}
        for minor, gpu in linked.items()
        if gpu.nvlink
    }
    cliques: list[tuple[int, ...]] = []
    left = {minor for minor, others in peers.items() if others}
    while left:
        best = _largest_clique({minor: peers[minor] & left for minor in left})
        if len(best) < 2:
            break
        cliques.append(best)
        left -= set(best)
    return {minor: number for number, clique in enumerate(sorted(cliques)) for minor in clique}


def _peers(gpu: Gpu) -> tuple[int, ...]:
    return gpu.nvlink.peers if gpu.nvlink else ()


def _largest_clique(peers: Mapping[int, set[int]]) -> tuple[int, ...]:
    """The largest set of mutually connected minors, sorted; of several the first in order.

    Bron–Kerbosch with pivot: exponential in the worst graph, microseconds for the at most 16 GPUs of a node.
    """
    best: tuple[int, ...] = ()

    def grow(clique: tuple[int, ...], candidates: set[int], excluded: set[int]) -> None:
        nonlocal best
        if not candidates and not excluded:
            found = tuple(sorted(clique))
            if (-len(found), found) < (-len(best), best):
                best = found
            return
        pivot = max(sorted(candidates | excluded), key=lambda minor: len(peers[minor] & candidates))
        for minor in sorted(candidates - peers[pivot]):
            grow((*clique, minor), candidates & peers[minor], excluded & peers[minor])
            candidates = candidates - {minor}
            excluded = excluded | {minor}

    grow((), set(peers), set())
    return best


_AMPERE = 8


def reset_together(gpus: Iterable[Gpu], gpu: Gpu) -> tuple[Gpu, ...]:
    """The GPUs to reset with `gpu`, itself included, sorted by minor. GPUs whose links are off, as in MIG mode, are alone."""
    by_minor = {each.minor: each for each in gpus} | {gpu.minor: gpu}
    if _alone(gpu):
        return (gpu,)
    found, left = {gpu.minor}, [gpu.minor]
    while left:
        nvlink = by_minor[left.pop()].nvlink
        new = {peer for peer in (nvlink.peers if nvlink else ()) if peer in by_minor} - found
        found |= new
        left += sorted(new)
    return tuple(by_minor[minor] for minor in sorted(found))


def _alone(gpu: Gpu) -> bool:
    if gpu.nvlink is None or not gpu.nvlink.peers:
        return True
    major = (gpu.cuda_compute_capability or "0").partition(".")[0]
    return gpu.nvlink.switched and major.isdigit() and int(major) >= _AMPERE


RAIL_MAX = 255
_BUS_ID = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]")


def rails_by_card(tree: PciTree, gpus: Collection[str], cards: Collection[str]) -> dict[str, int]:
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


def parse_rails(text: str) -> tuple[tuple[str, int], ...]:
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


def rails_text(rails: Iterable[tuple[str, int]]) -> str:
    """As `parse_rails` reads it."""
    return ",".join(f"{bus_id}={rail}" for bus_id, rail in rails)
