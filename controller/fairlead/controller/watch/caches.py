"""What the controller has read of the cluster: informers, the engine's tables, and the gangs built from pods and claims.

Every change is applied to the tables as it arrives, so a decision starts from tables that are current. `refresh` rebuilds
the gangs that changed since the last call. Writes nothing to the cluster.
"""

from __future__ import annotations

import dataclasses
import logging

from fairlead.cel.allowance import allowance
from fairlead.cel.errors import AllowanceError
from fairlead.controller.gangs.build import build_gang
from fairlead.controller.gangs.membership import decisions
from fairlead.controller.gangs.membership.gangs import GangId
from fairlead.controller.gangs.membership.gangs import gang_id as gang_id_of
from fairlead.controller.watch.handlers import Handlers
from fairlead.controller.watch.informers import Informers
from fairlead.controller.watch.lookup import GangRecords, Lookup
from fairlead.controller.watch.rules import Rules
from fairlead.kube.informer import Source

log = logging.getLogger(__name__)

TOKENS_A_RUN = 6_000  # of selectors of one namespace that are compiled in a call: a twentieth of a second or more


class Caches(Informers):
    """The informers, and three views over them: `lookup`, `records` and `rules`."""

    def __init__(
        self,
        client: Source,
        drivers: tuple[str, ...],
        shared_drivers: tuple[str, ...] = (),
        *,
        forecasts: bool = True,
    ) -> None:
        super().__init__(client, drivers, shared_drivers, forecasts=forecasts)
        self.lookup = Lookup(self)
        self.records = GangRecords(self)
        self.rules = Rules(self, self.records)
        Handlers(self, reads_usage=lambda: self.rules.settings().any_idle).subscribe()
        self.rules.subscribe()

    def refresh(self, *, turns: bool = False) -> set[GangId]:
        """Rebuilds the gangs that changed since the last call; returns their ids, of those that are gone too.

        `turns`: of namespaces of which very many changed, or much is to be compiled, some now and the others with the next calls.
        """
        changed = self.triggers.take_gangs(self._pods_in if turns else None, self._crowd)
        tokens: dict[str, int] = {}  # by namespace: what is compiled
        late: set[GangId] = set()
        for gang_id in changed:
            key, namespace = "/".join(gang_id), gang_id[0]
            left = TOKENS_A_RUN - tokens.get(namespace, 0) if turns else None
            try:
                with allowance(namespace, tokens=left) as allowed:
                    gang = build_gang(
                        gang_id, self.pods.by_index("gang", key), self.lookup, known=key in self.gang_objects
                    )
                tokens[namespace] = tokens.get(namespace, 0) + allowed.compiled
            except AllowanceError:  # what was compiled for it so far is remembered
                tokens[namespace] = TOKENS_A_RUN
                late.add(gang_id)
                continue
            except Exception:  # what one user wrote must not stop the service for the others
                log.exception("gang %s cannot be read: it stays as it was", key)
                continue
            if gang is None:
                self.gangs.pop(gang_id, None)
                continue
            if gang.foreign_queue and gang.queue is not None:
                queue = self.rules.settings().foreign_queue(gang.queue, self.namespace_labels(gang.namespace))
                gang = dataclasses.replace(gang, queue=queue)
            most = self.rules.bounds(gang).priority if gang.priority > 0 else None
            if most is not None and gang.priority > most.value:
                gang = dataclasses.replace(gang, stated_priority=most.value)
            decided = decisions.decisions(self.gang_object(gang_id))
            self.gangs[gang_id] = dataclasses.replace(gang, decisions=decided) if decided else gang
        self.triggers.gangs(late)
        return changed - late

    def _pods_in(self, gang_id: GangId) -> int:
        return max(1, self.pods.count("gang", "/".join(gang_id)))

    def _crowd(self, namespace: str, of: str) -> list[GangId]:
        """The gangs of a namespace, or those whose pods an index has (`Handlers`)."""
        index, _, key = of.partition(" ")
        if not index:
            return [gang for gang in self.gangs if gang[0] == namespace]
        return [gang_id_of(pod) for pod in self.pods.by_index(index, key)]

    def refresh_all(self) -> None:
        """Rebuild every gang next time, and decide."""
        self.triggers.gangs(self.gangs)
        self.triggers.decide(urgent=True)
