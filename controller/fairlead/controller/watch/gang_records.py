"""What Gang objects record: of evictions, so that pods which are made again keep their age, and of holds."""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Iterator
from typing import Any

from fairlead.controller.gangs.admission import holds
from fairlead.controller.gangs.evictions import past_evictions
from fairlead.controller.gangs.evictions.past_evictions import PastEviction
from fairlead.controller.gangs.membership import decisions
from fairlead.controller.gangs.membership.gangs import Gang, GangId
from fairlead.controller.watch import indexes
from fairlead.controller.watch.informers import Informers
from fairlead.engine.types.gangs import Hold
from fairlead.kube.resources import Raw


class GangRecords:
    """`gangs`: those that exist."""

    def __init__(self, informers: Informers, gangs: Container[GangId]) -> None:
        self._informers = informers
        self._gangs = gangs

    def past_eviction(self, gang: Gang, now: float) -> PastEviction | None:
        """The gang's last eviction as its Gang object has it, for a gang of one also those of evicted pods of its owner: the latest of
        them, with the age of the oldest.
        """
        found = self.past_evictions(gang, now)
        if not found:
            return None
        last = max(found, key=lambda past: past.at)
        return dataclasses.replace(last, queued_since=min(past.queued_since for past in found))

    def past_evictions(self, gang: Gang, now: float) -> list[PastEviction]:
        """The same, all that there are."""
        raw = self._informers.gang_object(gang.id)
        objects = [*(() if raw is None else (raw,)), *self._predecessors(gang)]
        found = (past_evictions.past_eviction(each, now) for each in objects)
        return [past for past in found if past is not None]

    def _predecessors(self, gang: Gang) -> Iterator[Raw]:
        """For a gang of one, the Gang objects of evicted pods of its owner that are gone."""
        owner = gang.members[0].owner if gang.solo and gang.members else ""
        if owner:
            key = indexes.in_namespace(gang.namespace, owner)
            yield from (each for each in self._informers.gang_objects.by_index("owner", key) if not self._exists(each))

    def hold_of(self, gang: Gang) -> Hold | None:
        """As its Gang object says; until that has a status, for a gang of one also that of an evicted pod of its owner.

        So a hold outlives the pod, and a user who makes the Gang object of the next pod does not end it.
        """
        return holds.of_object({"spec": {"hold": self.hold_object(gang)}})

    def hold_object(self, gang: Gang) -> Any:
        """The same, as it is written; None where there is none."""
        raw = self._informers.gang_object(gang.id)
        objects: list[Raw] = [] if raw is None else [raw]
        if raw is None or not decisions.without_records(raw.get("status") or {}):
            objects += self._predecessors(gang)
        found = ((each.get("spec") or {}).get("hold") for each in objects)
        return next((hold for hold in found if hold is not None), None)

    def _exists(self, gang_object: Raw) -> bool:
        meta = gang_object["metadata"]
        return (meta["namespace"], meta["name"]) in self._gangs
