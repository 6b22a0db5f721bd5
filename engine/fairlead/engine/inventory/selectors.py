"""CEL selectors over devices of the inventory: three verdicts, each expression evaluated once per different device.

Exists so that class and request selectors are judged in one place, with an error kept apart from a "no": a device whose
selector fails is never allocated, and the reason is told. Compiles nothing itself; that is `fairlead.cel`'s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from fairlead.cel import CompileError, DeviceView, EvaluationError, compile_selector

if TYPE_CHECKING:
    from fairlead.cel import Selector
    from fairlead.engine.inventory.device import Device

VERDICTS_MAX = 200_000  # remembered per expression
_UNKNOWN: Any = object()
# True: selected. False: not. A text: the expression failed on this device, and how.
SelectorResult = bool | str


class Selectors:
    """Compiled selectors, and their verdicts remembered by what they read of a device."""

    def __init__(self) -> None:
        self._compiled: dict[str, Selector | str] = {}
        self._asked: dict[str, tuple[tuple[str, ...], tuple[str, ...]] | None] = {}  # attributes, capacities; None: all
        self._verdicts: dict[str, dict[object, SelectorResult]] = {}

    def problem(self, text: str) -> str | None:
        """Why the expression does not compile; None when it does."""
        found = self._selector(text)
        return found if isinstance(found, str) else None

    def verdict(self, texts: tuple[str, ...], device: Device) -> SelectorResult:
        """All expressions in order; the first that says no or fails decides, as in upstream's allocator."""
        for text in texts:
            verdict = self._one(text, device)
            if verdict is not True:
                return verdict
        return True

    def _one(self, text: str, device: Device) -> SelectorResult:
        verdicts = self._verdicts.get(text)
        if verdicts is None:
            verdicts = self._verdicts[text] = {}
        key = self._key(text, device)
        verdict = verdicts.get(key)
        if verdict is None:
            if len(verdicts) >= VERDICTS_MAX:
                verdicts.clear()
            verdict = verdicts[key] = self._judge(text, device)
        return verdict

    def _key(self, text: str, device: Device) -> object:
        """What the verdict can depend on: equal keys, equal verdicts."""
        asked = self._asked.get(text, _UNKNOWN)
        if asked is _UNKNOWN:
            asked = self._asked[text] = self._reads(text)
        if asked is None or device.form.fallible or device.kind.fallible:
            return (device.kind, device.form, device.values_)
        attributes, capacities = asked
        place, values = device.form.place, device.values_
        read: list[object] = [device.kind.driver, device.shared]
        for name in attributes:
            number = place.get(name)
            read.append(None if number is None else values[number])
        if capacities:
            read.append(device.kind.capacity)
        return tuple(read)

    def _reads(self, text: str) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
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

    def _judge(self, text: str, device: Device) -> SelectorResult:
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
