"""`fairlead.dev/ordinal`: the position of a device among its like on its node, where no driver says which rail it is on.

Like is what one driver publishes of one model. They are counted from 0 in the order of their PCI addresses, those without one in the
order of their names; in machines of one build the same ordinal is the same slot. Only devices of one node have one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.api import names
from fairlead.api.texts import natural
from fairlead.engine.inventory.models import model_of

if TYPE_CHECKING:
    from fairlead.engine.inventory.device import Device
    from fairlead.engine.inventory.node_devices import NodeDevices


def number(node: NodeDevices) -> None:
    """Count the node's devices, once for each change of them."""
    if node.cache.get(names.ORDINAL):
        return
    node.cache[names.ORDINAL] = True
    alike: dict[object, list[Device]] = {}
    for device in node.devices:
        if device.node is not None:
            alike.setdefault((device.pool.driver, model_of(device)), []).append(device)
    for devices in alike.values():
        for position, device in enumerate(sorted(devices, key=_place)):
            device.ordinal = frozenset((("int", position),))


def _place(device: Device) -> tuple[str, list[tuple[int, str]]]:
    address = device.attribute(names.PCI_BUS_ID)
    return ("" if address is None or address.string is None else address.string), natural(device.name)
