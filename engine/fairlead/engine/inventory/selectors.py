"""CEL selectors over devices of the inventory: selected, not selected, or an error; evaluated once per distinct device.

Class and request selectors and flavors' selectors are evaluated here. An error is kept apart from a "no": a device whose
selector fails is never allocated, and the error reaches the gang's reason. `fairlead.cel` compiles the expressions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

import msgspec

from fairlead.cel import CompileError, DeviceView, EvaluationError, Selector, compile_selector
from fairlead.cel.devices.selector import BYTES_PER_TOKEN
from fairlead.engine.inventory.device import Device
from fairlead.engine.inventory.layouts import Columns, NodeLayout, Values
from fairlead.engine.inventory.pool import NodeDevices

RESULTS_MAX = 200_000  # remembered per expression
BYTES_MAX = 128 * 2**20
"""Bytes of programs and results, by estimate. Expressions beyond it are compiled again, which changes no result."""
UNUSED_MAX = 64  # decisions
CHECKED_EVERY = 8  # decisions
RESULT_BYTES = 200
SELECTION_BYTES_MAX = 32 * 2**20  # of what is remembered of nodes, by estimate: then it is begun anew
ENTRY_BYTES = 400
POSITION_BYTES = 80
COST_ONE = 8  # estimated cost of a selector that weighs as one evaluation
LENGTH_ONE = 64  # characters, likewise: it is compiled
# True: selected. False: not. A text: the expression failed on this device, and how.
SelectorResult = bool | str


@dataclass(slots=True)
class _Known:
    """What is remembered of one expression; `results` by what they depend on."""

    selector: Selector | str
    reads: tuple[tuple[str, ...], tuple[str, ...]] | None  # attributes, capacities; None: all
    used: int
    results: dict[object, SelectorResult] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        program = len(self.selector) if isinstance(self.selector, str) else self.selector.tokens * BYTES_PER_TOKEN
        return program + RESULT_BYTES * len(self.results)


class Selection(NamedTuple):
    """What selectors say of a node's devices, in stages: a device is looked at by a stage if those before it select it."""

    noted: tuple[tuple[int, str | None], ...]  # position of each that all select (None), or on which one fails, and how
    rejected: tuple[int, ...]  # by stage, how many it does not select


class _Selections:
    """Of nodes of one layout, by one list of stages. `columns`: of what they depend; None: of anything."""

    def __init__(self, columns: Columns | None) -> None:
        self.columns = columns
        self.known: dict[Values, Selection] = {}


Stages = tuple[tuple[str, ...], ...]


