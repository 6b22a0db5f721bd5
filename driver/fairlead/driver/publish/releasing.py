"""Devices that are prepared for claims that are gone: published with a taint until kubelet has unprepared them. Pure.

Where the apiserver drops taints they leave the slices, as any device with a taint (slices.py).
Example: a claim with 3g.40gb at 4 of gpu-0 was deleted by force. gpu-0 and every placement that covers one of the memory
slices 4 to 7 have the taint; 1g.10gb at 0 has not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fairlead.api import withheld as api
from fairlead.driver.backend import device_names, geometry
from fairlead.driver.backend.types import Gpu
from fairlead.driver.publish.devices import with_taints
from fairlead.kube.resource import Device, DeviceTaint

TAINT = DeviceTaint(key=api.RELEASING, effect="NoSchedule")

Span = tuple[int, int] | None
"""First memory slice and number of them; None: the whole GPU."""
Spans = Mapping[str, frozenset[Span]]
"""By the GPU's UUID: what of it is being released."""


def tainted(gpu: Gpu, of_gpu: Sequence[Device], releasing: Spans) -> list[Device]:
    """The devices of a GPU; those that overlap with what is being released have the taint."""
    held = releasing.get(gpu.uuid, frozenset())
    if not held:
        return list(of_gpu)
    return [with_taints(device, TAINT) if _overlaps(gpu, device.name, held) else device for device in of_gpu]


def _overlaps(gpu: Gpu, device: str, held: frozenset[Span]) -> bool:
    place = device_names.parse(device)
    if place is None or place.start is None or None in held:
        return True
    profiles = (*gpu.mig_profiles, *(mig.profile for mig in gpu.mig_devices))
    covered = next((geometry.covered(each, place.start) for each in profiles if each.id == place.profile_id), None)
    if covered is None:
        return True
    return any(span is not None and not set(covered).isdisjoint(range(span[0], sum(span))) for span in held)
