"""The cluster as one picture: nodes, their GPUs, MIG devices inside them, what holds each, and the state of each; pure.

States are those of the ledger (`fairlead.history.cost`): free, nominated (its node is kept free for a gang), starting (held, its pods
do not run yet), idle, held, fragmented (free, of no use for a usual request), drained (held by no claim, and kept back by an operator), broken
(held by no claim, and tainted, or its node is away). What a claim holds keeps its state: a gang goes on computing on a GPU that is drained, and is charged for it; the note says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, TypeVar

from fairlead.api.texts import natural
from fairlead.controller.accounting.units import Units, UsualRequests, drains, of_use, unavailable, vacancy
from fairlead.engine.allocator.candidates import taints
from fairlead.engine.inventory.device import Device
from fairlead.engine.inventory.inventory import Inventory
from fairlead.engine.inventory.nodes import NodeInfo
from fairlead.engine.inventory.pool import Pool
from fairlead.history.ledger.entries import Unit
from fairlead.kube.device_usage import DeviceId
from fairlead.kube.resource import DeviceTaintRuleSpec
from fairlead.ui.model.devices import GpuPlace, Places
from fairlead.ui.model.facts import Hardware, Holder, Usage

K = TypeVar("K")
V = TypeVar("V")
State = Literal["free", "nominated", "starting", "idle", "held", "fragmented", "drained", "broken"]
STATES: tuple[State, ...] = ("held", "idle", "starting", "nominated", "free", "fragmented", "drained", "broken")
Placed = Literal["in use", "free", "unavailable"]
PLACED: Mapping[State, Placed] = {
    **dict.fromkeys(("held", "idle", "starting"), "in use"),
    **dict.fromkeys(("nominated", "free", "fragmented"), "free"),
    **dict.fromkeys(("drained", "broken"), "unavailable"),
}
"""States taken together, in every view: a claim holds it, one could, or none may."""
MEANING: Mapping[State, str] = {
    "held": "held by a claim",
    "idle": "held by a claim, and idle",
    "starting": "held by a claim whose pods do not run yet",
    "nominated": "free, its node is kept for a gang",
    "free": "free",
    "fragmented": "free, but no usual request could be given it now",
    "drained": "free, and kept back: drained, or its node is cordoned",
    "broken": "free, but tainted, or its node is away",
}
RACK_LABELS = ("rack", "topology-subblock", "topology-block", "network-node-layer-3", "gpu.clique", "zone")
"""Names of labels that say where a node stands, whatever their prefix, the nearest first."""


def number(counts: Mapping[State, int], placed: Placed) -> int:
    return sum(count for state, count in counts.items() if PLACED[state] == placed)


_HOLDS: tuple[State, ...] = ("held", "starting", "idle")  # a GPU with parts in several states: the first of these


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """A claim on a device. `claim` and `gang` are namespace/name; `gang` "": none that is known. `elsewhere`: both are of a namespace that
    the viewer may not see, and "".
    """

    claim: str
    gang: str
    queue: str
    state: State
    idle_since: float | None = None  # unix seconds
    utilization_percent: int | None = None  # mean, as the driver wrote last; of a shared device that of all its claims
    share: str = ""  # of a shared device, what the claim has of it and uses
    elsewhere: bool = False
    evicting: bool = False  # its gang's eviction is set


@dataclass(frozen=True, slots=True, kw_only=True)
class PartView:
    """A MIG device inside its GPU: `size` of the GPU's `slices`, from `start`."""

    name: str
    profile: str
    start: int
    size: int
    state: State
    holds: tuple[Hold, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuView:
    """`rest` is the state of what no part takes; `kept_for` the gang that its node is kept free for."""

    name: str
    product: str
    island: str
    state: State
    slices: int
    rest: State
    holds: tuple[Hold, ...] = ()
    parts: tuple[PartView, ...] = ()
    note: str = ""  # why nothing new is placed on it; one that no claim holds is then drained or broken
    kept_for: str = ""

    @property
    def queue(self) -> str | None:
        """The queue of the claim that holds all of it; None where none does."""
        return self.holds[0].queue if self.holds else None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """`problem`: why nothing is placed there; "" where something is."""

    name: str
    gpus: tuple[GpuView, ...]
    problem: str = ""
    rack: str = ""  # the value of the first of `RACK_LABELS` that it has

    @property
    def queues(self) -> frozenset[str]:
        """The queues of the claims that hold something there."""
        found = {hold.queue for gpu in self.gpus for hold in gpu.holds}
        return frozenset(found.union(hold.queue for gpu in self.gpus for part in gpu.parts for hold in part.holds))

    @property
    def islands(self) -> tuple[tuple[str, tuple[GpuView, ...]], ...]:
        """Consecutive GPUs of one NVLink island; "" for those without."""
        found: list[tuple[str, list[GpuView]]] = []
        for gpu in self.gpus:
            if not found or found[-1][0] != gpu.island:
                found.append((gpu.island, []))
            found[-1][1].append(gpu)
        return tuple((island, tuple(gpus)) for island, gpus in found)

    def of(self, placed: Placed) -> int:
        return number(Counter(gpu.state for gpu in self.gpus), placed)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """`counts`: GPUs by state; a GPU that is held in part counts as its parts. `queues`: that hold something, by name."""

    nodes: tuple[NodeView, ...]
    counts: Mapping[State, int]
    queues: tuple[str, ...]
    problems: tuple[str, ...] = ()  # pools that cannot be used

    @property
    def gpus(self) -> int:
        return sum(self.counts.values())


@dataclass(kw_only=True)
class Memory:
    """What is kept from one picture to the next of one cluster, for viewers of the same rights; it changes no picture.

    Only nodes of which something changed are drawn again: the others are the same objects as in the picture before.
    """

    places: Places = field(default_factory=Places)
    _before: Hardware | None = None
    _usual: UsualRequests | None = None
    _inventory_at: int = 0  # cursors of what changed
    _nodes_at: int = 0
    _nodes: dict[str, NodeView] = field(default_factory=dict)
    _view: ClusterView | None = None

    def draw(self, hardware: Hardware) -> ClusterView:
        """Draw the cluster: the same reading gives the same picture."""
        if self._view is not None and hardware is self._before:
            return self._view
        changed = self._changed(hardware)
        if self._usual is None or changed is None:
            self._usual = UsualRequests(hardware.workload, hardware.classes)
        self._nodes = _Picture(hardware, self.places, self._usual).draw({} if changed is None else self._nodes, changed)
        self._before = hardware
        self._inventory_at, self._nodes_at = hardware.inventory.changes.cursor, hardware.nodes.changes.cursor
        self._view = _view(hardware.inventory, tuple(self._nodes.values()))
        return self._view

    def _changed(self, now: Hardware) -> set[str] | None:
        """Names of nodes that may look different; None: all may."""
        before = self._before
        if (
            before is None
            or before.inventory is not now.inventory
            or before.nodes is not now.nodes
            or before.workload is not now.workload
            or before.classes != now.classes
            or before.namespaces != now.namespaces
        ):
            return None
        devices, nodes = now.inventory.changes.since(self._inventory_at), now.nodes.changes.since(self._nodes_at)
        if devices is None or nodes is None:
            return None
        found = {*devices, *nodes, *_differing(before.reserved, now.reserved)}
        evicting = before.evicting ^ now.evicting
        ending = {uid for uid, holder in now.holders.items() if holder.gang in evicting} if evicting else set[str]()
        for uid in ending.union(_differing(before.holders, now.holders)):
            claim = now.inventory.claim(uid)
            for each in claim.devices if claim is not None else ():
                found.update(_where(now.inventory, each.ref.driver, each.ref.pool, each.ref.device))
        for device in _differing(before.usage, now.usage):
            found.update(_where(now.inventory, device.driver, device.pool, device.device))
        return found


def cluster(hardware: Hardware, memory: Memory | None = None) -> ClusterView:
    return (memory or Memory()).draw(hardware)


def _differing(before: Mapping[K, V], now: Mapping[K, V]) -> Iterable[K]:
    if before is now:
        return
    for key, value in now.items():
        known = before.get(key)
        if known is not value and known != value:
            yield key
    if len(before) != len(now) or before.keys() != now.keys():
        yield from before.keys() - now.keys()


def _where(inventory: Inventory, driver: str, pool: str, device: str) -> Collection[str]:
    """Names of the nodes that reach the device."""
    published = inventory.pool(driver, pool)
    found = published.devices.get(device) if published is not None else None
    if published is None or found is None:
        return ()
    return published.local.keys() if found.node is None else {found.node}


def _view(inventory: Inventory, nodes: tuple[NodeView, ...]) -> ClusterView:
    counts: dict[State, int] = dict.fromkeys(STATES, 0)
    queues: set[str] = set()
    for node in nodes:
        for gpu in node.gpus:
            counts[gpu.state] += 1
        queues |= node.queues
    unusable = (pool.problem for pool in inventory.pools() if pool.problem is not None)
    problems = tuple(dict.fromkeys((*unusable, *inventory.ignored_slices())))
    return ClusterView(nodes=nodes, counts=counts, queues=tuple(sorted(queues)), problems=problems)


class _Picture:
    def __init__(self, hardware: Hardware, places: Places, usual: UsualRequests) -> None:
        self._hardware = hardware
        self._places = places
        self._units = Units(hardware.inventory)
        self._usual = usual

    @cached_property
    def _of_shares(self) -> dict[tuple[str, str, str, str], Usage]:
        """By claim UID, driver, pool and device."""
        return {(usage.claim, *id_[:3]): usage for id_, usage in self._hardware.usage.items() if usage.claim}

    def draw(self, known: Mapping[str, NodeView], changed: Collection[str] | None) -> dict[str, NodeView]:
        """The nodes by name, in their order. `changed`: those that are drawn though they are known; None: all."""
        by_node: dict[str, list[Pool]] = {}
        for pool in self._hardware.inventory.pools():
            for name in pool.local:
                by_node.setdefault(name, []).append(pool)
        return {
            name: self._node(name, by_node[name])
            if changed is None or name in changed or name not in known
            else known[name]
            for name in (known if known.keys() == by_node.keys() else sorted(by_node, key=natural))
        }

    def _node(self, name: str, pools: Iterable[Pool]) -> NodeView:
        info = self._hardware.nodes.get(name)
        useful: set[Unit] | None = None
        if info is not None and self._usual.all:
            useful = of_use(info, self._hardware.inventory.on_node(name, info.labels), self._usual, self._units)
        gpus = [
            self._gpu(pool, gpu, name, info, useful)
            for pool in pools
            for gpu in self._places.of(pool)
            if _on(gpu, name)
        ]
        rack = "" if info is None else _rack(info.labels)
        return NodeView(name=name, gpus=tuple(gpus), problem=_problem(info), rack=rack)

    def _gpu(
        self, pool: Pool, place: GpuPlace, node: str, info: NodeInfo | None, useful: Collection[Unit] | None
    ) -> GpuView:
        holds = self._held(place.whole) if place.whole is not None else ()
        rules = self._hardware.inventory.rules
        closed = unavailable(info, place.devices, rules) if pool.problem is None else "broken"
        kept_for = self._hardware.reserved.get(node, "")
        unit = self._units.of(place.devices[0])
        vacant = vacancy(unit, closed=closed, reserved=bool(kept_for), useful=useful)
        parts = tuple(
            self._part(part.device, part.profile, part.start, part.size, holds=held, vacant=vacant)
            for part in place.parts
            if (held := () if part.device.use is None else self._held(part.device)) or place.cut
        )
        states = {hold.state for hold in holds} or {part.state for part in parts}
        state = next((each for each in _HOLDS if each in states), vacant)
        note = (pool.problem or _problem(info) or _tainted(place, rules)) if closed else ""
        return GpuView(
            name=place.name, product=place.product, island=place.island, state=state, slices=place.slices, rest=vacant, holds=holds,
            parts=parts, note=note, kept_for=kept_for,
        )  # fmt: skip

    def _part(
        self, device: Device, profile: str, start: int, size: int, *, holds: tuple[Hold, ...], vacant: State
    ) -> PartView:
        state: State = holds[0].state if holds else vacant
        return PartView(name=device.name, profile=profile, start=start, size=size, state=state, holds=holds)

    def _held(self, device: Device) -> tuple[Hold, ...]:
        use = device.use
        if use is None or not use.claims:
            return ()
        return tuple(self._hold(uid, device) for uid in use.claims)

    def _hold(self, uid: str, device: Device) -> Hold:
        ref = device.ref
        usage = self._hardware.usage.get(DeviceId(ref.driver, ref.pool, ref.device))
        if usage is None and device.kind.shared:
            usage = self._of_shares.get((uid, ref.driver, ref.pool, ref.device))
        since = usage.idle_since if usage is not None else None
        claim = self._hardware.inventory.claim(uid)
        holder = self._hardware.holders.get(uid, Holder())
        state: State = "starting" if holder.starting else "idle" if since is not None else "held"
        seen = self._hardware.namespaces is None or (claim is not None and claim.namespace in self._hardware.namespaces)
        return Hold(
            claim=(str(claim) if claim is not None else uid) if seen else "",
            gang=holder.gang if seen else "",
            queue=holder.queue,
            state=state,
            idle_since=since,
            utilization_percent=usage.percent if usage is not None else None,
            share=usage.share if usage is not None and seen else "",
            elsewhere=not seen,
            evicting=seen and holder.gang in self._hardware.evicting,
        )


def _on(gpu: GpuPlace, node: str) -> bool:
    return gpu.devices[0].node == node


def _rack(labels: Mapping[str, str]) -> str:
    by_name = {key.rpartition("/")[2]: value for key, value in sorted(labels.items())}
    return next((by_name[name] for name in RACK_LABELS if by_name.get(name)), "")


def _problem(info: NodeInfo | None) -> str:
    if info is None:
        return "the node does not exist any more"
    if not info.ready:
        return "the node is not ready"
    return "the node is cordoned" if info.unschedulable else ""


def _tainted(place: GpuPlace, rules: Iterable[DeviceTaintRuleSpec]) -> str:
    found = [taint for device in place.devices for taint in taints(device, rules)]
    others = sorted({f"{each.key}={each.value}" if each.value else each.key for each in found if not drains(each)})
    said = ["drained; see fairlead device list"] if any(map(drains, found)) else []  # by which user, since when and why
    return "; ".join([*said, *([f"tainted: {', '.join(others)}"] if others else [])])
