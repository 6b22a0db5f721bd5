"""Which devices of a node pass a request's filter, whoever has them: worked out once per node and filter.

Exists so that the search sees short lists. Remembers its answers in the node's table, where a changed slice drops them.
Does not look at who has a device: that changes with every step of the search.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.engine.inventory.nodes import tolerated
from fairlead.engine.types.amounts import consumption
from fairlead.engine.types.reasons import Rejection as Why

if TYPE_CHECKING:
    from fairlead.engine.allocator.requests import DeviceFilter
    from fairlead.engine.inventory.inventory import Device, NodeDevices
    from fairlead.engine.inventory.ledger import Consumption
    from fairlead.engine.inventory.selectors import Selectors
    from fairlead.kube.resource import DeviceTaint, DeviceTaintSelector

REMEMBERED_MAX = 64  # filters per node


class Candidates:
    """The devices of one node that pass one filter, and what became of the others."""

    __slots__ = ("all_problem", "consumption", "devices", "errors", "plain", "removed", "tainted")

    def __init__(self) -> None:
        self.devices: tuple[Device, ...] = ()
        self.consumption: dict[Device, Consumption] = {}  # shared devices only
        self.removed: dict[Why, int] = {}
        self.errors: list[tuple[Device, str]] = []
        self.tainted: list[tuple[Device, str]] = []  # would do, but for a taint
        self.all_problem: str | None = None  # why `All` can't be answered on this node
        self.plain = True  # no shared device, no counters among them


def candidates(node: NodeDevices, wanted: DeviceFilter, selectors: Selectors) -> Candidates:
    found = node.cache.get(wanted)
    if found is None:
        if len(node.cache) >= REMEMBERED_MAX:
            node.cache.clear()
        found = node.cache[wanted] = _sift(node, wanted, selectors)
    assert isinstance(found, Candidates)
    return found


def _sift(node: NodeDevices, wanted: DeviceFilter, selectors: Selectors) -> Candidates:
    found = Candidates()
    kept: list[Device] = []
    if node.problems:
        found.all_problem = f"all devices are wanted, but {node.problems[0].problem}"
        found.removed[Why.POOL] = sum(len(pool.devices) for pool in node.problems)
    for device in node.devices:
        why, detail = _reject(device, wanted, selectors)
        if why is None:
            taken: Consumption | None = ()
            if device.shared or wanted.capacity:
                taken = consumption(
                    wanted.capacity, device.kind.spec.capacity, driver=device.pool.driver, shared=device.shared
                )
            if taken is None:
                why, detail = Why.CAPACITY, f"{device.ref} is too small"
            elif device.shared:
                found.consumption[device] = taken
        if why is None and (taint := _untolerated(device, wanted, node)) is not None:
            why = Why.TAINT
            found.tainted.append((device, taint))
        if why is None:
            kept.append(device)
            if device.shared or device.draws:
                found.plain = False
            continue
        found.removed[why] = found.removed.get(why, 0) + 1
        if why is Why.SELECTOR_ERROR:
            found.errors.append((device, detail))
            if found.all_problem is None:
                found.all_problem = f"all devices are wanted, but for {device.ref} {detail}"
    found.devices = tuple(kept)
    return found


def _reject(device: Device, wanted: DeviceFilter, selectors: Selectors) -> tuple[Why | None, str]:
    for texts, no in ((wanted.class_selectors, Why.CLASS), (wanted.selectors, Why.SELECTOR)):
        verdict = selectors.verdict(texts, device)
        if verdict is False:
            return no, ""
        if verdict is not True:
            return Why.SELECTOR_ERROR, verdict
    for text in wanted.banned:
        if selectors.verdict((text,), device) is True:
            return Why.QUOTA, "its flavor is used up"
    return None, ""


def _untolerated(device: Device, wanted: DeviceFilter, node: NodeDevices) -> str | None:
    for taint in device.kind.taints:
        if not tolerated(taint.key, taint.value, taint.effect, wanted.tolerations):
            return _shown(taint)
    for rule in node.rules:
        taint = rule.taint
        if (
            taint.effect in {"NoSchedule", "NoExecute"}
            and covers(rule.device_selector, device)
            and not tolerated(taint.key, taint.value, taint.effect, wanted.tolerations)
        ):
            return _shown(taint)
    return None


def covers(selector: DeviceTaintSelector | None, device: Device) -> bool:
    """A rule without a selector covers nothing (1.36 had it cover everything: k/k#141648)."""
    return (
        selector is not None
        and selector.driver in {None, device.pool.driver}
        and selector.pool in {None, device.pool.name}
        and selector.device in {None, device.name}
    )


def _shown(taint: DeviceTaint) -> str:
    return f"taint {taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"
