"""Nodes that kube-scheduler refused a gang's pods on: not chosen again for that gang for a while, however well they look.

The engine knows most of what kube-scheduler looks at, not all (a scheduler's own plugins, limits of volumes). Without this the same
node would be chosen, refused and rolled back forever where it is the only one. Each refusal of a node in a row doubles the time.
A gang of one is known by the owner of its pod, since the next pod has another name. A new leader learns them from Gang
objects (`past_evictions`), when it first looks at the gang. Reads no clock: `now` is an argument.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from fairlead.controller.gangs.evictions.past_evictions import PastEviction, Refusal
from fairlead.controller.gangs.membership.gangs import Gang, GangId
from fairlead.engine.types.gangs import RefusedNode

FIRST_S = 120.0
MAX_S = 1800.0
FORGET_S = 3600.0  # after its time was over, a node was not refused in a row
Key = tuple[
    str, str
]  # a namespace, and a gang of it, or a UID of an owner: owners are of the namespace of what they own


@dataclass(slots=True)
class _Known:
    nodes: dict[str, Refusal] = field(default_factory=dict)
    gangs: set[GangId] = field(default_factory=set)  # that asked: told when a node may be chosen again


class Refusals:
    def __init__(self) -> None:
        self._known: dict[Key, _Known] = {}
        self._learnt: dict[Key, float] = {}  # what was written of them is this process's, or was read then

    def learn(self, gang: Gang, past: Iterable[PastEviction], now: float) -> None:
        """What an earlier leader wrote, once: later this process knows better, e.g. that the gang has run since."""
        told = [each for one in past for each in one.refused if each.until + FORGET_S > now]
        key = _key(gang)
        if not told or key in self._learnt:
            return
        self._learnt[key] = now
        known = self._known.setdefault(key, _Known())
        for each in sorted(told, key=lambda each: each.until):
            known.nodes[each.node] = replace(each, until=min(each.until, now + MAX_S))

    def note(self, gang: Gang, refused: Iterable[tuple[str, str]], now: float) -> None:
        """`refused`: node, and what kube-scheduler said."""
        for node, why in refused:
            self._learnt[_key(gang)] = now
            known = self._known.setdefault(_key(gang), _Known())
            known.gangs.add(gang.id)
            before = known.nodes.get(node)
            times = 0 if before is None else before.times
            until = now + min(MAX_S, FIRST_S * 2.0**times)
            known.nodes[node] = Refusal(node=node, until=until, times=times + 1, why=why)

    def told(self, gang: Gang, now: float) -> tuple[Refusal, ...]:
        """What the next leader is to know; the longest first."""
        known = self._known.get(_key(gang)) or _Known()
        return tuple(sorted((e for e in known.nodes.values() if e.until > now), key=lambda e: (-e.until, e.node)))

    def of(self, gang: Gang, now: float) -> tuple[RefusedNode, ...]:
        """Refusals in the order of names."""
        known = self._known.get(_key(gang))
        if known is None:
            return ()
        known.gangs.add(gang.id)
        return tuple(
            RefusedNode(node=node, until=each.until, why=each.why)
            for node, each in sorted(known.nodes.items())
            if each.until > now
        )

    def reset(self, gang: Gang) -> None:
        """All its pods are bound. Of a gang of one, others of its owner may still be refused."""
        if not gang.solo:
            self._known.pop(gang.id, None)

    def next_end(self, now: float) -> float | None:
        """When a node may be chosen again next; unix seconds."""
        return min(
            (e.until for known in self._known.values() for e in known.nodes.values() if e.until > now), default=None
        )

    def expire(self, since: float, now: float) -> list[GangId]:
        """The gangs that may be placed again on a node whose time ended after `since`. Forgets what is long over."""
        over: list[GangId] = []
        for key, known in list(self._known.items()):
            if any(since < each.until <= now for each in known.nodes.values()):
                over += sorted(known.gangs)
            known.nodes = {node: each for node, each in known.nodes.items() if each.until + FORGET_S > now}
            if not known.nodes:
                del self._known[key]
        self._learnt = {key: at for key, at in self._learnt.items() if at + MAX_S + FORGET_S > now}
        return over


def _key(gang: Gang) -> Key:
    owner = gang.members[0].owner if gang.solo and gang.members else ""
    return (gang.namespace, f"owner/{owner}") if owner else gang.id