class Selectors:
    """Compiled selectors, and their results remembered by what they read of a device. `begin` before each decision."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self._selections: dict[tuple[NodeLayout, Stages], _Selections] = {}
        self._selection_bytes = 0  # by estimate
        self._decision = 0

    def begin(self) -> None:
        """Drops what no decision of late has used, and of the rest the longest unused, until BYTES_MAX holds."""
        self._decision += 1
        if self._decision % CHECKED_EVERY:
            return
        oldest = self._decision - UNUSED_MAX
        for text in [text for text, known in self._known.items() if known.used < oldest]:
            del self._known[text]
        total = self.size_bytes
        if total <= BYTES_MAX:
            return
        for text, known in sorted(self._known.items(), key=lambda item: (item[1].used, -item[1].size_bytes, item[0])):
            total -= known.size_bytes
            del self._known[text]
            if total <= BYTES_MAX // 2:
                return

    @property
    def size_bytes(self) -> int:
        """An estimate of what is remembered."""
        return sum(known.size_bytes for known in self._known.values())

    def problem(self, text: str) -> str | None:
        """Why the expression does not compile; None when it does."""
        found = self._of(text).selector
        return found if isinstance(found, str) else None

    def evaluate(self, texts: tuple[str, ...], device: Device) -> SelectorResult:
        """All expressions in order; the first that is false or fails decides, as in upstream's allocator."""
        for text in texts:
            result = self._one(text, device)
            if result is not True:
                return result
        return True

    def select(self, stages: Stages, node: NodeDevices) -> Selection:
        """What `evaluate` says of each device; remembered for all nodes of this layout that have the same values where it reads."""
        texts = list(chain(*stages))
        alike = self._selections.get((node.layout, stages))
        if alike is None:
            self._make_room(ENTRY_BYTES + sum(map(len, texts)))
            alike = self._selections[node.layout, stages] = _Selections(self._columns(texts, node.layout))
        if alike.columns is None:
            return self._select(stages, node.devices)
        for text in texts:
            self._of(text)  # it is in use
        values = tuple([node.values[run][index] for run, index in alike.columns])
        found = alike.known.get(values)
        if found is None:
            found = self._select(stages, node.devices)
            self._make_room(ENTRY_BYTES + POSITION_BYTES * (len(values) + len(found.noted)))
            alike.known[values] = found
        return found

    def _make_room(self, size_bytes: int) -> None:
        if self._selection_bytes > SELECTION_BYTES_MAX:
            self._selections.clear()
            self._selection_bytes = 0
        self._selection_bytes += size_bytes

    def _columns(self, texts: Iterable[str], layout: NodeLayout) -> Columns | None:
        reads = [self._of(text).reads for text in texts]
        names = dict.fromkeys(name for read in reads if read is not None for name in read[0])
        return layout.columns(names) if layout.readable and None not in reads else None

    def _select(self, stages: Stages, devices: Iterable[Device]) -> Selection:
        noted: list[tuple[int, str | None]] = []
        rejected = [0] * len(stages)
        for position, device in enumerate(devices):
            for stage, texts in enumerate(stages):
                result = self.evaluate(texts, device)
                if result is False:
                    rejected[stage] += 1
                    break
                if result is not True:
                    noted.append((position, result))
                    break
            else:
                noted.append((position, None))
        return Selection(tuple(noted), tuple(rejected))

    def _one(self, text: str, device: Device) -> SelectorResult:
        known = self._of(text)
        key = self._key(known, device)
        result = known.results.get(key)
        if result is None:
            if len(known.results) >= RESULTS_MAX:
                known.results.clear()
            result = known.results[key] = self._evaluate(text, known.selector, device)
        return result

    @staticmethod
    def _key(known: _Known, device: Device) -> object:
        """What the result depends on: equal keys, equal results."""
        if known.reads is None or device.schema.unreadable or device.kind.unreadable:
            return (device.kind, device.schema, device.attribute_values)
        attributes, capacities = known.reads
        index, values = device.schema.index, device.attribute_values
        read: list[object] = [device.kind.driver, device.shared]
        for name in attributes:
            number = index.get(name)
            read.append(None if number is None else values[number])
        if capacities:
            read.append(device.kind.capacity)
        return tuple(read)

    def _of(self, text: str) -> _Known:
        known = self._known.get(text)
        if known is None:
            selector: Selector | str
            try:
                selector = compile_selector(text)
            except CompileError as error:
                selector = str(error)
            known = self._known[text] = _Known(selector, _attributes_read(selector), self._decision)
        known.used = self._decision
        return known

    @staticmethod
    def _evaluate(text: str, selector: Selector | str, device: Device) -> SelectorResult:
        if isinstance(selector, str):
            return selector
        spec = msgspec.structs.replace(device.kind.spec, attributes=device.attributes)
        try:
            return selector.matches(DeviceView.of(device.pool.driver, spec))
        except EvaluationError as error:
            return f"{text}: {error}"


def selector_weight(texts: Iterable[str]) -> int:
    """What the evaluation of these costs, in that of a short one."""
    weight = 0
    for text in texts:
        weight += max(1, len(text) // LENGTH_ONE)
        try:
            weight += compile_selector(text).estimated_cost // COST_ONE
        except CompileError:
            continue
    return weight


def _attributes_read(selector: Selector | str) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """The qualified names that the expression reads, None when it may read anything."""
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
