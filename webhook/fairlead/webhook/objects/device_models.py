"""The kinds of devices that the cluster has, and whether a request could ever get one.

Exists so that a request for hardware that nobody has is pointed out when it is written, with the device that comes
nearest, and so that policies can ask what a request may be given. A model is a device without what tells it from its
neighbours (UUID, bus address, index), so a cluster of 100,000 devices is a few dozen models; a selector that reads
those is not judged. Counts no devices and knows no nodes: whether enough are free is the controller's question.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from fairlead.cel import CompileError, DeviceView, Outcome, Selector, compile_selector
from fairlead.cel.asks import Ask, expressions
from fairlead.kube.resource import Device, DeviceClass

IDENTITY = frozenset(
    {"uuid", "parentUUID", "index", "minor", "parentIndex", "parentMinor", "serial", "placementStart", "pciBusID"}
    | {"pcieRoot", "numaNode", "nvlinkDomain", "nvlinkPeers", "nvlinkClique", "gpuUUID", "gpuIndex"}
)
"""Attributes that differ between devices of one kind, whatever their domain."""


@dataclass(frozen=True)
class Model:
    """Devices that differ in nothing but IDENTITY; `example` is one of them, as node or pool and name."""

    key: tuple[object, ...]
    view: DeviceView = field(compare=False)
    example: str = field(compare=False)

    @property
    def whole(self) -> bool:
        """Whether it is no MIG device."""
        return self._attribute("type") != "mig"

    @property
    def label(self) -> str:
        """What people call it: `NVIDIA H100 80GB HBM3`, `1g.10gb of NVIDIA A100-SXM4-80GB`."""
        product, profile = self._attribute("productName"), self._attribute("profile")
        name = str(product or self.view.driver)
        return f"{profile} of {name}" if profile else name

    def has_capacity(self, name: str) -> bool:
        """By name, or by domain and name."""
        domain, _, plain = name.rpartition("/")
        return plain in self.view.capacity.get(domain or self.view.driver, {})

    def _attribute(self, name: str) -> object:
        return self.view.attributes[self.view.driver].get(name)


def models(driver: str, pool: str, devices: Iterable[Device]) -> tuple[Model, ...]:
    """The models among a slice's devices, each once."""
    found: dict[tuple[object, ...], Model] = {}
    for device in devices:
        kept = {name: value for name, value in device.attributes.items() if name.rpartition("/")[2] not in IDENTITY}
        view = DeviceView.of(driver, msgspec.structs.replace(device, attributes=kept))
        key = (driver, *view.layout.positions, *view.keys)
        found.setdefault(key, Model(key, view, f"{pool}/{device.name}"))
    return tuple(found.values())


def candidates(ask: Ask, device_class: DeviceClass | None, known: Sequence[Model]) -> tuple[Model, ...] | None:
    """The models that the request may be given; None where that cannot be said."""
    return _taken(_texts(ask, device_class), known)


def selected(text: str, known: Sequence[Model]) -> tuple[Model, ...] | None:
    """The models that one selector takes; None where that cannot be said."""
    return _taken([text], known)


def _taken(texts: Sequence[str], known: Sequence[Model]) -> tuple[Model, ...] | None:
    selectors = _selectors(texts)
    if selectors is None or not known:
        return None
    return tuple(model for model in known if all(selector.verdict(model.view) for selector in selectors))


def nearest(ask: Ask, device_class: DeviceClass, known: Sequence[Model], drivers: Sequence[str]) -> str | None:
    """Why no model will ever serve the request, with the nearest one; None where one may, or nothing can be said."""
    ours = tuple(model for model in known if model.view.driver in drivers)
    why = _nearest(_texts(ask, device_class), ours)
    return None if why is None else f"no device in the cluster can serve it; {why}"


def selects_nothing(text: str, known: Sequence[Model]) -> str | None:
    """Why a selector takes no model, with the nearest one; None where it takes one, or nothing can be said."""
    why = _nearest([text], known)
    return None if why is None else f"selects no device of the cluster; {why}"


def _nearest(texts: Sequence[str], ours: Sequence[Model]) -> str | None:
    found = _taken(texts, ours)
    if found is None or found:
        return None
    parts = [part for text in texts for part in conjuncts(text)]
    try:
        selectors = [compile_selector(part) for part in parts]
    except CompileError:
        return None
    best = max(ours, key=lambda model: (_passed(selectors, model), model.key.__repr__()))
    failed = [selector for selector in selectors if not selector.verdict(best.view)]
    if not failed:
        return None
    reasons = "; ".join(_why(selector, best) for selector in failed[:3])
    return f"the nearest is {best.label} ({best.example}), which fails {reasons}"


def conjuncts(text: str) -> list[str]:
    """`a && b` as a and b, where nothing outside of brackets and quotes says otherwise; else the text itself."""
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


def _texts(ask: Ask, device_class: DeviceClass | None) -> list[str]:
    return ([] if device_class is None else expressions(device_class.spec.selectors)) + expressions(ask.selectors)


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


def _passed(selectors: Iterable[Selector], model: Model) -> int:
    return sum(selector.verdict(model.view).outcome is Outcome.MATCH for selector in selectors)


def _why(selector: Selector, model: Model) -> str:
    values = list(_values(selector, model))
    shown = f" ({', '.join(values)})" if values else ""
    return f"{' '.join(selector.text.split())}{shown}"


def _values(selector: Selector, model: Model) -> Iterator[str]:
    """What the model has where the selector looks."""
    for read in sorted(selector.reads):
        if not read.name:
            continue
        domains = model.view.attributes if read.field == "attributes" else model.view.capacity
        held = domains.get(read.domain, {})
        yield f"{read.name} is {held[read.name]}" if read.name in held else f"it has no {read.name}"
