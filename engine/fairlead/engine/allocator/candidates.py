"""The devices of a node that pass a request's filter, computed once per node and filter.

Keeps its results in the NodeDevices' cache, which a changed slice drops. The use of devices is not considered here: it
changes with every step of the search.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from fairlead.api import names
from fairlead.engine.allocator.requests import DeviceFilter
from fairlead.engine.inventory.device import Device
from fairlead.engine.inventory.models import Model, mig_share, model_of
from fairlead.engine.inventory.nodes import tolerated
from fairlead.engine.inventory.pool import NodeDevices, number_ordinals
from fairlead.engine.inventory.selectors import Selectors
from fairlead.engine.types.reasons import Rejection
from fairlead.engine.types.values import Consumption
from fairlead.kube.resource import DeviceTaint, DeviceTaintRuleSpec, DeviceTaintSelector

REMEMBERED_MAX = 512  # filters per node
Judged = tuple[Rejection | None, str]
"""Why a device does not pass, and what failed on it."""


class Candidates:
    """The devices of one node that pass one filter, and how many each rejection removed."""

    __slots__ = ("_models", "all_problem", "consumption", "devices", "errors", "plain", "removed", "sizes", "tainted")

    def __init__(self) -> None:
        self.devices: tuple[Device, ...] = ()
        self.consumption: dict[Device, Consumption] = {}  # shared devices only
        self.removed: dict[Rejection, int] = {}
        self.errors: list[tuple[Device, str]] = []
        self.tainted: list[tuple[Device, str]] = []  # rejected for a taint only: (device, taint)
        self.all_problem: str | None = None  # why `All` can't be served on this node
        self.plain = True  # no shared device, no counters among them
        self.sizes: dict[Device, int] = {}  # MIG devices without counters only: thousandths of their GPU
        self._models: frozenset[Model] | None = None

    @property
    def models(self) -> frozenset[Model]:
        if self._models is None:
            self._models = frozenset(map(model_of, self.devices))
        return self._models


def known_candidates(node: NodeDevices, key: object) -> Candidates | None:
    """Those that were evaluated before: by a filter, or by what alike filters have in common."""
    found = node.cache.get(key)
    assert found is None or isinstance(found, Candidates)
    return found


def candidates(node: NodeDevices, wanted: DeviceFilter, selectors: Selectors) -> Candidates:
    found = known_candidates(node, wanted)
    if found is None:
        if len(node.cache) >= REMEMBERED_MAX:
            node.cache.clear()
        found = node.cache[wanted] = (
            _filter(node, wanted, selectors) if node.tainted else _untainted(node, wanted, selectors)
        )
    return found


def _untainted(node: NodeDevices, wanted: DeviceFilter, selectors: Selectors) -> Candidates:
    """Filters that differ in what they tolerate have the same candidates there: thousands of them cost as much as one."""
    alike = (wanted.class_selectors, wanted.selectors, wanted.capacity, wanted.banned, wanted.model, wanted.aligned)
    found = known_candidates(node, alike)
    if found is None:
        found = node.cache[alike] = _filter(node, wanted, selectors)
    return found


def _filter(node: NodeDevices, wanted: DeviceFilter, selectors: Selectors) -> Candidates:
    found = Candidates()
    if any(name == names.ORDINAL for name, _ in wanted.aligned):
        number_ordinals(node)
    kept: list[Device] = []
    if node.problems:
        found.all_problem = f"all devices are wanted, but {node.problems[0].problem}"
        found.removed[Rejection.POOL] = sum(pool.published for pool in node.problems)
    for device, judged in _screened(node, wanted, selectors, found.removed):
        why, detail = judged
        if why in _WITHHELD:
            found.all_problem = (
                found.all_problem or f"all devices are wanted, but {device.ref} is withheld by its driver"
            )
        if why is None and wanted.banned and any(selectors.evaluate((text,), device) is True for text in wanted.banned):
            continue  # not counted: what is reported then is the queue's limit
        if why is None and wanted.model is not None and model_of(device) != wanted.model:
            found.all_problem = found.all_problem or "all devices are wanted, but they are of several models"
            continue  # not counted: it is told by model what there is
        if why is None and wanted.aligned and any(device.values(name) not in values for name, values in wanted.aligned):
            found.all_problem = found.all_problem or "all devices are wanted, but its gang is not aligned on some"
            continue  # not counted: what is reported then is by which values there is too little
        if why is None:
            consumed: Consumption | None = ()
            if device.shared or wanted.capacity:
                consumed = device.kind.consumed(wanted.capacity)
            if consumed is None:
                why, detail = Rejection.CAPACITY, f"{device.ref} is too small"
            elif device.shared:
                found.consumption[device] = consumed
        if why is None and node.tainted and (taint := _untolerated(device, wanted, node)) is not None:
            why = Rejection.TAINT
            found.tainted.append((device, taint))
        if why is None:
            kept.append(device)
            if device.shared or device.counter_consumption:
                found.plain = False
            elif (part := mig_share(device)) is not None:
                found.sizes[device] = int(1000 * part)
            continue
        found.removed[why] = found.removed.get(why, 0) + 1
        if why is Rejection.SELECTOR_ERROR:
            found.errors.append((device, detail))
            if found.all_problem is None:
                found.all_problem = f"all devices are wanted, but for {device.ref} {detail}"
    found.devices = tuple(kept)
    return found


def _screened(
    node: NodeDevices, wanted: DeviceFilter, selectors: Selectors, removed: dict[Rejection, int]
) -> Iterator[tuple[Device, Judged]]:
    """The devices that selectors do not simply reject, in order; those that they do are counted in `removed`."""
    if node.withheld:
        for device in node.devices:
            judged = _reject(device, wanted, selectors)
            if judged[0] in _REJECTED:
                removed[judged[0]] = removed.get(judged[0], 0) + 1
            else:
                yield device, judged
        return
    selection = selectors.select((wanted.class_selectors, wanted.selectors), node)
    removed.update({why: number for why, number in zip(_REJECTED, selection.rejected, strict=True) if number})
    for position, error in selection.noted:
        yield node.devices[position], (None, "") if error is None else (Rejection.SELECTOR_ERROR, error)


def rejection(device: Device, wanted: DeviceFilter, node: NodeDevices, selectors: Selectors) -> Rejection | None:
    """What removes one device from the candidates of a filter without banned selectors: as `candidates`, for one that explains."""
    why, _ = _reject(device, wanted, selectors)
    if why is not None:
        return why
    if (device.shared or wanted.capacity) and device.kind.consumed(wanted.capacity) is None:
        return Rejection.CAPACITY
    return None if _untolerated(device, wanted, node) is None else Rejection.TAINT


_REJECTED: Final = (Rejection.CLASS, Rejection.SELECTOR)
_WITHHELD: Final = (Rejection.TAINT, Rejection.RELEASING)


def _reject(device: Device, wanted: DeviceFilter, selectors: Selectors) -> Judged:
    """Why the device does not pass. No attributes are known of one that its driver withholds: selectors would fail on it."""
    if device.name in device.pool.withheld:
        return _WITHHELD[device.releasing], ""
    for texts, rejection in zip((wanted.class_selectors, wanted.selectors), _REJECTED, strict=True):
        result = selectors.evaluate(texts, device)
        if result is False:
            return rejection, ""
        if result is not True:
            return Rejection.SELECTOR_ERROR, result
    return None, ""


def _untolerated(device: Device, wanted: DeviceFilter, node: NodeDevices) -> str | None:
    for taint in taints(device, node.rules):
        if not tolerated(taint.key, taint.value, taint.effect, wanted.tolerations):
            return f"taint {taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"
    return None


def taints(device: Device, rules: Iterable[DeviceTaintRuleSpec]) -> Iterator[DeviceTaint]:
    """Its own, then those that rules give it."""
    yield from device.kind.taints
    for rule in rules:
        if rule.taint.effect in {"NoSchedule", "NoExecute"} and covers(rule.device_selector, device):
            yield rule.taint


def covers(selector: DeviceTaintSelector | None, device: Device) -> bool:
    """A rule without a selector covers nothing (1.36 had it cover everything: k/k#141648)."""
    return (
        selector is not None
        and selector.driver in {None, device.pool.driver}
        and selector.pool in {None, device.pool.name}
        and selector.device in {None, device.name}
    )
