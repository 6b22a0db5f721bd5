"""The units of each node as the ledger is told of them: published, drained, broken, or of no use. Judged anew as nodes change."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from fairlead.api.capacity_types import capacity_type
from fairlead.controller.accounting.units import Measures, Units
from fairlead.controller.accounting.vacancies import UsualRequests, of_use, unavailable, vacancy
from fairlead.engine.inventory.device import Device
from fairlead.engine.inventory.inventory import Inventory
from fairlead.engine.inventory.node_devices import NodeDevices
from fairlead.engine.inventory.nodes import NodeTable
from fairlead.history.ledger.entries import Unit, UnitSeen

ANYWHERE = ""  # the node of devices that no one node has
UNPUBLISHED_S = 86_400.0
"""A unit that its node does not publish any more counts as broken for so long; then as removed."""


class NodeUnits:
    """`look` at a node that changed; `known` is what was told last."""

    def __init__(self, inventory: Inventory, nodes: NodeTable) -> None:
        self.units = Units(inventory)
        self._inventory = inventory
        self._nodes = nodes
        self._known: dict[str, dict[Unit, UnitSeen]] = {}
        self._unpublished: dict[Unit, float] = {}  # since when, unix seconds

    def names(self) -> set[str]:
        """Names of all nodes that have devices, or had."""
        return {*(node.name for node in self._nodes.all()), *self._known, ANYWHERE}

    def capacity_type(self, node: str | None) -> str | None:
        info = self._nodes.get(node) if node else None
        return capacity_type(info.labels) if info is not None else None

    def known(self) -> Iterator[UnitSeen]:
        for units in self._known.values():
            yield from units.values()

    def look(
        self, node: str, measures: Measures, usual: UsualRequests, reserved: Collection[str], now: float
    ) -> tuple[list[UnitSeen], list[Unit]]:
        """What changed of its units, and those that are gone. `reserved`: nodes that are held for a gang."""
        before = self._known.get(node, {})
        found = {each.unit: each for each in self._units(node, measures, usual, reserved)}
        gone: list[Unit] = []
        for unit, seen in before.items():
            if unit in found:
                self._unpublished.pop(unit, None)
                continue
            since = self._unpublished.setdefault(unit, now)
            if self._nodes.get(node) is not None and now - since < UNPUBLISHED_S:
                found[unit] = UnitSeen(unit=unit, node=node, whole=seen.whole, vacancy="broken")
            else:
                gone.append(unit)
                del self._unpublished[unit]
        if found:
            self._known[node] = found
        else:
            self._known.pop(node, None)
        return [seen for unit, seen in found.items() if before.get(unit) != seen], gone

    def _units(
        self, name: str, measures: Measures, usual: UsualRequests, reserved: Collection[str]
    ) -> Iterator[UnitSeen]:
        node = self._nodes.get(name)
        devices = self._inventory.on_node(name, node.labels) if node is not None else None
        useful = of_use(node, devices, usual, self.units) if node is not None and devices is not None else None
        kind = self.capacity_type(name)
        for unit, own, usable in self._grouped(name, devices):
            at = unavailable(node, own, self._inventory.rules, anywhere=name == ANYWHERE) if usable else "broken"
            state = vacancy(unit, closed=at, reserved=name in reserved, useful=useful)
            yield UnitSeen(unit=unit, node=name, whole=measures.whole(own, kind), vacancy=state)

    def _grouped(self, name: str, devices: NodeDevices | None) -> Iterator[tuple[Unit, list[Device], bool]]:
        """Units in order, their devices, and whether their pool can be used."""
        found: dict[Unit, list[Device]] = {}
        unusable: dict[Unit, list[Device]] = {}
        if name == ANYWHERE:
            for pool in self._inventory.pools_unordered():
                self._group(pool.network_attached, found if pool.problem is None else unusable)
        elif devices is not None:
            self._group((device for device in devices.devices if device.node is not None), found)
            for pool in devices.problems:
                self._group(pool.local.get(name, ()), unusable)
        yield from ((unit, own, True) for unit, own in sorted(found.items()))
        yield from ((unit, own, False) for unit, own in sorted(unusable.items()) if unit not in found)

    def _group(self, devices: Iterable[Device], into: dict[Unit, list[Device]]) -> None:
        for device in devices:
            into.setdefault(self.units.of(device), []).append(device)
