"""The format, version 1: what a decision starts from, as JSON with the API's spelling (camelCase), under names of its own.

`Facts` is a whole state or a change of one: each table by key, with null for what is gone. What equals its default is left out.
Amounts of flavors are whole numbers, or fractions as texts ("1/7"); resources of nodes and pods are in thousandths; times are
unix seconds; parts of Kubernetes objects are as resource.k8s.io/v1 and core/v1 have them.
A field that is added later has a default; one that changes its meaning makes version 2 (`tests/history/test_schema.py`).
Tables go in parts (`parts`), so that a whole state, of 10,000 nodes with MIG-capable GPUs 2.6 GB of JSON, is never in memory as text.
"""

# ruff: noqa: RUF012 - msgspec copies empty defaults itself; they are not shared

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from fairlead.engine.inventory.nodes import NodeNotice
from fairlead.engine.types.allocation import AllocatedClaim
from fairlead.engine.types.gangs import GangRequest, RunningGang
from fairlead.engine.types.pods import Demand, PodNeeds, Workload
from fairlead.engine.types.settings import DisruptionBudget, FlavorSpec, NamespaceQuota, QueueSpec
from fairlead.engine.types.values import Fact
from fairlead.kube import core, resource

VERSION = 1
NO_WORKLOAD = Workload()
PART_WEIGHT = 1_000
Tables = dict[str, Any]  # table to entries by key
_MANY = {"slices": "devices", "gangs": "members", "running": "members"}  # what an entry has many of


class FactsError(ValueError):
    """Names the field, what it holds, and what to do."""


class Node(Fact, frozen=True, kw_only=True):
    labels: Mapping[str, str] = {}
    taints: tuple[core.Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    notice: NodeNotice | None = None
    allocatable: Mapping[str, int] = {}


class CountedPod(Fact, frozen=True, kw_only=True):
    """A pod that takes room on a node."""

    node: str
    needs: PodNeeds
    namespace: str = ""  # with `labels`, by what terms of other pods select it
    labels: Mapping[str, str] = {}
    leaving: bool = False


class Settings(Fact, frozen=True, kw_only=True):
    usage_weight: float = 1.0
    reserve_after_s: float = 600.0
    search_steps: int = 200_000
    namespace_steps: int | None = None
    searched: tuple[str, ...] = ()  # UIDs of gangs, sorted


class Facts(Fact, frozen=True, kw_only=True):
    """A state, or a change of one. `order`: the keys of a table whose order is not that of its keys, sorted."""

    slices: dict[str, resource.ResourceSliceSpec | None] = {}  # by name
    taint_rules: dict[str, resource.DeviceTaintRuleSpec | None] = {}  # by name
    classes: dict[str, resource.DeviceClassSpec | None] = {}  # by name
    claims: dict[str, AllocatedClaim | None] = {}  # by UID
    nodes: dict[str, Node | None] = {}  # by name
    pods: dict[str, CountedPod | None] = {}  # by UID
    gangs: dict[str, GangRequest | None] = {}  # by namespace/name
    running: dict[str, RunningGang | None] = {}  # by namespace/name
    queues: dict[str, QueueSpec | None] = {}  # by name
    flavors: dict[str, FlavorSpec | None] = {}  # by name
    budgets: dict[str, DisruptionBudget | None] = {}  # by namespace/name
    quotas: dict[str, NamespaceQuota | None] = {}  # by namespace/name/resource
    order: dict[str, tuple[str, ...] | None] = {}  # by table; null: sorted again
    workload: tuple[Demand, ...] | msgspec.UnsetType | None = msgspec.UNSET
    mix: Workload = NO_WORKLOAD  # beside `workload`, when that is set
    settings: Settings | None = None  # in a change: null where they are as before


EMPTY = Facts()
TABLES = tuple(name for name in Facts.__struct_fields__ if name not in {"order", "workload", "mix", "settings"})


def weight(tables: Mapping[str, Mapping[str, Any]]) -> int:
    """Devices, pods and other entries."""
    return sum(_weight(table, value) for table, entries in tables.items() for value in entries.values())


def parts(
    tables: Mapping[str, Mapping[str, Any]], write: Callable[[str, Any], Any], *, most: int = PART_WEIGHT
) -> Iterator[Facts]:
    """In order. `write` makes of a table's entry what the format has; each part is made when it is asked for."""
    part: Tables = {}
    full = 0
    for table, entries in tables.items():
        for key, value in entries.items():
            if full >= most:
                yield Facts(**part)
                part, full = {}, 0
            part.setdefault(table, {})[key] = None if value is None else write(table, value)
            full += _weight(table, value)
    if part:
        yield Facts(**part)


def tables_of(facts: Facts) -> Tables:
    """Those that have entries."""
    return {table: entries for table in TABLES if (entries := getattr(facts, table))}


def joined(several: Iterable[Facts]) -> Tables:
    """The tables of all of them, in their order."""
    found: Tables = {}
    for facts in several:
        for table, entries in tables_of(facts).items():
            found.setdefault(table, {}).update(entries)
    return found


def _weight(table: str, value: Any) -> int:
    return 1 + (len(getattr(value, many)) if value is not None and (many := _MANY.get(table)) else 0)
