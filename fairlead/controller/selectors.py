"""CEL selectors over devices of the inventory: three verdicts, each expression evaluated once per different device.

Exists so that class and request selectors are judged in one place, with an error kept apart from a "no": a device whose
selector fails is never allocated, and the reason is told. Compiles nothing itself; that is `fairlead.cel`'s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.cel import CompileError, DeviceView, EvaluationError, compile_selector

if TYPE_CHECKING:
    from fairlead.cel import Selector
    from fairlead.controller.inventory import Device

# True: selected. False: not. A text: the expression failed on this device, and how.
Verdict = bool | str


class Selectors:
    """Compiled selectors, and their verdicts remembered by what they read of a device."""

    def __init__(self) -> None:
        self._compiled: dict[str, Selector | str] = {}

    def problem(self, text: str) -> str | None:
        """Why the expression does not compile; None when it does."""
        found = self._selector(text)
        return found if isinstance(found, str) else None

    def verdict(self, texts: tuple[str, ...], device: Device) -> Verdict:
        """All expressions in order; the first that says no or fails decides, as in upstream's allocator."""
        for text in texts:
            verdict = self._one(text, device)
            if verdict is not True:
                return verdict
        return True

    def _one(self, text: str, device: Device) -> Verdict:
        selector = self._selector(text)
        if isinstance(selector, str):
            return selector
        view = device.view
        if view is None:
            view = device.view = DeviceView.of(device.pool.driver, device.spec)
        try:
            return selector.matches(view)
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
