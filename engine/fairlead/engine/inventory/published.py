"""A slice as its driver published it, from what the inventory keeps: read again, it makes an equal inventory.

Where all devices of the slice are reached alike that is said once, for the slice. Devices that cannot be measured come last. Those
that are withheld are devices with taints here: what read them from an annotation reads them again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from fairlead.kube import resource

if TYPE_CHECKING:
    from fairlead.engine.inventory.device import Device
    from fairlead.engine.inventory.pool import SliceEntry


def published_slice(entry: SliceEntry) -> resource.ResourceSliceSpec:
    """The `spec` of its ResourceSlice."""
    devices = (*entry.devices, *entry.withheld)
    places = {(device.node, device.node_selector, device.all_nodes) for device in devices}
    alike = len(places) <= 1
    node, selector, everywhere = places.pop() if len(places) == 1 else (entry.node, None, False)
    return resource.ResourceSliceSpec(
        driver=entry.driver,
        pool=resource.ResourcePool(name=entry.pool_name, generation=entry.generation, resource_slice_count=entry.count),
        node_name=node,
        node_selector=selector,
        all_nodes=everywhere or None,
        per_device_node_selection=None if alike else True,
        devices=(*(_device(device, placed=not alike) for device in devices), *entry.unreadable),
        shared_counters=entry.counters,
    )


def _device(device: Device, *, placed: bool) -> resource.Device:
    spec = msgspec.structs.replace(device.kind.spec, attributes=device.attributes)
    if not placed:
        return spec
    return msgspec.structs.replace(
        spec, node_name=device.node, node_selector=device.node_selector, all_nodes=device.all_nodes or None
    )
