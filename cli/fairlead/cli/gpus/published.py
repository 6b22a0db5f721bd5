"""What a node's driver publishes of its GPUs and says of them, which claims have devices of a GPU, and the eviction of their pods."""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from fairlead.api import names, withheld
from fairlead.api import repair as api
from fairlead.api.durations import duration_s
from fairlead.cli.printer import say
from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.resources import PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, Raw, raw
from fairlead.ui.reading.cluster import NotReadError

AGAIN_S = 5.0
SLICES = raw(RESOURCE_SLICES)


class Say(Protocol):
    """Prints what happened: the text for people, with the fields for programs."""

    def __call__(self, text: str, **fields: Any) -> None: ...


def teller(node: str, gpu: str, *, as_json: bool) -> Say:
    """Prints lines with the seconds since now."""
    begun_s = time.monotonic()

    def told(text: str, **fields: Any) -> None:
        elapsed_s = time.monotonic() - begun_s
        if as_json:
            known = {"node": node, "gpu": gpu, "elapsedSeconds": round(elapsed_s, 1), "message": text}
            say(json.dumps(known | fields), flush=True)
        else:
            say(f"{elapsed_s:6.0f} s  {text}", flush=True)

    return told


# -- what is published -------------------------------------------------------------------------------------------------


def gpu_name(text: str) -> str | None:
    """`gpu-3` of `gpu-3` or `3`; None of anything else."""
    match = re.fullmatch(r"(?:gpu-)?(\d{1,3})", text)
    return None if match is None else f"gpu-{int(match[1])}"


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


async def states(client: Client) -> AsyncIterator[tuple[str, str, api.State]]:
    """Node, GPU and state of each GPU whose driver says something of it, in the order of nodes and GPUs."""
    by_node: dict[str, list[Raw]] = {}
    for each in (await client.list(SLICES, fields=f"spec.driver={names.DRIVER}")).items:
        by_node.setdefault(str(each["spec"].get("nodeName", "")), []).append(each)
    for node, slices in sorted(by_node.items()):
        first = api.first_slice(slices)
        found = {} if first is None else api.states(first["metadata"].get("annotations") or {})
        for gpu in sorted(found, key=lambda gpu: api.minor_of(gpu) or 0):
            yield node, gpu, found[gpu]


async def ask(client: Client, slices: Iterable[Raw], gpu: str, request: api.Request, *, again: bool = False) -> None:
    """Write the request for the driver, where there is a slice to write it on. `again`: only where a slice that was deleted took it with it."""
    first = api.first_slice(slices)
    if first is None or (again and gpu in api.requests(first["metadata"].get("annotations") or {})):
        return
    body = {"metadata": {"annotations": {f"{api.REQUEST_PREFIX}{gpu}": api.encode(request)}}}
    try:
        await client.patch(SLICES, first["metadata"]["name"], body)
    except errors.NotFound:
        return  # replaced meanwhile: asked again with the next look


# -- holders -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Holder:
    """A claim as namespace/name, its devices of these GPUs, and its pods: (name, UID)."""

    claim: str
    devices: tuple[str, ...]
    pods: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        pods = ", ".join(name for name, _ in self.pods) or "no pod"
        return f"{self.claim} has {', '.join(self.devices)}: {pods}"


def belongs(device: str, gpus: Collection[str]) -> bool:
    """Whether a device is one of these GPUs, as gpu-3, or a MIG device of one."""
    return device in gpus or device.partition("-mig-")[0] in gpus


def holders(claims: Iterable[Raw], node: str, gpus: Collection[str], *, admin: bool = True) -> list[Holder]:
    """The holders of a GPU, sorted by the names of their claims. `admin`: with those that have admin access only, as monitoring has."""
    found = []
    for claim in claims:
        status = claim.get("status") or {}
        results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
        held = [
            str(each["device"])
            for each in results
            if each["driver"] == names.DRIVER
            and each["pool"] == node
            and belongs(each["device"], gpus)
            and (admin or not each.get("adminAccess"))
        ]
        if held:
            pods = [each for each in status.get("reservedFor") or () if each.get("resource") == "pods"]
            found.append(
                Holder(
                    f"{claim['metadata']['namespace']}/{claim['metadata']['name']}",
                    tuple(sorted(held)),
                    tuple(sorted((str(each["name"]), str(each.get("uid", ""))) for each in pods)),
                )
            )
    return sorted(found, key=lambda each: each.claim)


class Evictions:
    """`step` evicts the pods of all holders once, as budgets allow; what is refused is tried again after `AGAIN_S`.

    A pod that asks for time to write a checkpoint (`fairlead.dev/checkpoint-grace`) gets it as its grace period.
    """

    def __init__(
        self, client: Client, say: Callable[[str], None], clock: Callable[[], float], *, admin: bool = True
    ) -> None:
        """`admin`: also those that have admin access only."""
        self._client = client
        self._admin = admin
        self._say = say
        self._clock = clock
        self._done: set[str] = set()
        self._refused: dict[str, tuple[str, float]] = {}

    async def step(self, node: str, gpus: Collection[str]) -> None:
        claims = (await self._client.list(raw(RESOURCE_CLAIMS))).items
        for holder in holders(claims, node, gpus, admin=self._admin):
            namespace = holder.claim.partition("/")[0]
            for name, uid in holder.pods:
                if uid not in self._done and self._refused.get(uid, ("", 0.0))[1] <= self._clock():
                    await self._evict(namespace, name, uid)

    async def _evict(self, namespace: str, name: str, uid: str) -> None:
        try:
            pod = await self._client.get(raw(PODS), name, namespace)
            grace_s = _grace_s(pod)
            await self._client.evict(name, namespace, uid=uid, grace_period_s=grace_s)
        except (errors.NotFound, errors.Conflict):
            self._done.add(uid)
            return
        except errors.TooManyRequests as error:
            if self._refused.get(uid, ("", 0.0))[0] != str(error):
                self._say(f"pod {namespace}/{name} cannot be evicted now: {error}; tried again")
            self._refused[uid] = str(error), self._clock() + AGAIN_S
            return
        self._done.add(uid)
        time = "" if grace_s is None else f"; it has {grace_s} s for a checkpoint"
        owned = any(owner.get("controller") for owner in pod["metadata"].get("ownerReferences") or ())
        self._say(f"pod {namespace}/{name} is evicted{time}{'' if owned else '; nothing will create it again'}")


def _grace_s(pod: Raw) -> int | None:
    """The grace period where the pod asks for more time than its own; None: its own."""
    text = (pod["metadata"].get("annotations") or {}).get(names.CHECKPOINT_GRACE)
    try:
        wanted_s = 0 if text is None else int(duration_s(text))
    except ValueError:
        wanted_s = 0
    own_s = pod["spec"].get("terminationGracePeriodSeconds")
    return wanted_s if wanted_s > (30 if own_s is None else own_s) else None
