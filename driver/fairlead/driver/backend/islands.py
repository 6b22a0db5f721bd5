"""The NVLink islands of a node: sets of GPUs that are all connected to one another.

`matchAttribute` only compares values for equality, so each GPU publishes the number of its island. A connected
component that is no clique (a cube mesh, a ring of bridges) is split, largest clique first: an island never implies a
link that does not exist. Example: eight GPUs in a cube mesh, two quads joined by four links, are two islands of four.
Pure; reads only `Gpu.nvlink`. Keeps: same GPUs, same numbers; islands are numbered by their smallest minor; a GPU
without peers has no island.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fairlead.driver.backend.types import Gpu


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
