"""Kubernetes' own objects with every name passed to `Names`: slices, classes, taints, selectors, claims and their allocations."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

from msgspec.structs import replace

from fairlead.history.recording.names import Names, of_known_domain, public
from fairlead.kube import core, resource
from fairlead.kube.objects import LabelSelector, LabelSelectorRequirement

V = TypeVar("V")
E = TypeVar("E", core.NodeSelectorRequirement, LabelSelectorRequirement)
T = TypeVar("T", core.Taint, core.Toleration, resource.DeviceTaint, resource.DeviceToleration)
IDENTIFYING = re.compile(
    r"uuid|serial|clique", re.IGNORECASE
)  # attributes whose values are one device's or one fabric's
IMPLICIT = "deviceclass.resource.kubernetes.io"  # domain of the resources that Kubernetes names after classes
PLAIN_FIELDS = frozenset({"apiVersion", "kind", "strategy"})  # of opaque parameters


class RenamingObjects:
    """The base of `Renaming`."""

    def __init__(self, names: Names) -> None:
        self._names = names

    # -- keys ------------------------------------------------------------------------------------------------------

    def _qualified(self, key: str) -> str:
        """A label key or a resource."""
        domain, slash, name = key.partition("/")
        if domain.endswith(IMPLICIT):
            return f"{domain}{slash}{self._class_name(name)}"
        return key if public(key) else self._names.name(key)

    def _class_name(self, name: str) -> str:
        """The name of a DeviceClass, which its owner chose: even a plain word says something, but for the classes that drivers bring."""
        return name if of_known_domain(name) else self._names.name(name)

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
            binding_conditions=tuple(map(self._qualified, value.binding_conditions)),
            binding_failure_conditions=tuple(map(self._qualified, value.binding_failure_conditions)),
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
                else self._class_name(selector.device_class_name),
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

    def _taint(self, value: T) -> T:
        """A taint or a toleration, renamed."""
        return replace(value, key=self._qualified(value.key), value=self._names.name(value.value))

    def _node_selector(self, value: core.NodeSelector | None) -> core.NodeSelector | None:
        if value is None:
            return None
        return replace(value, node_selector_terms=tuple(map(self._term, value.node_selector_terms)))

    def _expression(self, value: E) -> E:
        """An expression of a selector of nodes or of labels, renamed."""
        return replace(value, key=self._qualified(value.key), values=self._each(value.values))

    def _term(self, value: core.NodeSelectorTerm) -> core.NodeSelectorTerm:
        return replace(
            value,
            match_expressions=tuple(map(self._expression, value.match_expressions)),
            match_fields=tuple(replace(each, values=self._places(each.values)) for each in value.match_fields),
        )

    def _label_selector(self, value: LabelSelector) -> LabelSelector:
        return replace(
            value,
            match_labels=self._labels(value.match_labels),
            match_expressions=tuple(map(self._expression, value.match_expressions)),
        )

    # -- claims ----------------------------------------------------------------------------------------------------

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
            device_class_name=self._class_name(found.device_class_name),
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
                binding_conditions=tuple(map(self._qualified, each.binding_conditions)),
                binding_failure_conditions=tuple(map(self._qualified, each.binding_failure_conditions)),
                share_id=None if each.share_id is None else self._names.place(each.share_id),
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
