"""One traversal of facts that passes every name to `Names` and puts together what it returns: to collect them, and to replace them.

Kept are devices' names, attributes' and capacities' names, drivers, quantities, counters, times, priorities, and what belongs to
Kubernetes, Fairlead or NVIDIA (`names.public`): the structure that decisions depend on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from fairlead.engine.types.neighbours import AffinityTerm, Neighbours, SpreadTerm
from fairlead.history.facts import form
from fairlead.history.recording.names import Names, public
from fairlead.kube import core, resource
from fairlead.kube.objects import LabelSelector

V = TypeVar("V")
P = TypeVar("P", AffinityTerm, SpreadTerm)
T = TypeVar("T", core.Taint, core.Toleration, resource.DeviceTaint, resource.DeviceToleration)
IDENTIFYING = re.compile(
    r"uuid|serial|clique", re.IGNORECASE
)  # attributes whose values are one device's or one fabric's
CLASS_QUOTA = ".deviceclass.resource.k8s.io/devices"
PLAIN_FIELDS = frozenset({"apiVersion", "kind", "strategy"})  # of opaque parameters


class Renaming:
    def __init__(self, names: Names) -> None:
        self._names = names

    def facts(self, facts: form.Facts) -> form.Facts:
        names = self._names
        keys: dict[str, Callable[[str], str]] = {
            "slices": names.name, "taint_rules": names.name, "classes": self._qualified, "claims": names.place,
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
        return replace(facts, **tables, order=order, workload=self._workload(facts.workload), mix=mix)

    # -- keys ------------------------------------------------------------------------------------------------------

    def _id(self, key: str) -> str:
        namespace, _, name = key.partition("/")
        return f"{self._names.namespace(namespace)}/{self._names.name(name)}"

    def _qualified(self, key: str) -> str:
        """A label key, a resource, a class."""
        return key if public(key) else self._names.name(key)

    def _quota_resource(self, text: str) -> str:
        if text.endswith(CLASS_QUOTA):
            return self._qualified(text.removesuffix(CLASS_QUOTA)) + CLASS_QUOTA
        return self._qualified(text)

    def _quota_key(self, key: str) -> str:
        namespace, name, text = key.split("/", 2)
        return f"{self._id(f'{namespace}/{name}')}/{self._quota_resource(text)}"

    def _labels(self, labels: Mapping[str, str]) -> dict[str, str]:
        return {self._qualified(key): self._names.name(value) for key, value in labels.items()}

    def _optional(self, name: str | None) -> str | None:
        return None if name is None else self._names.name(name)

    def _each(self, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(self._names.name, names))

    def _places(self, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(self._names.place, names))

    # -- devices and nodes -----------------------------------------------------------------------------------------

    def _slice(self, value: resource.ResourceSliceSpec) -> resource.ResourceSliceSpec:
        return replace(
            value,
            pool=replace(value.pool, name=self._names.place(value.pool.name)),
            node_name=None if value.node_name is None else self._names.place(value.node_name),
            node_selector=self._node_selector(value.node_selector),
            devices=tuple(map(self._device, value.devices)),
        )

    def _device(self, value: resource.Device) -> resource.Device:
        return replace(
            value,
            attributes={name: self._attribute(name, each) for name, each in value.attributes.items()},
            node_name=None if value.node_name is None else self._names.place(value.node_name),
            node_selector=self._node_selector(value.node_selector),
            taints=tuple(map(self._taint, value.taints)),
        )

    def _attribute(self, name: str, value: resource.DeviceAttribute) -> resource.DeviceAttribute:
        named = self._names.place if IDENTIFYING.search(name.rpartition("/")[2]) else self._names.value
        if value.string is not None:
            return replace(value, string=named(value.string))
        if value.strings is not None:
            return replace(value, strings=tuple(map(named, value.strings)))
        return value

    def _rule(self, value: resource.DeviceTaintRuleSpec) -> resource.DeviceTaintRuleSpec:
        selector = value.device_selector
        if selector is not None:
            selector = replace(
                selector,
                device_class_name=None
                if selector.device_class_name is None
                else self._qualified(selector.device_class_name),
                selectors=self._selectors(selector.selectors),
                pool=None if selector.pool is None else self._names.place(selector.pool),
            )
        return replace(value, device_selector=selector, taint=self._taint(value.taint))

    def _class(self, value: resource.DeviceClassSpec) -> resource.DeviceClassSpec:
        extended = value.extended_resource_name
        return replace(
            value,
            selectors=self._selectors(value.selectors),
            config=tuple(replace(each, opaque=self._opaque(each.opaque)) for each in value.config),
            extended_resource_name=None if extended is None else self._qualified(extended),
        )

    def _node(self, value: form.Node) -> form.Node:
        return replace(
            value,
            labels=self._labels(value.labels),
            taints=tuple(map(self._taint, value.taints)),
            allocatable={self._qualified(name): amount for name, amount in value.allocatable.items()},
        )

    def _taint(self, value: T) -> T:
        """Of a taint or a toleration."""
        return replace(value, key=self._qualified(value.key), value=self._names.name(value.value))

    def _node_selector(self, value: core.NodeSelector | None) -> core.NodeSelector | None:
        if value is None:
            return None
        return replace(value, node_selector_terms=tuple(map(self._term, value.node_selector_terms)))

    def _term(self, value: core.NodeSelectorTerm) -> core.NodeSelectorTerm:
        return replace(
            value,
            match_expressions=tuple(
                replace(each, key=self._qualified(each.key), values=self._each(each.values))
                for each in value.match_expressions
            ),
            match_fields=tuple(replace(each, values=self._places(each.values)) for each in value.match_fields),
        )

    def _needs(self, value: form.Needs) -> form.Needs:
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

    def _allocated(self, value: form.AllocatedClaim) -> form.AllocatedClaim:
        devices = tuple(
            replace(each, pool=self._names.place(each.pool), tolerations=tuple(map(self._taint, each.tolerations)))
            for each in value.devices
        )
        return replace(self._named(value), devices=devices)

    def _claim(self, value: form.Claim) -> form.Claim:
        return replace(
            self._named(value),
            key=self._names.place(value.key),
            spec=self._spec(value.spec),
            allocation=self._allocation(value.allocation),
        )

    def _spec(self, value: resource.ResourceClaimSpec) -> resource.ResourceClaimSpec:
        devices = value.devices
        return replace(
            value,
            devices=replace(
                devices,
                requests=tuple(map(self._request, devices.requests)),
                constraints=tuple(replace(each, requests=self._each(each.requests)) for each in devices.constraints),
                config=tuple(
                    replace(each, requests=self._each(each.requests), opaque=self._opaque(each.opaque))
                    for each in devices.config
                ),
            ),
        )

    def _request(self, value: resource.DeviceRequest) -> resource.DeviceRequest:
        exactly = value.exactly
        return replace(
            value,
            name=self._names.name(value.name),
            exactly=None if exactly is None else self._wanted(exactly),
            first_available=tuple(
                replace(self._wanted(each), name=self._names.name(each.name)) for each in value.first_available
            ),
        )

    def _wanted(self, value: V) -> V:
        """An ExactDeviceRequest or a DeviceSubRequest."""
        found: Any = value
        changed: V = replace(
            found,
            device_class_name=self._qualified(found.device_class_name),
            selectors=self._selectors(found.selectors),
            tolerations=tuple(map(self._taint, found.tolerations)),
        )
        return changed

    def _selectors(self, values: tuple[resource.DeviceSelector, ...]) -> tuple[resource.DeviceSelector, ...]:
        return tuple(
            each
            if each.cel is None
            else replace(each, cel=replace(each.cel, expression=self._names.literals(each.cel.expression)))
            for each in values
        )

    def _opaque(self, value: resource.OpaqueDeviceConfiguration | None) -> resource.OpaqueDeviceConfiguration | None:
        return None if value is None else replace(value, parameters=self._parameters(value.parameters))

    def _parameters(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: each if key in PLAIN_FIELDS else self._parameters(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self._parameters(each) for each in value]
        return self._names.name(value) if isinstance(value, str) else value

    def _allocation(self, value: resource.AllocationResult | None) -> resource.AllocationResult | None:
        if value is None:
            return None
        devices = value.devices
        results = tuple(
            replace(
                each,
                request=self._names.name(each.request),
                pool=self._names.place(each.pool),
                tolerations=tuple(map(self._taint, each.tolerations)),
            )
            for each in devices.results
        )
        config = tuple(
            replace(each, requests=self._each(each.requests), opaque=self._opaque(each.opaque))
            for each in devices.config
        )
        return replace(
            value,
            devices=replace(devices, results=results, config=config),
            node_selector=self._node_selector(value.node_selector),
        )

    # -- gangs and settings ----------------------------------------------------------------------------------------

    def _named(self, value: V) -> V:
        """What has a namespace and a name."""
        found: Any = value
        changed: V = replace(found, namespace=self._names.namespace(found.namespace), name=self._names.name(found.name))
        return changed

    def _pod(self, value: form.Pod) -> form.Pod:
        return replace(self._named(value), uid=self._names.place(value.uid))

    def _gang(self, value: form.Gang) -> form.Gang:
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
                )
                for each in value.members
            ),
            claims=tuple(map(self._claim, value.claims)),
            queue=self._optional(value.queue),
            namespace_labels=self._labels(value.namespace_labels),
            topology=self._topology(value.topology),
            subgroup_topology=self._topology(value.subgroup_topology),
            placed_nodes=self._places(value.placed_nodes),
            placed_subgroups=tuple(
                (self._names.name(subgroup), self._names.place(node)) for subgroup, node in value.placed_subgroups
            ),
            kept=tuple(replace(each, pool=self._names.place(each.pool)) for each in value.kept),
            avoid=self._places(value.avoid),
            refused=tuple(
                replace(each, node=self._names.place(each.node), why=self._names.text(each.why))
                for each in value.refused
            ),
            quota_charge=tuple((self._quota_resource(name), amount) for name, amount in value.quota_charge),
            hold=_hold(value.hold),
        )

    def _topology(self, text: str | None) -> str | None:
        if text is None:
            return None
        return ", ".join(self._level(entry.strip()) for entry in text.split(","))

    def _level(self, text: str) -> str:
        word, colon, label = text.partition(":")
        return f"{word}{colon}{self._qualified(label.strip())}" if colon else self._names.name(text)

    def _running(self, value: form.RunningGang) -> form.RunningGang:
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

    def _bounds(self, value: form.Bounds) -> form.Bounds:
        changed = {
            name: replace(bound, source=self._names.text(bound.source))
            for name in value.__struct_fields__
            if (bound := getattr(value, name)) is not None
        }
        return replace(value, **changed)

    def _queue(self, value: form.Queue) -> form.Queue:
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

    def _label_selector(self, value: LabelSelector) -> LabelSelector:
        return replace(
            value,
            match_labels=self._labels(value.match_labels),
            match_expressions=tuple(
                replace(each, key=self._qualified(each.key), values=self._each(each.values))
                for each in value.match_expressions
            ),
        )

    def _flavor(self, value: form.Flavor) -> form.Flavor:
        scaling = value.autoscaling
        if scaling is not None:
            scaling = replace(scaling, device_classes=tuple(map(self._qualified, scaling.device_classes)))
        return replace(value, device_selector=self._names.literals(value.device_selector), autoscaling=scaling)

    def _quota(self, value: form.Quota) -> form.Quota:
        return replace(self._named(value), resource=self._quota_resource(value.resource))

    def _workload(
        self, value: tuple[form.Demand, ...] | msgspec.UnsetType | None
    ) -> tuple[form.Demand, ...] | msgspec.UnsetType | None:
        return value if value is None or isinstance(value, msgspec.UnsetType) else self._demands(value)

    def _demands(self, value: tuple[form.Demand, ...]) -> tuple[form.Demand, ...]:
        return tuple(replace(each, spec=self._spec(each.spec), needs=self._needs(each.needs)) for each in value)


def _hold(value: form.Hold | None) -> form.Hold | None:
    """No decision depends on which user wrote it, or why."""
    return None if value is None else replace(value, by="", reason="")
