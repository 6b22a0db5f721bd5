"""What a node publishes: its slices, the devices of one of its GPUs, and what its driver was asked of that GPU and says of it."""

from __future__ import annotations

from collections.abc import Iterable

from fairlead.api import names, withheld
from fairlead.api import repair as api
from fairlead.cli.gpus.holders import belongs
from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.resources import RESOURCE_SLICES, Raw, raw
from fairlead.ui.reading.cluster import NotReadError

SLICES = raw(RESOURCE_SLICES)


async def slices_of(client: Client, node: str) -> list[Raw]:
    return (await client.list(SLICES, fields=f"spec.nodeName={node},spec.driver={names.DRIVER}")).items


def devices_of(slices: Iterable[Raw], node: str, gpu: str) -> tuple[str, ...]:
    """The names of the GPU's devices, also of those that the driver withholds. Raises NotReadError with what there is instead."""
    slices = list(slices)
    first = api.first_slice(slices)
    if first is None:
        raise NotReadError(
            f"node {node} publishes no devices of {names.DRIVER}; is that its name, and does its driver run?"
        )
    devices = {str(each["name"]) for one in slices for each in one["spec"].get("devices") or ()}
    devices |= withheld.read(first["metadata"].get("annotations") or {}).keys()
    mine = tuple(sorted(each for each in devices if belongs(each, {gpu})))
    if not mine and state_of(slices, gpu) is None:
        gpus = sorted({each.partition("-mig-")[0] for each in devices}, key=lambda name: api.minor_of(name) or 0)
        raise NotReadError(f"node {node} has no {gpu}; it has {', '.join(gpus) or 'no GPU'}")
    return mine


def state_of(slices: Iterable[Raw], gpu: str) -> api.State | None:
    first = api.first_slice(slices)
    return None if first is None else api.states(first["metadata"].get("annotations") or {}).get(gpu)


async def ask(client: Client, slices: Iterable[Raw], gpu: str, request: api.Request) -> None:
    """Write the request for the driver, where there is a slice to write it on."""
    first = api.first_slice(slices)
    if first is None:
        return
    body = {"metadata": {"annotations": {f"{api.REQUEST_PREFIX}{gpu}": api.encode(request)}}}
    try:
        await client.patch(SLICES, first["metadata"]["name"], body)
    except errors.NotFound:
        return  # replaced meanwhile: asked again with the next look
