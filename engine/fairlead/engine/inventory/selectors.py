"""CEL selectors over devices of the inventory: selected, not selected, or an error; evaluated once per distinct device.

Class and request selectors and flavors' selectors are evaluated here. An error is kept apart from a "no": a device whose
selector fails is never allocated, and the error reaches the gang's reason. `fairlead.cel` compiles the expressions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from fairlead.cel import CompileError, DeviceView, EvaluationError, compile_selector

if TYPE_CHECKING:
    from fairlead.cel import Selector
    from fairlead.engine.inventory.device import Device

RESULTS_MAX = 200_000  # remembered per expression
_NOT_KNOWN: Any = object()
# True: selected. False: not. A text: the expression failed on this device, and how.
SelectorResult = bool | str


class Selectors:
    """Compiled selectors, and their results remembered by what they read of a device."""

    def __init__(self) -> None:
        self._compiled: dict[str, Selector | str] = {}
        self._reads: dict[str, tuple[tuple[str, ...], tuple[str, ...]] | None] = {}  # attributes, capacities; None: all
        self._results: dict[str, dict[object, SelectorResult]] = {}

    def problem(self, text: str) -> str | None:
        """Why the expression does not compile; None when it does."""
        found = self._selector(text)
        return found if isinstance(found, str) else None

    def evaluate(self, texts: tuple[str, ...], device: Device) -> SelectorResult:
        """All expressions in order; the first that is false or fails decides, as in upstream's allocator."""
        for text in texts:
            result = self._one(text, device)
            if result is not True:
                return result
        return True

    def _one(self, text: str, device: Device) -> SelectorResult:
        results = self._results.get(text)
        if results is None:
            results = self._results[text] = {}
        key = self._key(text, device)
        result = results.get(key)
        if result is None:
            if len(results) >= RESULTS_MAX:
                results.clear()
            result = results[key] = self._evaluate(text, device)
        return result

    def _key(self, text: str, device: Device) -> object:
        """What the result depends on: equal keys, equal results."""
        reads = self._reads.get(text, _NOT_KNOWN)
        if reads is _NOT_KNOWN:
            reads = self._reads[text] = self._attributes_read(text)
        if reads is None or device.schema.unreadable or device.kind.unreadable:
            return (device.kind, device.schema, device.attribute_values)
        attributes, capacities = reads
        index, values = device.schema.index, device.attribute_values
        read: list[object] = [device.kind.driver, device.shared]
        for name in attributes:
            number = index.get(name)
            read.append(None if number is None else values[number])
        if capacities:
            read.append(device.kind.capacity)
        return tuple(read)

    def _attributes_read(self, text: str) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
        """The qualified names that the expression reads, None when it may read anything."""
        selector = self._selector(text)
        if isinstance(selector, str):
            return (), ()
        attributes: list[str] = []
        capacities: list[str] = []
        for read in sorted(selector.reads):
            if read.field == "attributes" and read.name:
                attributes.append(f"{read.domain}/{read.name}")
            elif read.field == "capacity":
                capacities.append(str(read))
            elif read.field not in {"driver", "allowMultipleAllocations"}:
                return None
        return tuple(attributes), tuple(capacities)

    def _evaluate(self, text: str, device: Device) -> SelectorResult:
        selector = self._selector(text)
        if isinstance(selector, str):
            return selector
        spec = msgspec.structs.replace(device.kind.spec, attributes=device.attributes)
        try:
            return selector.matches(DeviceView.of(device.pool.driver, spec))
        except EvaluationError as error:
            return f"{text}: {error}"

    def _selector(self, text: str) -> Selector | str:
        found = self._compiled.get(text)
        if found is None:
            try:
                found = compile_selector(text)
            except CompileError as error:
                found = str(error)
            self._compiled[text] = found
        return found
