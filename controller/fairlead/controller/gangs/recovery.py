"""What to do about a gang whose admission is not going on in this process: complete, undo, roll back, or nothing.

Exists so that a new leader, or this one after an error, needs nothing but claims and pods: "reserved for a gated pod" is
the mark of an admission that began, and all claims of a gang are written before its first pod is released. Pure.
- Some members half written, none released: undo. All written (or some released): complete, so none runs alone.
- Released but not bound in time: the whole gang goes back.
- An allocation that nobody has reserved and no pod will use: cleared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fairlead.controller.gangs.gangs import Gang
from fairlead.controller.gangs.members import Member
from fairlead.controller.gangs.requests import allocated_node, allocated_s, node_of
from fairlead.kube import resource

BINDING_CONDITIONS_S = 600.0  # kube-scheduler's own patience for binding conditions


@dataclass(frozen=True, slots=True, kw_only=True)
class Complete:
    """Release these members; all that is to be written for them is written."""

    members: tuple[tuple[Member, str], ...]  # with the node of each


@dataclass(frozen=True, slots=True, kw_only=True)
class Undo:
    """Take back what was written for these gated members."""

    members: tuple[Member, ...]
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RollBack:
    """Evict the released members: the gang did not come to run."""

    members: tuple[Member, ...]
    nodes: tuple[str, ...]  # where members did not bind
    why: str


Step = Complete | Undo | RollBack


def next_step(gang: Gang, *, now: float, timeout_s: float, node_exists: Callable[[str], bool]) -> Step | None:
    touched = [member for member in gang.gated if member.touched]
    if touched:
        return _half_written(gang, touched, now=now, timeout_s=timeout_s, node_exists=node_exists)
    late = [m for m in gang.released if not m.bound and deadline(m, timeout_s) <= now and not m.leaving]
    return _roll_back(gang, late, timeout_s) if late else None


def _half_written(
    gang: Gang, touched: list[Member], *, now: float, timeout_s: float, node_exists: Callable[[str], bool]
) -> Step:
    ready = [(member, node) for member in touched if (node := whole_on(member, node_exists)) is not None]
    partial = [member for member in touched if all(member is not done for done, _ in ready)]
    if partial:
        return Undo(members=tuple(partial), why="only some of its claims were written")
    if gang.placed + len(ready) < gang.size:
        if all(member.leaving for member in gang.released):
            return Undo(members=tuple(touched), why=f"only {len(ready)} of {gang.size} members were written")
    elif gang.released and all(deadline(member, timeout_s) <= now for member, _ in ready):
        late = [member for member, _ in ready]
        return _roll_back(gang, late, timeout_s)
    return Complete(members=tuple(ready))


def _roll_back(gang: Gang, late: list[Member], timeout_s: float) -> RollBack | Undo:
    nodes = tuple(sorted({node for member in late if (node := node_of(member) or _any_node(member))}))
    bound = [member for member in gang.released if member.bound]
    names = ", ".join(member.pod.metadata.name for member in late[:4]) + (" …" if len(late) > 4 else "")
    why = f"{len(late)} of its pods ({names}) did not bind to {', '.join(nodes) or 'a node'} within {timeout_s:.0f} s"
    surplus = len(bound) >= gang.size
    members = tuple(late) if surplus else gang.released
    members = tuple(member for member in members if member in gang.released and not member.leaving)
    if not members:
        return Undo(members=tuple(late), why=why)
    return RollBack(members=members, nodes=nodes, why=why)


def whole_on(member: Member, node_exists: Callable[[str], bool]) -> str | None:
    """The node on which all of the member's claims are, if all are written and the node is still there."""
    if not member.whole:
        return None
    nodes = {allocated_node(entry.claim) for entry in member.entries if entry.claim is not None}
    nodes.discard(None)
    node = nodes.pop() if len(nodes) == 1 else None
    return node if node is not None and node_exists(node) else None


def _any_node(member: Member) -> str | None:
    return next((node for e in member.entries if e.claim and (node := allocated_node(e.claim))), None)


def deadline(member: Member, timeout_s: float) -> float:
    """Until when the member must be bound, unix seconds. Counted from the allocation, which outlives a leader."""
    claims = [entry.claim for entry in member.entries if entry.claim is not None and entry.allocated]
    began = max((allocated_s(claim) for claim in claims), default=float("inf"))
    slow = any(result.binding_conditions for claim in claims for result in _results(claim))
    return began + timeout_s + (BINDING_CONDITIONS_S if slow else 0.0)


def _results(claim: resource.ResourceClaim) -> tuple[resource.DeviceRequestAllocationResult, ...]:
    return claim.status.allocation.devices.results if claim.status.allocation else ()


def next_deadline(gang: Gang, timeout_s: float) -> float | None:
    """When the gang has to be looked at again although nothing changed; unix seconds."""
    waiting = [m for m in gang.released if not m.bound] + [m for m in gang.gated if m.touched]
    times = [time for member in waiting if (time := deadline(member, timeout_s)) != float("inf")]
    return min(times, default=None)


def abandoned(
    claims: Iterable[resource.ResourceClaim],
    *,
    drivers: tuple[str, ...],
    used: Callable[[resource.ResourceClaim], bool],
) -> list[resource.ResourceClaim]:
    """Allocated devices of ours that nobody has reserved and no living pod refers to."""
    return [
        claim
        for claim in claims
        if claim.status.allocation is not None
        and not claim.status.reserved_for
        and any(result.driver in drivers for result in _results(claim))
        and not used(claim)
    ]
