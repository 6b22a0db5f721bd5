"""A state that facts change: the engine's tables and tuples, kept as the controller keeps them, and the snapshot of now.

What a change does not name stays the same object, so that a decision on it costs what changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from fairlead.engine.inventory.inventory import Inventory
from fairlead.engine.inventory.node_table import NodeTable
from fairlead.engine.inventory.nodes import NodeInfo
from fairlead.engine.snapshot import Snapshot
from fairlead.engine.types.pods import PodIdentity
from fairlead.history.facts import form
from fairlead.history.facts.form import FactsError
from fairlead.kube import resource
from fairlead.kube.objects import ObjectMeta

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from fairlead.engine.types.gangs import GangRequest, RunningGang
    from fairlead.engine.types.pods import Workload
    from fairlead.engine.types.settings import DisruptionBudget, FlavorSpec, NamespaceQuota, QueueSpec

V = TypeVar("V")
F = TypeVar("F")


def _same(_: str, value: V) -> V:
    """The format's value is the engine's."""
    return value


class Table(Generic[V]):
    """Values by key, and as a tuple in the snapshot's order."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.by_key: dict[str, V] = {}
        self.values: tuple[V, ...] = ()
        self._order: tuple[str, ...] | None = None

    def change(
        self, changed: Mapping[str, F | None], order: Mapping[str, tuple[str, ...] | None], of: Callable[[str, F], V]
    ) -> None:
        """Raises FactsError for an order that names other keys."""
        if not changed and self.name not in order:
            return
        for key, value in changed.items():
            if value is None:
                self.by_key.pop(key, None)
            else:
                self.by_key[key] = of(key, value)
        self._order = order.get(self.name, self._order)
        keys: Iterable[str] = sorted(self.by_key) if self._order is None else self._order
        try:
            self.values = tuple(self.by_key[key] for key in keys)
        except KeyError as error:
            raise FactsError(f"facts.order.{self.name}: {error.args[0]!r} is not in facts.{self.name}") from None
        if len(self.values) != len(self.by_key):
            raise FactsError(f"facts.order.{self.name}: {len(self.values)} keys for {len(self.by_key)} entries")


class State:
    """Empty at first. `snapshot` is a view: decide on it before the next change."""

    def __init__(self) -> None:
        self.inventory = Inventory()
        self.nodes = NodeTable()
        self.classes: dict[str, resource.DeviceClass] = {}
        self.gangs: Table[GangRequest] = Table("gangs")
        self.running: Table[RunningGang] = Table("running")
        self.queues: Table[QueueSpec] = Table("queues")
        self.flavors: Table[FlavorSpec] = Table("flavors")
        self.budgets: Table[DisruptionBudget] = Table("budgets")
        self.quotas: Table[NamespaceQuota] = Table("quotas")
        self.workload: Workload | None = None
        self.settings = form.Settings()

    def apply(self, facts: form.Facts) -> None:
        """Raises FactsError."""
        try:
            self._apply(facts)
        except (ValueError, ZeroDivisionError, TypeError) as error:
            raise FactsError(f"facts that cannot be understood: {error}") from error

    def _apply(self, facts: form.Facts) -> None:
        self.apply_cluster(facts)
        order = facts.order
        self.gangs.change(facts.gangs, order, _same)
        self.running.change(facts.running, order, _same)
        self.queues.change(facts.queues, order, lambda name, value: replace(value, name=name))
        self.flavors.change(facts.flavors, order, lambda name, value: replace(value, name=name))
        self.budgets.change(facts.budgets, order, _same)
        self.quotas.change(facts.quotas, order, _same)
        if not isinstance(facts.workload, msgspec.UnsetType):
            demands = facts.workload
            self.workload = None if demands is None else replace(facts.mix, demands=demands)
        if facts.settings is not None:
            self.settings = facts.settings

    def apply_cluster(self, facts: form.Facts) -> None:
        """Devices, nodes, and what takes their room."""
        inventory, nodes = self.inventory, self.nodes
        gone = [name for name, spec in facts.slices.items() if spec is None]
        for name in gone:
            inventory.drop_slice(name)
        inventory.set_slices(
            resource.ResourceSlice(metadata=ObjectMeta(name=name), spec=spec)
            for name, spec in facts.slices.items()
            if spec is not None
        ) if len(gone) < len(facts.slices) else None
        for name, rule in facts.taint_rules.items():
            if rule is None:
                inventory.drop_taint_rule(name)
            else:
                inventory.set_taint_rule(resource.DeviceTaintRule(metadata=ObjectMeta(name=name), spec=rule))
        for uid, claim in facts.claims.items():
            if claim is None:
                inventory.drop_claim(uid)
            else:
                inventory.set_allocated(replace(claim, uid=uid))
        for name, node in facts.nodes.items():
            if node is None:
                nodes.drop_node(name)
            else:
                nodes.set_info(_node(name, node))
        for uid, pod in facts.pods.items():
            if pod is None:
                nodes.drop_pod(uid)
            else:
                identity = PodIdentity(namespace=pod.namespace, labels=pod.labels, leaving=pod.leaving)
                nodes.set_needs(uid, pod.node, pod.needs, identity)
        if facts.classes:
            self.classes = dict(self.classes)  # a snapshot keeps those that it was given
        for name, spec in facts.classes.items():
            if spec is None:
                self.classes.pop(name, None)
            else:
                self.classes[name] = resource.DeviceClass(metadata=ObjectMeta(name=name), spec=spec)

    def snapshot(self) -> Snapshot:
        settings = self.settings
        return Snapshot(
            inventory=self.inventory,
            nodes=self.nodes,
            classes=self.classes,
            gangs=self.gangs.values,
            running=self.running.values,
            queues=self.queues.values,
            flavors=self.flavors.values,
            budgets=self.budgets.values,
            namespace_quotas=self.quotas.values,
            workload=self.workload,
            usage_weight=settings.usage_weight,
            reserve_after_s=settings.reserve_after_s,
            search_steps=settings.search_steps,
            namespace_steps=settings.namespace_steps,
            searched=frozenset(settings.searched),
        )


def _node(name: str, value: form.Node) -> NodeInfo:
    return NodeInfo(
        name=name,
        labels=value.labels,
        taints=value.taints,
        unschedulable=value.unschedulable,
        ready=value.ready,
        notice=value.notice,
        allocatable=dict(value.allocatable),
    )
