"""Device models: the kinds of devices that the cluster has, and whether a request could ever get one.

A model is a device without what identifies it (IDENTITY: UUID, bus address, index), so a cluster of 100,000
devices has a few dozen models. With them a request for hardware that the cluster lacks is reported when it is written, with the
nearest model, and policies see which devices a request may get. A selector that reads IDENTITY is not judged. Counts no devices
and has no nodes: whether enough are free is the controller's question.

Example: `productName == "H200" && memory >= 80Gi`, shortened, selects nothing in a cluster of H100s and A100s with 40 GB. The
nearest model is the one that passes most of the conjuncts, here the H100; the message lists those that it fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from fairlead.api.drivers import attributes_of, first_of
from fairlead.cel import CompileError, DeviceView, Outcome, Selector, compile_selector
from fairlead.cel.devices.requests import Request, expressions
from fairlead.cel.devices.selector import tokens_of
from fairlead.kube.resource import Device, DeviceClass

IDENTITY = frozenset(
    {"uuid", "parentUUID", "index", "minor", "parentIndex", "parentMinor", "serial", "placementStart", "pciBusID"}
    | {"pcieRoot", "numaNode", "nvlinkDomain", "nvlinkPeers", "nvlinkClique", "gpuUUID", "gpuIndex"}
    | {"gpuModuleID", "partition1", "partition2", "partition4", "partition8"}  # gpu.nvidia.com
    | {"pciAddr", "parentPciAddr", "deviceID", "parentDeviceID", "cardIndex", "renderIndex"}  # gpu.amd.com
    | {"pciAddress", "pciRoot", "health"}  # gpu.intel.com
)
"""Attributes that differ between devices of one kind, whatever their domain."""


PARTS_MAX = 32
PARTS_TOKENS_MAX = 300
"""Of selectors whose parts are compiled one by one, to say which of them fails."""


@dataclass(frozen=True)
class DeviceModel:
    """Devices that differ only in IDENTITY; `example` is one of them, as `<node or pool>/<name>`."""

    key: tuple[object, ...]
    view: DeviceView = field(compare=False)
    example: str = field(compare=False)

    @property
    def whole_gpu(self) -> bool:
        """Whether it is a whole GPU and not a MIG device or another part of one."""
        known = attributes_of(self.view.driver)
        return not (known.kind and known.is_part(self._attribute(known.kind)))

    @property
    def label(self) -> str:
        """The name for messages: `NVIDIA H100 80GB HBM3`, `1g.10gb of NVIDIA A100-SXM4-80GB`."""
        known = attributes_of(self.view.driver)
        name = str(first_of(known, known.product, self._attribute) or self.view.driver)
        profile = self._attribute(known.profile) if known.profile and not self.whole_gpu else None
        return f"{profile} of {name}" if profile else name

    def has_capacity(self, name: str) -> bool:
        """Whether there is one of this name, or domain and name."""
        domain, _, plain = name.rpartition("/")
        return plain in self.view.capacity.get(domain or self.view.driver, {})

    def _attribute(self, name: str) -> object:
        """The attribute of this name, or domain and name."""
        domain, _, plain = name.rpartition("/")
        return self.view.attributes.get(domain or self.view.driver, {}).get(plain)


def device_models(driver: str, pool: str, devices: Iterable[Device]) -> tuple[DeviceModel, ...]:
    """The models among a slice's devices, each once."""
    found: dict[tuple[object, ...], DeviceModel] = {}
    for device in devices:
        kept = {name: value for name, value in device.attributes.items() if name.rpartition("/")[2] not in IDENTITY}
        view = DeviceView.of(driver, msgspec.structs.replace(device, attributes=kept))
        key = (driver, *view.layout.positions, *view.keys)
        found.setdefault(key, DeviceModel(key, view, f"{pool}/{device.name}"))
    return tuple(found.values())


def candidates(
    request: Request, device_class: DeviceClass | None, known: Sequence[DeviceModel]
) -> tuple[DeviceModel, ...] | None:
    """The models that the request may get; None where that is not known."""
    return _matching(_expressions(request, device_class), known)


