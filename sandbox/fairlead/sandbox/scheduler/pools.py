"""Which devices a node can use: pools assembled from ResourceSlices, and what is left of their counters.

Only the highest generation of a pool counts, and a pool of which a slice is missing offers no device.
Source: k8s.io/dynamic-resource-allocation/structured (`GatherPools`), 1.36.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fairlead.kube.quantity import Quantity
from fairlead.sandbox.node_fit import matches_selector
from fairlead.sandbox.objects import Obj, name_of, spec_of

DeviceKey = tuple[str, str, str]  # driver, pool, device
CounterKey = tuple[str, str, str, str]  # driver, pool, counter set, counter


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidate:
    key: DeviceKey
    device: Obj
    slice: Obj
    consumes: tuple[tuple[CounterKey, Quantity], ...]

    @property
    def shared(self) -> bool:
        return bool(self.device.get("allowMultipleAllocations"))

    def attribute(self, qualified: str) -> Any:
        """The value of a fully qualified attribute; one without a domain belongs to the driver's."""
        attributes: Mapping[str, Any] = self.device.get("attributes") or {}
        domain, _, name = qualified.rpartition("/")
        found = attributes.get(qualified)
        if found is None and domain == self.key[0]:
            found = attributes.get(name)
        if found is None:
            return None
        return next(((kind, value) for kind, value in sorted(found.items())), None)


@dataclass(kw_only=True)
class Pool:
    driver: str
    name: str
    complete: bool
    candidates: list[Candidate] = field(default_factory=list)
    counters: dict[CounterKey, Quantity] = field(default_factory=dict)
    everything: list[Candidate] = field(default_factory=list)  # also devices that only other nodes can use


def gather(slices: Iterable[Obj], node: Obj, *, incomplete: bool = False) -> list[Pool]:
    """The pools with devices for the node, in the order of driver and pool; slices by name, devices as listed.

    `incomplete`: a pool of which slices are missing offers the devices of the others, as in 1.34.
    """
    newest: dict[tuple[str, str], list[Obj]] = {}
    for each in sorted(slices, key=name_of):
        spec = spec_of(each)
        key = (str(spec["driver"]), str(spec["pool"]["name"]))
        known = newest.setdefault(key, [])
        if not known or _generation(each) > _generation(known[0]):
            newest[key] = [each]
        elif _generation(each) == _generation(known[0]):
            known.append(each)
    pools = [_pool(key, members, node, incomplete=incomplete) for key, members in sorted(newest.items())]
    return [pool for pool in pools if pool is not None]


def _generation(slice_: Obj) -> int:
    return int(spec_of(slice_)["pool"].get("generation") or 0)


def _pool(key: tuple[str, str], members: Sequence[Obj], node: Obj, *, incomplete: bool) -> Pool | None:
    driver, name = key
    if not any(_reaches(spec_of(each), node) or spec_of(each).get("perDeviceNodeSelection") for each in members):
        return None
    complete = len(members) == int(spec_of(members[0])["pool"].get("resourceSliceCount") or 1)
    pool = Pool(driver=driver, name=name, complete=complete)
    if not complete and not incomplete:
        return pool
    for slice_ in members:
        for shared in spec_of(slice_).get("sharedCounters") or ():
            for counter, value in (shared.get("counters") or {}).items():
                pool.counters[driver, name, str(shared["name"]), counter] = Quantity.of(value["value"])
    seen: set[str] = set()
    for slice_ in members:
        for device in spec_of(slice_).get("devices") or ():
            if device["name"] in seen:
                return Pool(driver=driver, name=name, complete=False)  # an invalid pool is not used at all
            seen.add(device["name"])
            candidate = Candidate(
                key=(driver, name, str(device["name"])),
                device=device,
                slice=slice_,
                consumes=tuple(
                    ((driver, name, str(used["counterSet"]), counter), Quantity.of(value["value"]))
                    for used in device.get("consumesCounters") or ()
                    for counter, value in (used.get("counters") or {}).items()
                ),
            )
            pool.everything.append(candidate)
            where = device if spec_of(slice_).get("perDeviceNodeSelection") else spec_of(slice_)
            if _reaches(where, node):
                pool.candidates.append(candidate)
    return pool


def _reaches(where: Mapping[str, Any], node: Obj) -> bool:
    if where.get("nodeName"):
        return str(where["nodeName"]) == name_of(node)
    if where.get("allNodes"):
        return True
    selector = where.get("nodeSelector")
    return selector is not None and matches_selector(selector, node)


def free_counters(pools: Iterable[Pool], allocated: Collection[DeviceKey]) -> dict[CounterKey, Quantity]:
    """What is left of every counter after the devices that are allocated."""
    free: dict[CounterKey, Quantity] = {}
    for pool in pools:
        free |= pool.counters
        for candidate in pool.everything:
            if candidate.key in allocated:
                for key, used in candidate.consumes:
                    free[key] = free.get(key, Quantity.of(0)) - used
    return free


def node_selector(candidates: Sequence[Candidate], node_name: str) -> Obj | None:
    """Where the allocation can be used: this node for node-local devices, else what the slices say, None for all."""
    expressions: list[Obj] = []
    for candidate in candidates:
        where = candidate.device if spec_of(candidate.slice).get("perDeviceNodeSelection") else spec_of(candidate.slice)
        if where.get("nodeName") or candidate.device.get("bindsToNode"):
            field_ = {"key": "metadata.name", "operator": "In", "values": [node_name]}
            return {"nodeSelectorTerms": [{"matchFields": [field_]}]}
        for term in (where.get("nodeSelector") or {}).get("nodeSelectorTerms") or ():
            expressions += [each for each in term.get("matchExpressions") or () if each not in expressions]
    return {"nodeSelectorTerms": [{"matchExpressions": expressions}]} if expressions else None
