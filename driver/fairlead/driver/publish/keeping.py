"""What the apiserver keeps of this node's slices: asked by slices that are created as a dry run, corrected by each slice that was stored.

Publisher asks before its first write, and passes on what a stored slice lost; `changed` is called at once with what follows, before
anything else is written. What is wanted and not kept is asked for again every `ASK_AGAIN_S`: a gate may be turned on. While all of it
is kept, nothing is asked: the next write tells. The dry run also says which layout counters have to have.
Example: an apiserver of 1.34 with DRAPartitionableDevices answers the combined trial with all of it; one of 1.35 answers 422, and
takes the split one; either without the gate answers the combined one without its counters.
Keeps: nothing is believed to be kept that an answer lacked; where the dry run is refused for another reason, counters are not
believed to be kept, and `problem` has the reason.
Source: dropDisabledFields in pkg/registry/resource/resourceslice/strategy.go, 1.34 to 1.37.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from random import Random
from typing import Any, Final

from fairlead.api import names
from fairlead.api.withheld import GROUPS, Group
from fairlead.driver.publish import sync
from fairlead.driver.publish.slices import ALL_KEPT, NEEDS, UNKNOWN_KEPT, Kept, Layout
from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.limits import Sleep
from fairlead.kube.resources import RESOURCE_SLICES, raw

log = logging.getLogger(__name__)

SLICES = raw(RESOURCE_SLICES)
ASK_AGAIN_S = 600.0
_REFUSED = (errors.Invalid, errors.Forbidden, errors.BadRequest, errors.MethodNotAllowed)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """`lacking` is what is wanted and not kept; `problem` why that could not be asked, or empty."""

    kept: Kept
    lacking: tuple[Group, ...]
    problem: str = ""

    @classmethod
    def nothing(cls) -> Found:
        return cls(kept=UNKNOWN_KEPT, lacking=())


@dataclasses.dataclass(eq=False)
class Keeping:
    """`wanted` are the groups of fields that this node needs. `changed` is called when anything of `found` is other than before."""

    client: Client
    _: dataclasses.KW_ONLY
    node_name: str
    wanted: Collection[Group]
    changed: Callable[[Found], None]
    sleep: Sleep = asyncio.sleep
    random: Random = dataclasses.field(default_factory=Random)

    def __post_init__(self) -> None:
        self.found = Found.nothing()
        self.due = True
        """Whether it has to be asked before the next write."""

    async def run(self, wake: Callable[[], None]) -> None:
        """Never returns. Calls `wake` when it is due again."""
        while True:
            await self.sleep(ASK_AGAIN_S * self.random.uniform(0.9, 1.1))
            if self.found.lacking:
                self.due = True
                wake()

    async def ask(self) -> None:
        """Raises an ApiError that another try may not meet; then nothing has changed."""
        try:
            kept, problem = await self._answer(), ""
        except _REFUSED as error:
            kept, problem = UNKNOWN_KEPT, f"{type(error).__name__}: {error}"
        self.due = False
        self._set(kept, problem)

    def lost(self, groups: Collection[Group]) -> None:
        """A slice was stored without these."""
        self._set(self.found.kept.without(groups), "")

    async def _answer(self) -> Kept:
        """The layouts one after the other: an apiserver refuses the other one's with 422."""
        if "counters" not in self.wanted:
            return dataclasses.replace(await self._try("split"), counters=ALL_KEPT.counters)
        try:
            return await self._try("combined")
        except errors.Invalid:
            return await self._try("split")

    async def _try(self, layout: Layout) -> Kept:
        slices = trial(self.node_name, self.wanted, layout)
        answers = [await self.client.create(SLICES, each, dry_run=True) for each in slices]
        return answered(layout, slices, answers)

    def _set(self, kept: Kept, problem: str) -> None:
        found = Found(kept=kept, lacking=kept.lacking(self.wanted), problem=problem)
        if found != self.found:
            self.found = found
            self.changed(found)


Raw = dict[str, Any]
_GROUP_OF: Final[Mapping[str, Group]] = {
    path.rpartition(".")[2]: group
    for group, need in NEEDS.items()
    for kind, path in need.fields
    if kind == "ResourceSlice"
}


def lost(sent: Raw, stored: Raw) -> frozenset[Group]:
    """The groups of which the stored body lacks a field that was sent, or has it changed.

    A device that is missing loses all groups that it had.
    """
    paths = sync.lost_paths(sent, stored)
    found = {group for path in paths for name in path if (group := _GROUP_OF.get(name.rstrip("[]"))) is not None}
    if any(path[0] == "devices[]" and len(path) == 1 for path in paths):
        found |= {group for group in GROUPS if _uses(sent, group)}
    return frozenset(found)


def _uses(body: Raw, group: Group) -> bool:
    devices: list[Raw] = body.get("devices", [])
    match group:
        case "counters":
            return bool(body.get("sharedCounters")) or any(device.get("consumesCounters") for device in devices)
        case "taints":
            return any(device.get("taints") for device in devices)
        case "shares":
            return any(device.get("allowMultipleAllocations") for device in devices)


# -- trials ------------------------------------------------------------------------------------------------------------

_UNIT = {"counters": {"unit": {"value": "1"}}}


def trial(node: str, wanted: Collection[Group], layout: Layout) -> list[Raw]:
    """The slices to create as a dry run, each with some of the groups; devices are of no pool that anything reads."""
    devices: list[Raw] = [{"name": "trial-whole"}]
    if "taints" in wanted:
        devices[0]["taints"] = [{"key": f"{names.DRIVER}/trial", "effect": "NoSchedule"}]
    if "shares" in wanted:
        policy = {"default": "1Mi", "validRange": {"min": "1Mi", "max": "2Mi", "step": "1Mi"}}
        capacity = {"memory": {"value": "2Mi", "requestPolicy": policy}}
        devices.append({"name": "trial-shared", "capacity": capacity, "allowMultipleAllocations": True})
    counters: Raw = {}
    if "counters" in wanted:
        devices.append({"name": "trial-part", "consumesCounters": [{"counterSet": "trial", **_UNIT}]})
        counters = {"sharedCounters": [{"name": "trial", **_UNIT}]}
    bodies = [counters, {"devices": devices}] if counters and layout == "split" else [{**counters, "devices": devices}]
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"generateName": f"trial-{names.DRIVER}-"},
            "spec": {
                "driver": names.DRIVER,
                "nodeName": node,
                "pool": {"name": node, "generation": 1, "resourceSliceCount": len(bodies)},
                **body,
            },
        }
        for body in bodies
    ]


def answered(layout: Layout, slices: Sequence[Raw], answers: Sequence[Raw]) -> Kept:
    """What the apiserver keeps, by its answers to a trial of this layout."""
    found: set[Group] = set()
    for sent, answer in zip(slices, answers, strict=True):
        found |= lost(sync.body_in(sent["spec"]), sync.body_in(answer.get("spec") or {}))
    return dataclasses.replace(ALL_KEPT, counters=layout).without(found)