def selected(text: str, known: Sequence[DeviceModel]) -> tuple[DeviceModel, ...] | None:
    """The models that one selector matches; None where that is not known."""
    return _matching([text], known)


def _matching(texts: Sequence[str], known: Sequence[DeviceModel]) -> tuple[DeviceModel, ...] | None:
    selectors = _selectors(texts)
    if selectors is None or not known:
        return None
    return tuple(model for model in known if all(selector.verdict(model.view) for selector in selectors))


def unservable_reason(
    request: Request, device_class: DeviceClass, known: Sequence[DeviceModel], drivers: Sequence[str]
) -> str | None:
    """Why no model can serve the request, with the nearest model; None where one may, or where that is not known."""
    managed = tuple(model for model in known if model.view.driver in drivers)
    reason = _nearest_miss(_expressions(request, device_class), managed)
    return None if reason is None else f"no device in the cluster can serve it; {reason}"


def no_match_reason(text: str, known: Sequence[DeviceModel]) -> str | None:
    """Why a selector matches no model, with the nearest model; None where it matches one, or where that is not known."""
    reason = _nearest_miss([text], known)
    return None if reason is None else f"selects no device of the cluster; {reason}"


def _nearest_miss(texts: Sequence[str], known: Sequence[DeviceModel]) -> str | None:
    found = _matching(texts, known)
    if found is None or found:
        return None
    parts = [part for text in texts for part in conjuncts(text)]
    if len(parts) > PARTS_MAX or sum(map(tokens_of, texts)) > PARTS_TOKENS_MAX:
        return "its selectors are too long to say which part fails"
    try:
        selectors = [compile_selector(part) for part in parts]
    except CompileError:
        return None
    best = max(known, key=lambda model: (_passed(selectors, model), model.key.__repr__()))
    failed = [selector for selector in selectors if not selector.verdict(best.view)]
    if not failed:
        return None
    reasons = "; ".join(_failure(selector, best) for selector in failed[:3])
    return f"the nearest is {best.label} ({best.example}), which fails {reasons}"


def conjuncts(text: str) -> list[str]:
    """`a && b` as [a, b]; the whole text where an operator of lower precedence stands outside brackets and quotes."""
    depth, quote, start, parts, index = 0, "", 0, [], 0
    while index < len(text):
        char = text[index]
        if quote:
            if char == "\\":
                index += 1
            elif char == quote:
                quote = ""
        elif char in "'\"":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif depth == 0 and text.startswith("&&", index):
            parts.append(text[start:index].strip())
            start = index + 2
            index += 1
        elif depth == 0 and (text.startswith("||", index) or char == "?"):
            return [text]
        index += 1
    return [*parts, text[start:].strip()]


def _expressions(request: Request, device_class: DeviceClass | None) -> list[str]:
    return ([] if device_class is None else expressions(device_class.spec.selectors)) + expressions(request.selectors)


def _selectors(texts: Iterable[str]) -> list[Selector] | None:
    try:
        selectors = [compile_selector(text) for text in texts]
    except CompileError:
        return None
    for selector in selectors:
        for read in selector.reads:
            if read.name in IDENTITY or (read.field in {"", "attributes"} and not read.name):
                return None
    return selectors


def _passed(selectors: Iterable[Selector], model: DeviceModel) -> int:
    return sum(selector.verdict(model.view).outcome is Outcome.MATCH for selector in selectors)


def _failure(selector: Selector, model: DeviceModel) -> str:
    values = list(_model_values(selector, model))
    shown = f" ({', '.join(values)})" if values else ""
    return f"{' '.join(selector.text.split())}{shown}"


def _model_values(selector: Selector, model: DeviceModel) -> Iterator[str]:
    """What the model has in the fields that the selector reads."""
    for read in sorted(selector.reads):
        if not read.name:
            continue
        domains = model.view.attributes if read.field == "attributes" else model.view.capacity
        held = domains.get(read.domain, {})
        yield f"{read.name} is {held[read.name]}" if read.name in held else f"it has no {read.name}"
