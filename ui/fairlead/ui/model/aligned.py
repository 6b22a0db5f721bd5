"""What a running gang's devices have of the attributes by which `fairlead.dev/align` aligns them; pure.

Example: `gpu.fairlead.dev/rail of request gpu: 0, 1, 2, 3 in each of 2 pods`. Where pods differ, as with `=distinct` or by subgroup, each is
listed. A device of which no slice is there has no value.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fairlead.api import names
from fairlead.api.align import Alignment, alignments
from fairlead.api.texts import natural
from fairlead.engine.inventory.inventory import Inventory
from fairlead.engine.inventory.pool import number_ordinals
from fairlead.engine.types.values import DeviceRef
from fairlead.kube.resource import DeviceRequestAllocationResult, ResourceClaim
from fairlead.kube.resources import Raw

PODS_MAX = 8


def align_of(pods: Iterable[Raw]) -> tuple[Alignment, ...]:
    """The entries of the first pod, by name, that has some which can be read."""
    for pod in sorted(pods, key=lambda each: str(each["metadata"]["name"])):
        text = (pod["metadata"].get("annotations") or {}).get(names.ALIGN)
        if isinstance(text, str):
            try:
                return alignments(text)
            except ValueError:
                return ()
    return ()


def aligned_lines(pods: Sequence[Raw], claims: Iterable[ResourceClaim], inventory: Inventory) -> tuple[str, ...]:
    """One for each entry and request; none where the gang says no alignment."""
    entries = align_of(pods)
    by_uid = {str(pod["metadata"].get("uid", "")): str(pod["metadata"]["name"]) for pod in pods}
    held: dict[str, dict[str, list[DeviceRequestAllocationResult]]] = {}  # by request and pod
    for claim in claims if entries else ():
        for result in () if claim.status.allocation is None else claim.status.allocation.devices.results:
            for each in claim.status.reserved_for:
                if each.uid in by_uid and not result.admin_access:
                    of_request = held.setdefault(result.request.partition("/")[0], {})
                    of_request.setdefault(by_uid[each.uid], []).append(result)
    found = []
    for entry in entries:
        for request, of_pods in sorted(held.items()):
            if entry.covers(request):
                values = {pod: _values(results, entry.attribute, inventory) for pod, results in of_pods.items()}
                found.append(f"{entry.attribute} of request {request}: {_listed(values)}")
    return tuple(found)


def _listed(values: dict[str, str]) -> str:
    if len(values) > 1 and len(set(values.values())) == 1:
        return f"{next(iter(values.values()))} in each of {len(values)} pods"
    told = [f"{text} in {pod}" for pod, text in sorted(values.items())]
    more = len(told) - PODS_MAX
    return "; ".join([*told[:PODS_MAX], *([f"and {more} more pods"] if more > 0 else [])])


def _values(results: Iterable[DeviceRequestAllocationResult], attribute: str, inventory: Inventory) -> str:
    found: list[str] = []
    for result in results:
        device = inventory.device(DeviceRef(result.driver, result.pool, result.device))
        if device is not None and attribute == names.ORDINAL and device.node is not None:
            number_ordinals(inventory.on_node(device.node, {}))
        values = () if device is None else device.values(attribute)
        found.append("+".join(sorted((str(value) for _, value in values), key=natural)) or "none")
    return ", ".join(sorted(found, key=natural))
