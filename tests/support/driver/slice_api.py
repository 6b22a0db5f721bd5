"""An apiserver of ResourceSlices and one Node that drops fields by its gates, and a judge of each moment of its store. For `Publisher`.

Gates may be turned at any request (`turns`), as where requests of a rolling upgrade reach different apiservers. `sticky` keeps
fields that the stored slice used before, as Kubernetes does; without it the fake is worse than any apiserver.
"""

from __future__ import annotations

import asyncio
import copy
import dataclasses
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from fairlead.driver.backend import device_names
from fairlead.driver.publish.slices import Layout
from fairlead.kube import errors
from fairlead.kube.core import Node
from fairlead.kube.listing import Listing
from fairlead.kube.objects import ObjectMeta
from fairlead.kube.watching import WatchEvent

Raw = dict[str, Any]


@dataclasses.dataclass(kw_only=True)
class Gates:
    """What an apiserver keeps, and the layout that it takes."""

    counters: bool = True
    taints: bool = True
    shares: bool = True
    layout: Layout = "split"


class SliceApi:
    """`fail` are the errors of the next writes, `adds` what is put into each slice, `drops` fields of devices that are always dropped.

    `before_write` is called with the number of each write before it is stored, `after_write` when it is and the answer is not yet sent.
    """

    def __init__(self) -> None:
        self.gates = Gates()
        self.sticky = False
        self.turns: Callable[[], None] = lambda: None
        self.stored: dict[str, Raw] = {}
        self.writes: list[str] = []
        self.trials = 0
        self.fail: list[errors.ApiError] = []
        self.drops: set[str] = set()
        self.adds: dict[str, str] = {}
        self.before_write: Callable[[int], None] = lambda _number: None
        self.after_write: Callable[[int], None] = lambda _number: None
        self.wrong: list[str] = []
        """What the judge found, with the write after which it was so."""
        self._version = 0
        self._watches: list[asyncio.Queue[tuple[str, Raw]]] = []

    # -- the client's side -------------------------------------------------------------------------------------------

    async def get(self, resource: Any, name: str, namespace: str | None = None) -> Node:
        return Node(metadata=ObjectMeta(name=name, uid="node-uid"))

    async def list(self, resource: Any, namespace: str | None = None, **_: Any) -> Listing[Raw]:
        return Listing(items=copy.deepcopy([*self.stored.values()]), resource_version=str(self._version))

    async def watch(self, resource: Any, namespace: str | None = None, **_: Any) -> AsyncIterator[WatchEvent[Any]]:
        queue: asyncio.Queue[tuple[str, Raw]] = asyncio.Queue()
        self._watches.append(queue)
        while True:
            kind, obj = await queue.get()
            yield WatchEvent(kind, obj)

    async def create(self, resource: Any, obj: Raw, *, dry_run: bool = False, **_: Any) -> Raw:
        self.turns()
        if dry_run:
            self.trials += 1
            return self._admitted(obj, None)
        self._begin("create")
        return self.put(obj, "ADDED")

    async def replace(self, resource: Any, obj: Raw, **_: Any) -> Raw:
        self.turns()
        self._begin("update")
        return self.put(obj, "MODIFIED")

    async def delete(self, resource: Any, name: str, **_: Any) -> None:
        self.turns()
        self._begin("delete")
        self._version += 1
        gone = self.stored.pop(name)
        gone["metadata"]["resourceVersion"] = str(self._version)
        self._judge("delete")
        self.tell("DELETED", gone)
        self.after_write(len(self.writes))

    # -- the store ---------------------------------------------------------------------------------------------------

    def tell(self, kind: str, obj: Raw) -> None:
        for watch in self._watches:
            watch.put_nowait((kind, copy.deepcopy(obj)))

    def put(self, obj: Raw, kind: str) -> Raw:
        stored = self._admitted(obj, self.stored.get(obj["metadata"].get("name", "")))
        self._version += 1
        metadata = stored["metadata"]
        metadata.setdefault("name", f"{metadata.get('generateName', '')}{self._version:05d}")
        metadata["resourceVersion"] = str(self._version)
        metadata.setdefault("uid", f"uid-{self._version}")
        for part in (stored["spec"], stored["spec"]["pool"], *stored["spec"].get("devices", [])):
            part.update(self.adds)
        self.stored[metadata["name"]] = stored
        self._judge(kind)
        self.tell(kind, stored)
        self.after_write(len(self.writes))
        return copy.deepcopy(stored)

    def _begin(self, verb: str) -> None:
        self.writes.append(verb)
        if self.fail:
            raise self.fail.pop(0)
        self.before_write(len(self.writes))

    def _admitted(self, obj: Raw, before: Raw | None) -> Raw:
        made = copy.deepcopy(obj)
        spec, old = made["spec"], before["spec"] if before is not None and self.sticky else {}
        devices = spec.get("devices", [])
        if not self.gates.counters and not _uses_counters(old):
            spec.pop("sharedCounters", None)
            _drop(devices, "consumesCounters")
        if not self.gates.taints and not any(device.get("taints") for device in old.get("devices", [])):
            _drop(devices, "taints")
        if not self.gates.shares:
            _drop(devices, "allowMultipleAllocations")
            for device in devices:
                _drop(device.get("capacity", {}).values(), "requestPolicy")
        for field in self.drops:
            _drop(devices, field)
        self._validate(spec)
        return made

    def _validate(self, spec: Raw) -> None:
        devices, sets = spec.get("devices", []), {each["name"] for each in spec.get("sharedCounters", [])}
        if self.gates.layout == "split" and devices and sets:
            raise errors.Invalid("spec: only one of `sharedCounters` or `devices` is allowed", status=422)
        used = {each["counterSet"] for device in devices for each in device.get("consumesCounters", [])}
        if self.gates.layout == "combined" and not used <= sets:
            raise errors.Invalid("spec.devices: consumesCounters names a counter set of another slice", status=422)

    def _judge(self, what: str) -> None:
        for problem in overlaps(self.stored.values()):
            self.wrong.append(f"after write {len(self.writes)} ({what}): {problem}")

    # -- what is offered ---------------------------------------------------------------------------------------------

    def offered(self) -> dict[str, Raw]:
        """The devices that may be allocated now, by name."""
        return {device["name"]: device for slice_ in complete(self.stored.values()) for device in devices_of(slice_)}

    def annotations(self) -> dict[str, str]:
        """Of the first slice."""
        first = min(self.stored)
        found: dict[str, str] = self.stored[first]["metadata"].get("annotations") or {}
        return found


