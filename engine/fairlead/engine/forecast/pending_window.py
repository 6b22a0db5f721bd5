"""The gangs that the next simulated decision looks at: the first few of each kind.

A decision that looks at 2,000 waiting gangs takes most of a second, and a forecast makes hundreds. Of gangs of one queue that are
alike but for their age the later ones are refused where the first is (`plan.scheduling`), so a few of each kind are enough; once all of
a kind have started the next ones are looked at, at the same instant. Where there are more kinds than `most`, the first by
priority and age of each queue in turn are looked at: then a small gang far back starts later here than by backfill.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

from fairlead.kube.spec_key import spec_key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fairlead.engine.types.gangs import GangRequest
    from fairlead.kube import resource

EACH = 2  # gangs of a kind at first
EACH_MAX = 64


class Kinds:
    """A number for each kind of pending gang: equal for gangs that a decision treats alike but for their age."""

    def __init__(self) -> None:
        self._numbers: dict[object, int] = {}
        self._specs: dict[bytes, int] = {}
        self._spec_of: dict[int, tuple[object, int]] = {}  # by identity, which the value keeps alive
        self._kinds: dict[int, tuple[GangRequest, int]] = {}

    def of(self, gang: GangRequest) -> int:
        known = self._kinds.get(id(gang))
        if known is not None:
            return known[1]
        claims = {claim.key: claim for claim in gang.claims}
        number = self._number(
            (
                gang.queue,
                gang.namespace,
                gang.priority,
                gang.size,
                gang.preempts,
                gang.preemptor,
                gang.replaces,
                gang.run_s,
                gang.topology,
                gang.subgroup_topology,
                gang.placed_nodes,
                gang.placed_subgroups,
                gang.align,
                spec_key(gang.placed_members) if gang.placed_members else b"",
                gang.models,
                spec_key(gang.placed_claims) if gang.placed_claims else b"",
                gang.kept,
                gang.avoid,
                gang.refused,
                tuple(
                    (
                        member.needs,
                        member.subgroup,
                        member.worker_group,
                        tuple(self._spec(claims[key].spec) for key in member.claims if key in claims),
                    )
                    for member in gang.members
                ),
                tuple(claim.key for claim in gang.claims if claim.allocation is not None),
            )
        )
        self._kinds[id(gang)] = (gang, number)
        return number

    def _spec(self, spec: resource.ResourceClaimSpec) -> int:
        known = self._spec_of.get(id(spec))
        if known is None:
            number = self._specs.setdefault(spec_key(spec), len(self._specs))
            known = self._spec_of[id(spec)] = (spec, number)
        return known[1]

    def _number(self, content: object) -> int:
        return self._numbers.setdefault(content, len(self._numbers))


class PendingWindow:
    """The gangs that wait in one sample."""

    def __init__(self, gangs: Iterable[GangRequest], kinds: Kinds, *, most: int) -> None:
        self._kinds = kinds
        self._most = most
        self._waiting: dict[int, dict[str, GangRequest]] = {}  # by kind, in order of age; then by gang id
        self._each: dict[int, int] = {}
        self._hidden = False  # there were more kinds than `most`
        for gang in sorted(gangs, key=_age):
            self._waiting.setdefault(kinds.of(gang), {})[gang.id] = gang

    def __bool__(self) -> bool:
        return any(self._waiting.values())

    def all(self) -> list[GangRequest]:
        return [gang for line in self._waiting.values() for gang in line.values()]

    def __contains__(self, gang: GangRequest) -> bool:
        return gang.id in self._waiting.get(self._kinds.of(gang), ())

    def shown(self) -> tuple[GangRequest, ...]:
        """Those that the next decision looks at, in order of their ids."""
        queues: dict[object, list[GangRequest]] = {}
        for kind, gangs in self._waiting.items():
            each = self._each.get(kind, EACH)
            for _, gang in zip(range(each), gangs.values(), strict=False):
                queues.setdefault(gang.queue or ("", gang.namespace), []).append(gang)
        for line in queues.values():
            line.sort(key=lambda gang: (not (gang.preemptor or gang.replaces), -gang.priority, *_age(gang)))
        found: list[GangRequest] = []
        for turn in zip_longest(*queues.values()):
            if len(found) >= self._most:
                break
            found += [gang for gang in turn if gang is not None]
        self._hidden = len(found) < sum(map(len, queues.values()))
        return tuple(sorted(found, key=lambda gang: gang.id))

    def started(self, shown: Iterable[GangRequest], admitted: set[str]) -> bool:
        """Takes the admitted ones out. Whether more of their kinds wait that were not shown: then decide again."""
        stays: set[int] = set()
        went: dict[int, int] = {}
        for gang in shown:
            kind = self._kinds.of(gang)
            if gang.id in admitted:
                del self._waiting[kind][gang.id]
                went[kind] = went.get(kind, 0) + 1
            else:
                stays.add(kind)
        again = bool(went) and self._hidden
        for kind in went.keys() - stays:
            if self._waiting[kind]:
                again = True
                self._each[kind] = min(EACH_MAX, 2 * self._each.get(kind, EACH))
            else:
                del self._waiting[kind]
        for kind in stays:
            self._each.pop(kind, None)
        return again

    def add(self, gang: GangRequest) -> None:
        kind = self._kinds.of(gang)
        line = self._waiting.setdefault(kind, {})
        line[gang.id] = gang
        self._waiting[kind] = {each.id: each for each in sorted(line.values(), key=_age)}

    def replace(self, before: GangRequest, gang: GangRequest) -> None:
        line = self._waiting[self._kinds.of(before)]
        del line[before.id]
        self.add(gang)


def _age(gang: GangRequest) -> tuple[float, str]:
    return (gang.created, gang.uid)
