"""A gang that stays on a node which goes soon: which of its pods are still to be asked to save their work, and by when. Pure.

All its members are asked, on whichever node they run: the gang stops with the node. Without a known time it is the gang's
checkpoint-grace from now on. The request is taken back when the node stays after all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fairlead.api import names
from fairlead.controller.gangs.membership.gangs import Gang
from fairlead.controller.gangs.membership.members import Member
from fairlead.engine.inventory.nodes import NodeNotice
from fairlead.kube import timestamps


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """`by`: RFC 3339; None: what was asked is taken back."""

    members: tuple[Member, ...]
    by: str | None
    why: str = ""


def ask(gang: Gang, notice: tuple[str, NodeNotice] | None, now: float) -> Ask | None:
    """None where nothing is to be written."""
    if notice is None:
        asked = tuple(member for member in gang.running if names.CHECKPOINT_BY in _annotations(member))
        return Ask(members=asked, by=None) if asked else None
    node, what = notice
    by = what.by if what.by is not None else now + (gang.checkpoint_grace_s or 0.0)
    text = timestamps.seconds(by)
    said = (
        tuple(member for member in gang.running if names.CHECKPOINT_BY not in _annotations(member))
        if what.by is None
        else tuple(member for member in gang.running if _annotations(member).get(names.CHECKPOINT_BY) != text)
    )
    if not said:
        return None
    why = f"node {node} goes: {what}; its pods have until {text} to save their work"
    return Ask(members=said, by=text, why=why)


def _annotations(member: Member) -> Mapping[str, str]:
    return member.pod.metadata.annotations
