"""What of a snapshot changed since the one before, as references to frozen values: taken in the loop, written down elsewhere.

Costs what changed, and a look at each gang that waits: tables tell what changed by their logs, running gangs by their sequence.
`Noted.facts` makes the facts of it, which may run in another thread: nothing that it reads changes later.
"""

from __future__ import annotations

import collections
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from fairlead.engine.inventory.pool import published_slice
from fairlead.engine.types.gangs import RunningSequence
from fairlead.history.facts import form
from fairlead.history.facts.form import FactsError, Tables, joined, parts, weight

if TYPE_CHECKING:
    from fairlead.engine.inventory.changes import ChangeLog
    from fairlead.engine.inventory.nodes import NodeInfo
    from fairlead.engine.snapshot import Snapshot
    from fairlead.engine.types.pods import PodIdentity, PodNeeds
    from fairlead.engine.types.settings import NamespaceQuota


def _quota_key(quota: NamespaceQuota) -> str:
    return f"{quota.namespace}/{quota.name}/{quota.resource}"


def _same(value: msgspec.Struct) -> msgspec.Struct:
    """The engine's value is the format's."""
    return value


def _node(info: NodeInfo) -> form.Node:
    return form.Node(
        labels=info.labels,
        taints=info.taints,
        unschedulable=info.unschedulable,
        ready=info.ready,
        notice=info.notice,
        allocatable=info.allocatable,
    )


def _counted_pod(where: str, needs: PodNeeds, identity: PodIdentity) -> form.CountedPod:
    return form.CountedPod(
        node=where, needs=needs, namespace=identity.namespace, labels=identity.labels, leaving=identity.leaving
    )


# The tables that are tuples in a snapshot: their field there, the key of an entry, and what is written of it.
_TUPLES: tuple[tuple[str, str, Callable[[Any], str], Callable[[Any], msgspec.Struct]], ...] = (
    ("gangs", "gangs", lambda gang: gang.id, _same),
    ("running", "running", lambda gang: gang.id, _same),
    ("queues", "queues", lambda queue: queue.name, lambda queue: replace(queue, name="")),
    ("flavors", "flavors", lambda flavor: flavor.name, lambda flavor: replace(flavor, name="")),
    ("budgets", "budgets", lambda budget: f"{budget.namespace}/{budget.name}", _same),
    ("quotas", "namespace_quotas", _quota_key, _same),
)
_WRITERS: dict[str, Callable[[Any], Any]] = {
    "slices": published_slice,
    "taint_rules": _same,
    "classes": lambda value: value.spec,
    "claims": lambda claim: replace(claim, uid=""),
    "nodes": _node,
    "pods": lambda found: _counted_pod(*found),
    **{table: writer for table, _, _, writer in _TUPLES},
}


@dataclass(slots=True)
class Noted:
    """Engine values by table and key, None for what is gone."""

    whole: bool
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    order: dict[str, tuple[str, ...] | None] = field(default_factory=dict)
    workload: Any = msgspec.UNSET
    settings: form.Settings | None = None

    @property
    def empty(self) -> bool:
        return not (self.tables or self.order or self.settings or self.workload is not msgspec.UNSET)

    @property
    def weight(self) -> int:
        """Devices, pods and other entries."""
        return weight(self.tables)

    def facts(self) -> form.Facts:
        return self._with(joined(parts(self.tables, _written)))

    def parts(self) -> Iterator[form.Facts]:
        """Its tables, each part made when it is asked for; `rest` has what is not in tables."""
        return parts(self.tables, _written)

    def rest(self) -> form.Facts:
        return self._with({})

    def _with(self, tables: Tables) -> form.Facts:
        if self.workload is msgspec.UNSET:
            return form.Facts(**tables, order=self.order, settings=self.settings)
        known = self.workload is not None
        demands = self.workload.demands if known else None
        mix = replace(self.workload, demands=()) if known else form.NO_WORKLOAD
        return form.Facts(**tables, order=self.order, workload=demands, mix=mix, settings=self.settings)


def _written(table: str, value: Any) -> Any:
    return _WRITERS[table](value)


