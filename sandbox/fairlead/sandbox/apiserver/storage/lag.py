"""Watch caches that lag behind the store, each resource by itself.

A real apiserver fills one cache per resource from a watch of etcd of its own, so a pod can reach a watcher before the claim that
was written first. Watches show a change once it is due; reads and lists are consistent, as since 1.31. Within a resource
the order of changes stays. A lag is seeded; which change gets which delay depends on the order of writes.
"""

from __future__ import annotations

from collections.abc import Collection
from random import Random

from fairlead.sandbox.apiserver.storage.store import Change


class WatchLag:
    """Delays each change by a random time between `least_s` and `most_s`; of named resources (plurals), or of all."""

    def __init__(self, most_s: float, *, random: Random, least_s: float = 0.0, resources: Collection[str] = ()) -> None:
        self._least_s = least_s
        self._most_s = most_s
        self._random = random
        self._resources = frozenset(resources)
        self._last: dict[str, float] = {}  # when the newest change is due, by resource

    def due(self, plural: str, change: Change, now: float) -> float:
        """When watchers see the change, in the loop's time; the same for all of them."""
        if self._resources and plural not in self._resources:
            return now
        if change.due is None:
            delayed = now + self._random.uniform(self._least_s, self._most_s)
            change.due = self._last[plural] = max(self._last.get(plural, 0.0), delayed)
        return change.due
