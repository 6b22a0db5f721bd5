"""Validation of ResourceSlices, device by device, and of DeviceClasses.

Since 1.35 counters are in slices without devices. 1.34 wants them beside the devices that consume them, in the same slice, where that
gate is on, and limits their numbers per slice (`_beside`).
Source: validateResourceSliceSpec, validateDevice and validateDeviceClassSpec in pkg/apis/resource/validation/validation.go (1.34, 1.36).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from fairlead.kube.quantity import Quantity
from fairlead.sandbox.apiserver.kinds import checks
from fairlead.sandbox.apiserver.kinds.base import Context
from fairlead.sandbox.apiserver.kinds.builtin import BuiltIn
from fairlead.sandbox.apiserver.kinds.errors import (
    FieldError,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
)
from fairlead.sandbox.apiserver.kinds.podvalidation import node_selector
from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.apiserver.kinds.resource import common
from fairlead.sandbox.apiserver.names import label_value_complaints, qualified_name_complaints, subdomain_complaints
from fairlead.sandbox.release import Release

_SEMVER = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?"
    r"(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?",
    re.ASCII,
)
_WHERE = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
_VALUES = ("int", "bool", "string", "version", "ints", "bools", "strings", "versions")
_ALPHA_VALUES = ("ints", "bools", "strings", "versions")
_TRUE_ONLY = "must be either unset or set to true"


class ResourceSliceStrategy(BuiltIn):
    def decode(self, obj: Json) -> list[str]:
        unknown = super().decode(obj)
        if not self.release.has("empty-devices-omitted") and isinstance(obj.get("spec"), dict):
            obj["spec"].setdefault("devices", None)
        return unknown

    def prepare_create(self, obj: Json, context: Context) -> None:
        super().prepare_create(obj, context)
        _complete(obj, context)

    def prepare_update(self, new: Json, old: Json, context: Context) -> None:
        _complete(new, context)

    def validate(self, obj: Json, context: Context) -> Iterator[FieldError]:
        yield from slice_spec(obj["spec"], self.release)

    def validate_change(self, new: Json, old: Json, context: Context) -> Iterator[FieldError]:
        after, before = new["spec"], old["spec"]
        yield from checks.unchanged(after["pool"].get("name"), before["pool"].get("name"), "spec.pool.name")
        yield from checks.unchanged(after.get("driver"), before.get("driver"), "spec.driver")
        yield from checks.unchanged(after.get("nodeName"), before.get("nodeName"), "spec.nodeName")


def _complete(obj: Json, context: Context) -> None:
    """Set the time of new taints; drop fields of a feature gate that is off by default (list attributes)."""
    for device in obj["spec"].get("devices") or []:
        for taint in device.get("taints") or []:
            if not taint.get("timeAdded"):
                taint["timeAdded"] = context.timestamp()
        for attribute in (device.get("attributes") or {}).values():
            for key in _ALPHA_VALUES:
                attribute.pop(key, None)


def slice_spec(spec: Json, release: Release) -> Iterator[FieldError]:
    apart = release.has("counters-apart")
    yield from common.driver_name(spec.get("driver", ""), "spec.driver")
    yield from _pool(spec.get("pool") or {}, "spec.pool")
    given = [f"`{key}`" for key in _WHERE if spec.get(key)]
    listed = ", ".join(f"`{key}`" for key in _WHERE)
    if not given:
        yield required("spec", f"exactly one of {listed} is required")
    elif len(given) > 1:
        shown = f"{{{', '.join(given)}}}"
        yield invalid("spec", shown, f"exactly one of {listed} is required, but multiple fields are set")
    yield from _place(spec, "spec")
    if spec.get("perDeviceNodeSelection") is False:
        yield invalid("spec.perDeviceNodeSelection", False, _TRUE_ONLY)

    devices, counters = spec.get("devices") or [], spec.get("sharedCounters") or []
    if devices and counters and apart:
        yield invalid("spec", "{`sharedCounters`, `devices`}", "only one of `sharedCounters` or `devices` is allowed")
    advanced = apart and any(device.get("taints") or device.get("consumesCounters") for device in devices)
    per_device = bool(spec.get("perDeviceNodeSelection"))
    yield from common.items(
        devices,
        common.ADVANCED_DEVICES if advanced else common.DEVICES,
        lambda device, path: _device(device, path, per_device, release),
        "spec.devices",
        key=common.by_name,
    )
    sets_max = common.COUNTER_SETS if apart else len(counters)
    yield from common.items(counters, sets_max, _counter_set, "spec.sharedCounters", key=common.by_name)
    if not apart:
        yield from beside(devices, counters)


def _pool(pool: Json, path: str) -> Iterator[FieldError]:
    yield from common.pool_name(pool.get("name", ""), f"{path}.name")
    if pool.get("resourceSliceCount", 0) <= 0:
        yield invalid(f"{path}.resourceSliceCount", pool.get("resourceSliceCount", 0), "must be greater than zero")
    if pool.get("generation", 0) < 0:
        yield invalid(f"{path}.generation", pool["generation"], "must be greater than or equal to zero")


def _place(obj: Json, path: str) -> Iterator[FieldError]:
    """Where a slice or a device is: each form that is set must be valid."""
    node = obj.get("nodeName")
    if node == "":
        yield invalid(f"{path}.nodeName", "", "must be either unset or set to a non-empty string")
    elif node is not None:
        yield from checks.each(subdomain_complaints(node), f"{path}.nodeName", node)
    selector = obj.get("nodeSelector")
    if selector is not None:
        yield from node_selector(selector, f"{path}.nodeSelector")
        terms = selector.get("nodeSelectorTerms") or []
        if path == "spec" and len(terms) != 1:
            yield invalid(f"{path}.nodeSelector.nodeSelectorTerms", terms, "must have exactly one node selector term")
    if obj.get("allNodes") is False:
        yield invalid(f"{path}.allNodes", False, _TRUE_ONLY)


def _device(device: Json, path: str, per_device: bool, release: Release) -> Iterator[FieldError]:
    yield from common.dns_label(device.get("name", ""), f"{path}.name")
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    for name, attribute in attributes.items():
        yield from common.qualified_name(name, f"{path}.attributes[{name}]")
        yield from _attribute(attribute, f"{path}.attributes[{name}]", release)
    shared = bool(device.get("allowMultipleAllocations"))
    for name, one in capacity.items():
        yield from common.qualified_name(name, f"{path}.capacity[{name}]")
        yield from _capacity(one, f"{path}.capacity[{name}]", shared)
    total = len(attributes) + len(capacity)
    if total > common.ATTRIBUTES_AND_CAPACITIES:
        yield invalid(
            path,
            total,
            f"the total number of attributes and capacities must not exceed {common.ATTRIBUTES_AND_CAPACITIES}",
        )
    yield from common.items(device.get("taints"), common.TAINTS, _taint, f"{path}.taints")
    yield from common.items(
        device.get("consumesCounters"),
        common.CONSUMPTIONS,
        _consumption,
        f"{path}.consumesCounters",
        key=lambda one: str(one.get("counterSet", "")),
    )
    places = [key for key in _WHERE[:3] if device.get(key) is not None]
    if per_device:
        only = (
            "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to "
            "true in the ResourceSlice spec"
        )
        given = [f"`{key}`" for key in places if device[key]]
        if not given:
            yield required(path, only)
        elif len(given) > 1:
            yield invalid(path, f"{{{', '.join(given)}}}", only)
        yield from _place(device, path)
    elif places:
        yield invalid(
            path,
            None,
            "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the "
            "ResourceSlice spec",
        )
    yield from common.binding_conditions(device, path)


def _attribute(attribute: Json, path: str, release: Release) -> Iterator[FieldError]:
    given = [key for key in _VALUES if attribute.get(key) is not None]
    if not given and not release.has("attribute-union-invalid"):
        yield required(path, "exactly one value must be specified")
    elif len(given) != 1:
        yield invalid(path, attribute if given else "", "exactly one value must be specified")
    if attribute.get("string") is not None and len(attribute["string"].encode()) > common.ATTRIBUTE_VALUE_BYTES:
        yield too_long(f"{path}.string", common.ATTRIBUTE_VALUE_BYTES)
    version = attribute.get("version")
    if version is not None:
        if not _SEMVER.fullmatch(version):
            yield invalid(f"{path}.version", version, "must be a string compatible with semver.org spec 2.0.0")
        if len(version.encode()) > common.ATTRIBUTE_VALUE_BYTES:
            yield too_long(f"{path}.version", common.ATTRIBUTE_VALUE_BYTES)


def _capacity(capacity: Json, path: str, shared: bool) -> Iterator[FieldError]:
    policy = capacity.get("requestPolicy")
    if policy is None:
        return
    here = f"{path}.requestPolicy"
    if not shared:
        yield forbidden(here, "allowMultipleAllocations must be true")
        return
    maximum = Quantity.parse(capacity.get("value", "0"))
    values, span, default = policy.get("validValues") or [], policy.get("validRange"), policy.get("default")
    if values and span is not None:
        yield forbidden(
            here, "exactly one policy can be specified, cannot specify `validValues` and `validRange` at the same time"
        )
    if (values or span is not None) and default is None:
        yield required(f"{here}.default", "required when `validValues` or `validRange` is defined")
    if values:
        yield from _valid_values(values, default, maximum, here)
    if span is not None:
        yield from _valid_range(span, default, maximum, here)
    if default is not None and Quantity.parse(default) > maximum:
        yield invalid(f"{here}.default", default, f"default is larger than capacity: {maximum}")


def _valid_values(values: list[str], default: str | None, maximum: Quantity, path: str) -> Iterator[FieldError]:
    if len(values) > common.VALID_VALUES:
        yield too_many(f"{path}.validValues", len(values), common.VALID_VALUES)
    amounts = [Quantity.parse(one) for one in values]
    for index, amount in enumerate(amounts):
        if index and amount <= amounts[index - 1]:
            yield invalid(f"{path}.validValues[{index}]", values[index], "values must be sorted in ascending order")
        if amount > maximum:
            yield invalid(f"{path}.validValues[{index}]", values[index], f"option is larger than capacity: {maximum}")
    if default is not None and Quantity.parse(default) not in amounts:
        yield invalid(f"{path}.validValues", default, "default value is not valid according to the requestPolicy")


def _valid_range(span: Json, default: str | None, maximum: Quantity, path: str) -> Iterator[FieldError]:
    here = f"{path}.validRange"
    if span.get("min") is None:
        yield required(f"{here}.min")
        return
    low = Quantity.parse(span["min"])
    high = Quantity.parse(span["max"]) if span.get("max") is not None else None
    if low > maximum:
        yield invalid(f"{here}.min", span["min"], f"min is larger than capacity value: {maximum}")
    if high is not None and high < low:
        yield invalid(f"{here}.max", span["max"], f"max is smaller than min: {low}")
    if high is not None and high > maximum:
        yield invalid(f"{here}.max", span["max"], f"max is larger than capacity value: {maximum}")
    if default is not None:
        amount = Quantity.parse(default)
        if amount < low or (high is not None and amount > high):
            yield invalid(f"{path}.default", default, "default value is not valid according to the requestPolicy")
    if span.get("step") is not None and Quantity.parse(span["step"]) <= Quantity(0):
        yield invalid(f"{here}.step", span["step"], "must be greater than zero")


def _taint(taint: Json, path: str) -> Iterator[FieldError]:
    key, effect = taint.get("key", ""), taint.get("effect", "")
    yield from checks.each(qualified_name_complaints(key), f"{path}.key", key)
    if taint.get("value"):
        yield from checks.each(label_value_complaints(taint["value"]), f"{path}.value", taint["value"])
    if not effect:
        yield required(f"{path}.effect")
    elif effect not in {"None", "NoSchedule", "NoExecute"}:
        yield not_supported(f"{path}.effect", effect, ("NoExecute", "NoSchedule", "None"))


def _counters(counters: Json | None, path: str) -> Iterator[FieldError]:
    if not counters:
        yield required(path)
        return
    if len(counters) > common.COUNTERS:
        yield too_many(path, len(counters), common.COUNTERS)
    for name in counters:
        yield from common.dns_label(name, f"{path}[{name}]")


def _counter_set(one: Json, path: str) -> Iterator[FieldError]:
    yield from checks.label_name(one.get("name", ""), f"{path}.name")
    yield from _counters(one.get("counters"), f"{path}.counters")


def _consumption(one: Json, path: str) -> Iterator[FieldError]:
    yield from checks.label_name(one.get("counterSet", ""), f"{path}.counterSet")
    yield from _counters(one.get("counters"), f"{path}.counters")


class DeviceClassStrategy(BuiltIn):
    def validate(self, obj: Json, context: Context) -> Iterator[FieldError]:
        spec = obj.get("spec") or {}
        yield from common.selectors(spec.get("selectors"), "spec.selectors", self.release.cel.new_device)
        yield from common.items(spec.get("config"), common.CONFIGS, common.configuration, "spec.config")
        name = spec.get("extendedResourceName")
        if name is not None and not (checks.is_extended(name) and not qualified_name_complaints(name)):
            yield invalid("spec.extendedResourceName", name, "must be a valid extended resource name")


SHARED_MAX: Final = 32
DEVICE_MAX: Final = 32
DEVICES_MAX: Final = 1024


def beside(devices: list[Json], counters: list[Json]) -> Iterator[FieldError]:
    known = {one.get("name", ""): set(one.get("counters") or {}) for one in counters}
    consumed = 0
    for index, device in enumerate(devices):
        path, own = f"spec.devices[{index}]", 0
        for place, one in enumerate(device.get("consumesCounters") or []):
            own += len(one.get("counters") or {})
            yield from _reference(one, f"{path}.consumesCounters[{place}]", known)
        if own > DEVICE_MAX:
            yield invalid(path, own, f"the total number of counters must not exceed {DEVICE_MAX}")
        consumed += own
    if consumed > DEVICES_MAX:
        message = f"the total number of counters in devices must not exceed {DEVICES_MAX}"
        yield invalid("spec.devices", consumed, message)
    shared = sum(map(len, known.values()))
    if shared > SHARED_MAX:
        message = f"the total number of shared counters must not exceed {SHARED_MAX}"
        yield invalid("spec.sharedCounters", shared, message)


def _reference(one: Json, path: str, known: dict[str, set[str]]) -> Iterator[FieldError]:
    name = one.get("counterSet", "")
    if name not in known:
        message = "must reference a counterSet defined in the ResourceSlice sharedCounters"
        yield invalid(f"{path}.counterSet", name, message)
        return
    for counter in one.get("counters") or {}:
        if counter not in known[name]:
            message = "must reference a counter defined in the ResourceSlice sharedCounters"
            yield invalid(f"{path}.counters", counter, message)