def _drop(parts: Iterable[Raw], field: str) -> None:
    for part in parts:
        part.pop(field, None)


def _uses_counters(spec: Raw) -> bool:
    return bool(spec.get("sharedCounters")) or any(device.get("consumesCounters") for device in spec.get("devices", []))


def devices_of(slice_: Raw) -> list[Raw]:
    found: list[Raw] = slice_["spec"].get("devices", [])
    return found


def complete(stored: Iterable[Raw]) -> list[Raw]:
    """The slices of the newest generation, if all of them are there: what an allocator looks at."""
    slices = list(stored)
    newest = max((each["spec"]["pool"]["generation"] for each in slices), default=0)
    current = [each for each in slices if each["spec"]["pool"]["generation"] == newest]
    # kube-scheduler looks at one slice's count: no slice may have the right one by chance.
    return current if any(each["spec"]["pool"]["resourceSliceCount"] == len(current) for each in current) else []


def overlaps(stored: Iterable[Raw]) -> list[str]:
    """Pairs of devices of a complete pool that cover the same part of a GPU, one of them without counters."""
    by_gpu: dict[int, list[tuple[str, frozenset[int] | None, bool]]] = {}
    for slice_ in complete(stored):
        for device in devices_of(slice_):
            place = device_names.parse(device["name"])
            assert place is not None
            covered = None if place.start is None else _covered(device, place.start)
            by_gpu.setdefault(place.minor, []).append((device["name"], covered, bool(device.get("consumesCounters"))))
    return [
        f"{one} and {other} overlap without counters"
        for found in by_gpu.values()
        for at, (one, first, counted) in enumerate(found)
        for other, second, also_counted in found[at + 1 :]
        if not (counted and also_counted) and (first is None or second is None or first & second)
    ]


def _covered(device: Raw, start: int) -> frozenset[int]:
    """The memory slices of a MIG device, by its size in gigabytes of an H100 or A100 with 80 GB."""
    gigabytes = int("".join(c for c in device["attributes"]["profile"]["string"].split(".")[1] if c.isdigit()))
    return frozenset(range(start, start + max(1, gigabytes // 10)))