class Watcher:
    """Knows the snapshot before. One per recording; all snapshots are of the same tables, else everything is noted again."""

    def __init__(self) -> None:
        self._before: Snapshot | None = None
        self._cursors: dict[str, int] = {}
        self._rules: dict[str, Any] = {}
        self._seen: dict[str, _Seen] = {}

    def forget(self) -> None:
        """The next one is noted whole."""
        self._before = None

    def note(self, snapshot: Snapshot) -> Noted:
        """What changed since the last call; everything at the first. Raises FactsError for two entries of one key."""
        before = self._before
        if before is not None and (
            before.inventory is not snapshot.inventory or before.nodes is not snapshot.nodes or self._behind(snapshot)
        ):
            before = None
        noted = Noted(whole=before is None)
        if before is None:
            self._cursors, self._rules, self._seen = {}, {}, {}
        self._note_tables(snapshot, noted)
        self._note_classes(snapshot, before, noted)
        for table, attribute, key, _ in _TUPLES:
            values = getattr(snapshot, attribute)
            last = () if before is None else getattr(before, attribute)
            if values is not last:
                self._note_tuple(table, values, last, key, noted)
        if before is None or snapshot.workload is not before.workload:
            noted.workload = snapshot.workload
        settings = _settings(snapshot)
        if before is None or settings != _settings(before):
            noted.settings = settings
        self._before = snapshot
        return noted

    # -- tables ----------------------------------------------------------------------------------------------------

    def _behind(self, snapshot: Snapshot) -> bool:
        """More changed than a log keeps."""
        inventory, nodes = snapshot.inventory, snapshot.nodes
        logs = (inventory.slice_changes, inventory.claim_changes, nodes.node_changes, nodes.pod_changes)
        return any(log.since(cursor) is None for log, cursor in zip(logs, self._cursors.values(), strict=True))

    def _note_tables(self, snapshot: Snapshot, noted: Noted) -> None:
        inventory, nodes = snapshot.inventory, snapshot.nodes
        self._log("slices", inventory.slice_changes, inventory.slice_names, inventory.slice_entry, noted)
        self._log(
            "claims", inventory.claim_changes, lambda: (c.uid for c in inventory.claims()), inventory.claim, noted
        )
        self._log("nodes", nodes.node_changes, lambda: (node.name for node in nodes.all()), nodes.get, noted)
        self._log("pods", nodes.pod_changes, nodes.pods, nodes.counted, noted)
        rules = dict(inventory.rules_by_name)
        if rules != self._rules:
            noted.tables["taint_rules"] = _difference(self._rules, rules)
            self._rules = rules

    def _log(
        self,
        table: str,
        log: ChangeLog[str],
        every: Callable[[], Iterable[str]],
        get: Callable[[str], Any],
        noted: Noted,
    ) -> None:
        cursor = self._cursors.get(table)
        changed = every() if cursor is None else log.since(cursor)
        self._cursors[table] = log.cursor
        if entries := {key: get(key) for key in changed or ()}:
            noted.tables[table] = entries

    def _note_classes(self, snapshot: Snapshot, before: Snapshot | None, noted: Noted) -> None:
        known: Mapping[str, Any] = {} if before is None else before.classes
        if snapshot.classes != known:
            noted.tables["classes"] = _difference(known, snapshot.classes)

    # -- tuples ----------------------------------------------------------------------------------------------------

    def _note_tuple(
        self, table: str, values: tuple[Any, ...], last: tuple[Any, ...], key: Callable[[Any], str], noted: Noted
    ) -> None:
        """By identity first: of thousands of gangs that wait, all but a few are the same objects as before."""
        seen = self._seen.get(table) or _Seen()
        if (
            isinstance(values, RunningSequence)
            and isinstance(last, RunningSequence)
            and values.since is last.version
            and seen.sorted
        ):
            if changed := {**dict.fromkeys(each.id for each in values.gone), **{each.id: each for each in values.new}}:
                noted.tables[table] = changed
            self._seen[table] = _Seen(stale=True)
            return
        before = seen.keys if not seen.stale else {id(value): key(value) for value in last}
        ids = list(map(id, values))
        if ids == list(before):
            return
        keys = {number: before.get(number) or key(value) for number, value in zip(ids, values, strict=True)}
        names = list(keys.values())
        if len(set(names)) != len(values):
            raise FactsError(
                f"snapshot.{table}: {_twice(names, values, key)!r} is there twice; each must be there once"
            )
        came = {keys[number]: value for number, value in zip(ids, values, strict=True) if number not in before}
        went = {before[id(value)]: value for value in last if id(value) not in keys}
        if changed := _difference(went, came):
            noted.tables[table] = changed
        in_order = not any(map(operator.gt, names, itertools.islice(names, 1, None)))
        if not in_order:
            noted.order[table] = tuple(names)
        elif not seen.sorted:
            noted.order[table] = None
        self._seen[table] = _Seen(keys=keys, sorted=in_order)


@dataclass(frozen=True, slots=True)
class _Seen:
    """A tuple as it was: the key of each value by its identity, in order; and whether the keys were in order.

    The snapshot before is kept, so no other object has an identity of these. `stale`: the keys are not known.
    """

    keys: dict[int, str] = field(default_factory=dict)
    sorted: bool = True
    stale: bool = False


def _twice(names: list[str], values: tuple[Any, ...], key: Callable[[Any], str]) -> str:
    counted = collections.Counter(map(key, values) if len(names) != len(values) else names)
    return min(name for name, count in counted.items() if count > 1)


def _difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """By key what is new or other than before, None for what is gone."""
    found: dict[str, Any] = dict.fromkeys(before.keys() - now.keys())
    for key, value in now.items():
        known = before.get(key)
        if known is not value and known != value:
            found[key] = value
    return found


def _settings(snapshot: Snapshot) -> form.Settings:
    return form.Settings(
        usage_weight=snapshot.usage_weight,
        reserve_after_s=snapshot.reserve_after_s,
        search_steps=snapshot.search_steps,
        namespace_steps=snapshot.namespace_steps,
        searched=tuple(sorted(snapshot.searched)),
    )
