"""One traversal of facts that passes every name to `Names` and puts together what it returns: to collect them, and to replace them.

Kept are devices' names, attributes' and capacities' names, drivers, quantities, counters, times, priorities, and what belongs to
Kubernetes, Fairlead or NVIDIA (`names.public`): the structure that decisions depend on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from fairlead.api.align import alignments
from fairlead.api.bounds import Bounds
from fairlead.engine.types.allocation import AllocatedClaim
from fairlead.engine.types.gangs import ClaimRequest, GangRequest, Hold, RefusedNode, RunningGang
from fairlead.engine.types.pods import AffinityTerm, Demand, Neighbours, PodNeeds, SpreadTerm
from fairlead.engine.types.settings import FlavorSpec, NamespaceQuota, NodeTemplate, QueueSpec
from fairlead.engine.types.values import PodRef
from fairlead.history.facts import form
from fairlead.history.recording.names import Names
from fairlead.history.recording.rename_objects import RenamingObjects

V = TypeVar("V")
P = TypeVar("P", AffinityTerm, SpreadTerm)
CLASS_QUOTA = ".deviceclass.resource.k8s.io/devices"


class Renaming(RenamingObjects):
    def facts(self, facts: form.Facts) -> form.Facts:
        names = self._names
        keys: dict[str, Callable[[str], str]] = {
            "slices": names.name, "taint_rules": names.name, "classes": self._class_name, "claims": names.place,
            "nodes": names.place, "pods": names.place, "gangs": self._id, "running": self._id, "queues": names.name,
            "flavors": names.name, "budgets": self._id, "quotas": self._quota_key,
        }  # fmt: skip
        values: dict[str, Callable[[Any], Any]] = {
            "slices": self._slice, "taint_rules": self._rule, "classes": self._class, "claims": self._allocated,
            "nodes": self._node, "pods": self._counted, "gangs": self._gang, "running": self._running,
            "queues": self._queue, "flavors": self._flavor, "budgets": self._named, "quotas": self._quota,
        }  # fmt: skip
        tables = {
            name: {
                keys[name](key): None if value is None else values[name](value)
                for key, value in getattr(facts, name).items()
            }
            for name in keys
        }
        order = {
            name: None if listed is None else tuple(map(keys[name], listed)) for name, listed in facts.order.items()
        }
        mix = replace(facts.mix, rare=self._demands(facts.mix.rare))
        settings = facts.settings
        if settings is not None and settings.searched:
            settings = replace(settings, searched=tuple(sorted(map(names.place, settings.searched))))
        workload = self._workload(facts.workload)
        return replace(facts, **tables, order=order, workload=workload, mix=mix, settings=settings)

    # -- keys ------------------------------------------------------------------------------------------------------

    def _id(self, key: str) -> str:
        namespace, _, name = key.partition("/")
        return f"{self._names.namespace(namespace)}/{self._names.name(name)}"

    def _quota_resource(self, text: str) -> str:
        if text.endswith(CLASS_QUOTA):
            return self._class_name(text.removesuffix(CLASS_QUOTA)) + CLASS_QUOTA
        return self._qualified(text)

    def _quota_key(self, key: str) -> str:
        namespace, name, text = key.split("/", 2)
        return f"{self._id(f'{namespace}/{name}')}/{self._quota_resource(text)}"

    # -- nodes and pods --------------------------------------------------------------------------------------------

    def _node(self, value: form.Node) -> form.Node:
        return replace(
            value,
            labels=self._labels(value.labels),
            taints=tuple(map(self._taint, value.taints)),
            allocatable={self._qualified(name): amount for name, amount in value.allocatable.items()},
        )

    def _needs(self, value: PodNeeds) -> PodNeeds:
        return replace(
            value,
            requests=tuple((self._qualified(name), amount) for name, amount in value.requests),
            node_selector=tuple(sorted(self._labels(dict(value.node_selector)).items())),
            affinity=self._node_selector(value.affinity),
            preferred=tuple(replace(each, preference=self._term(each.preference)) for each in value.preferred),
            tolerations=tuple(map(self._taint, value.tolerations)),
            volumes=tuple(found for each in value.volumes if (found := self._node_selector(each)) is not None),
            neighbours=None if value.neighbours is None else self._neighbours(value.neighbours),
        )

    def _neighbours(self, value: Neighbours) -> Neighbours:
        return replace(
            value,
            affinity=tuple(map(self._pod_term, value.affinity)),
            anti_affinity=tuple(map(self._pod_term, value.anti_affinity)),
            spread=tuple(map(self._pod_term, value.spread)),
        )

    def _pod_term(self, value: P) -> P:
        pods = value.pods
        renamed = replace(
            pods,
            namespaces=None if pods.namespaces is None else tuple(map(self._names.namespace, pods.namespaces)),
            requirements=tuple(
                replace(each, key=self._qualified(each.key), values=self._each(each.values))
                for each in pods.requirements
            ),
        )
        return replace(value, topology_key=self._qualified(value.topology_key), pods=renamed)

    def _counted(self, value: form.CountedPod) -> form.CountedPod:
        return replace(
            value,
            node=self._names.place(value.node),
            needs=self._needs(value.needs),
            namespace=value.namespace and self._names.namespace(value.namespace),
            labels=self._labels(value.labels),
        )

    # -- claims ----------------------------------------------------------------------------------------------------

    def _allocated(self, value: AllocatedClaim) -> AllocatedClaim:
        devices = tuple(
            replace(each, pool=self._names.place(each.pool), tolerations=tuple(map(self._taint, each.tolerations)))
            for each in value.devices
        )
        return replace(self._named(value), devices=devices)

    def _claim(self, value: ClaimRequest) -> ClaimRequest:
        return replace(
            self._named(value),
            key=self._names.place(value.key),
            spec=self._spec(value.spec),
            allocation=self._allocation(value.allocation),
        )

    # -- gangs and settings ----------------------------------------------------------------------------------------

    def _named(self, value: V) -> V:
        """What has a namespace and a name."""
        found: Any = value
        changed: V = replace(found, namespace=self._names.namespace(found.namespace), name=self._names.name(found.name))
        return changed

    def _pod(self, value: PodRef) -> PodRef:
        return replace(self._named(value), uid=self._names.place(value.uid))

    def _gang(self, value: GangRequest) -> GangRequest:
        return replace(
            self._named(value),
            uid=self._names.place(value.uid),
            members=tuple(
                replace(
                    each,
                    pod=self._pod(each.pod),
                    needs=self._needs(each.needs),
                    claims=self._places(each.claims),
                    labels=self._labels(each.labels),
                    subgroup=self._names.name(each.subgroup) if each.subgroup else "",
                    worker_group=self._worker_group(each.worker_group),
                )
                for each in value.members
            ),
            claims=tuple(map(self._claim, value.claims)),
            queue=self._optional(value.queue),
            namespace_labels=self._labels(value.namespace_labels),
            topology=self._topology(value.topology),
            subgroup_topology=self._topology(value.subgroup_topology),
            align=self._align(value.align),
            placed_nodes=self._places(value.placed_nodes),
            placed_subgroups=tuple(
                (self._names.name(subgroup), self._names.place(node)) for subgroup, node in value.placed_subgroups
            ),
            placed_claims=tuple(
                (self._worker_group(group), self._claim(claim)) for group, claim in value.placed_claims
            ),
            placed_members=tuple(
                replace(
                    each,
                    claims=tuple(map(self._claim, each.claims)),
                    subgroup=self._names.name(each.subgroup) if each.subgroup else "",
                    worker_group=self._worker_group(each.worker_group),
                )
                for each in value.placed_members
            ),
            kept=tuple(replace(each, pool=self._names.place(each.pool)) for each in value.kept),
            avoid=self._places(value.avoid),
            refused=tuple(_refused(each, self._names) for each in value.refused),
            quota_charge=tuple((self._quota_resource(name), amount) for name, amount in value.quota_charge),
            predecessors=tuple(sorted(map(self._id, value.predecessors))),
            hold=_hold(value.hold),
        )

    def _worker_group(self, text: str) -> str:
        return self._names.name(text) if text else ""

    def _topology(self, text: str | None) -> str | None:
        if text is None:
            return None
        return ", ".join(self._level(entry.strip()) for entry in text.split(","))

    def _align(self, text: str | None) -> str | None:
        """Attributes keep their names, as in slices; requests have those of the claims."""
        if text is None:
            return None
        try:
            entries = alignments(text)
        except ValueError:
            return self._names.name(text)
        return ", ".join(str(dataclasses.replace(each, requests=self._each(each.requests))) for each in entries)

    def _level(self, text: str) -> str:
        word, colon, label = text.partition(":")
        return f"{word}{colon}{self._qualified(label.strip())}" if colon else self._names.name(text)

    def _running(self, value: RunningGang) -> RunningGang:
        return replace(
            self._named(value),
            uid=self._names.place(value.uid),
            queue=self._optional(value.queue),
            claims=self._places(value.claims),
            namespace_labels=self._labels(value.namespace_labels),
            members=tuple(
                replace(
                    each,
                    pod=self._pod(each.pod),
                    node=self._names.place(each.node),
                    claims=self._places(each.claims),
                    guarded_by=self._each(each.guarded_by),
                )
                for each in value.members
            ),
            bounds=self._bounds(value.bounds),
            relocation=None if value.relocation is None else self._gang(value.relocation),
            hold=_hold(value.hold),
        )

    def _bounds(self, value: Bounds) -> Bounds:
        changed = {
            name: replace(bound, source=self._names.text(bound.source))
            for name in value.__struct_fields__
            if (bound := getattr(value, name)) is not None
        }
        return replace(value, **changed)

    def _queue(self, value: QueueSpec) -> QueueSpec:
        selector = value.namespace_selector
        return replace(
            value,
            uid=self._names.place(value.uid),
            parent=self._optional(value.parent),
            quotas=tuple(replace(each, flavor=self._names.name(each.flavor)) for each in value.quotas),
            namespace_selector=None if selector is None else self._label_selector(selector),
            bounds=self._bounds(value.bounds),
            past_usage={self._names.name(flavor): part for flavor, part in value.past_usage.items()},
            hold=_hold(value.hold),
        )

    def _flavor(self, value: FlavorSpec) -> FlavorSpec:
        scaling = value.autoscaling
        if scaling is not None:
            scaling = replace(
                scaling,
                device_classes=tuple(map(self._class_name, scaling.device_classes)),
                node_selector=tuple(sorted(self._labels(dict(scaling.node_selector)).items())),
                templates=tuple(map(self._node_template, scaling.templates)),
            )
        return replace(value, device_selector=self._names.literals(value.device_selector), autoscaling=scaling)

    def _node_template(self, value: NodeTemplate) -> NodeTemplate:
        return replace(
            value,
            labels=tuple(sorted(self._labels(dict(value.labels)).items())),
            taints=tuple(map(self._taint, value.taints)),
            allocatable=tuple(sorted((self._qualified(name), amount) for name, amount in value.allocatable)),
        )

    def _quota(self, value: NamespaceQuota) -> NamespaceQuota:
        return replace(self._named(value), resource=self._quota_resource(value.resource))

    def _workload(
        self, value: tuple[Demand, ...] | msgspec.UnsetType | None
    ) -> tuple[Demand, ...] | msgspec.UnsetType | None:
        return value if value is None or isinstance(value, msgspec.UnsetType) else self._demands(value)

    def _demands(self, value: tuple[Demand, ...]) -> tuple[Demand, ...]:
        return tuple(replace(each, spec=self._spec(each.spec), needs=self._needs(each.needs)) for each in value)


def _hold(value: Hold | None) -> Hold | None:
    """No decision depends on which user wrote it, or why."""
    return None if value is None else replace(value, by="", reason="")


def _refused(value: RefusedNode, names: Names) -> RefusedNode:
    """Its `why` is a scheduler's own sentence, with names in it that stand nowhere else; no decision depends on it."""
    return replace(value, node=names.place(value.node), why="")
