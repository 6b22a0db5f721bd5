"""Does an allocation exist, and which alternatives would Kubernetes choose? By trying everything, from the raw JSON of a case.

Checks the allocator's completeness: `judge` decides whether an allocation is valid, this whether there is one.
It shares no code with the allocator: candidates are filtered one by one, every partial answer is checked from scratch, and only
what is already invalid is pruned. For clusters of a handful of devices only.
Order is upstream's: claims, requests, alternatives as written; pools by (binding conditions last, driver, name), slices by name.
Source: resource/v1 types.go; k/k structured allocator; shared devices serve several requests of a claim, one request once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import combinations
from typing import Any, NamedTuple

from tests.support.engine.judge import Judge, consumption, is_made, number, tolerated

Json = Mapping[str, Any]
Id = tuple[str, str, str]
RESULTS_MAX = 32


class Chosen(NamedTuple):
    """One device for one request of one claim; `request` as results spell it."""

    claim: int
    request: str
    ask: Json
    device: Id


def first_answer(case: Json) -> list[Chosen] | None:
    """The first answer in upstream's order; None when there is none at all."""
    return next(_Exhaustive(case).answers(), None)


class _Exhaustive:
    def __init__(self, case: Json) -> None:
        self.node = case["node"]["metadata"]["name"]
        self.claims = case["claims"]
        self.judge = Judge([case["node"]], case["classes"], case["slices"], case["allocated"], case["consumed"])
        self.order, self.broken = self._devices(case["slices"])
        self.slots = [
            (number, request)
            for number, claim in enumerate(self.claims)
            for request in claim["spec"]["devices"]["requests"]
        ]

    def _devices(self, slices: Sequence[Json]) -> tuple[list[Id], bool]:
        """The usable devices of the node in order, and whether some pool here cannot be used."""
        pools: dict[tuple[str, str], list[Json]] = {}
        for entry in slices:
            pools.setdefault((entry["spec"]["driver"], entry["spec"]["pool"]["name"]), []).append(entry)
        found: list[tuple[bool, str, str, list[Id]]] = []
        broken = False
        for (driver, pool), entries in pools.items():
            newest = max(entry["spec"]["pool"].get("generation", 0) for entry in entries)
            current = sorted(
                (entry for entry in entries if entry["spec"]["pool"].get("generation", 0) == newest),
                key=lambda entry: str(entry["metadata"]["name"]),
            )
            devices = [(device, entry["spec"]) for entry in current for device in entry["spec"].get("devices", ())]
            here = [
                (driver, pool, device["name"])
                for device, spec in devices
                if self.judge.reaches(spec, device, self.node)
            ]
            if not here:
                continue
            if not _valid([entry["spec"] for entry in current], [device for device, _ in devices]):
                broken = True
                continue
            found.append((any(device.get("bindingConditions") for device, _ in devices), driver, pool, here))
        return [key for entry in sorted(found) for key in entry[3]], broken

    # ------------------------------------------------------------------------------------------------- every answer

    def answers(self, so_far: tuple[Chosen, ...] = (), slot: int = 0) -> Iterator[list[Chosen]]:
        if slot == len(self.slots):
            yield list(so_far)
            return
        claim, request = self.slots[slot]
        for name, ask in _alternatives(request):
            for devices in self._options(ask):
                chosen = (*so_far, *(Chosen(claim, name, ask, device) for device in devices))
                if self._holds(chosen):
                    yield from self.answers(chosen, slot + 1)

    def _options(self, ask: Json) -> Iterable[tuple[Id, ...]]:
        passing = [key for key in self.order if self._passes(ask, key)]
        if ask.get("allocationMode", "ExactCount") == "ExactCount":
            fit = [key for key in passing if not self._tainted(ask, key)]
            return combinations(fit, ask.get("count", 1))
        wanted = tuple(key for key in passing if self._has_room(ask, key))
        if self.broken or not wanted or any(self._tainted(ask, key) for key in wanted):
            return ()
        return (wanted,)

    def _passes(self, ask: Json, key: Id) -> bool:
        device = self.judge.devices[key][0]
        return self.judge.selected(ask, key) and consumption(ask, device) is not None

    def _tainted(self, ask: Json, key: Id) -> bool:
        taints = self.judge.devices[key][0].get("taints", ())
        return any(
            taint["effect"] in {"NoSchedule", "NoExecute"} and not tolerated(taint, ask.get("tolerations", ()))
            for taint in taints
        )

    def _has_room(self, ask: Json, key: Id) -> bool:
        """Of a shared device: room for one such request more than before. An exclusive one always belongs to `All`, if it exists."""
        device = self.judge.devices[key][0]
        if ask.get("adminAccess") and is_made(device):
            return key in self.judge.drawn_before
        if not device.get("allowMultipleAllocations"):
            return True
        takes = consumption(ask, device) or {}
        return all(
            self.judge.shared_before.get((key, name), Fraction(0)) + value <= number(device["capacity"][name]["value"])
            for name, value in takes.items()
        )

    # -------------------------------------------------------------------------------------- what every answer must keep

    def _holds(self, chosen: tuple[Chosen, ...]) -> bool:
        return (
            self._few(chosen)
            and self._exclusive(chosen)
            and self._within_capacity(chosen)
            and self._within_counters(chosen)
            and self._constrained(chosen)
        )

    def _few(self, chosen: tuple[Chosen, ...]) -> bool:
        counts = [sum(1 for entry in chosen if entry.claim == claim) for claim in range(len(self.claims))]
        return max(counts, default=0) <= RESULTS_MAX

    def _exclusive(self, chosen: tuple[Chosen, ...]) -> bool:
        holders: dict[Id, int] = {}
        mine: set[tuple[int, Id]] = set()
        for entry in chosen:
            shared = self.judge.devices[entry.device][0].get("allowMultipleAllocations")
            if entry.ask.get("adminAccess"):
                if is_made(self.judge.devices[entry.device][0]) and entry.device not in self.judge.drawn_before:
                    return False  # no MIG device is made to be looked at
            else:
                if entry.device in self.judge.before or (not shared and holders.get(entry.device)):
                    return False
                holders[entry.device] = holders.get(entry.device, 0) + 1
            if not shared and (entry.claim, entry.device) in mine:
                return False
            mine.add((entry.claim, entry.device))
        return True

    def _within_capacity(self, chosen: tuple[Chosen, ...]) -> bool:
        used = dict(self.judge.shared_before)
        for entry in chosen:
            device = self.judge.devices[entry.device][0]
            for name, value in (consumption(entry.ask, device) or {}).items():
                key = (entry.device, name)
                after = used.get(key, Fraction(0)) + value
                if after > number(device["capacity"][name]["value"]):
                    return False
                if not entry.ask.get("adminAccess"):
                    used[key] = after
        return True

    def _within_counters(self, chosen: tuple[Chosen, ...]) -> bool:
        drawing = self.judge.drawn_before | {entry.device for entry in chosen if not entry.ask.get("adminAccess")}
        touched = {entry.device[:2] for entry in chosen if not entry.ask.get("adminAccess")}
        drawn: dict[tuple[str, str, str, str], Fraction] = {}
        for key in drawing:
            for entry in self.judge.devices.get(key, ({}, {}))[0].get("consumesCounters", ()):
                for name, counter in entry["counters"].items():
                    at = (key[0], key[1], entry["counterSet"], name)
                    drawn[at] = drawn.get(at, Fraction(0)) + number(counter["value"])
        return all(value <= self.judge.totals_of[at] for at, value in drawn.items() if at[:2] in touched)

    def _constrained(self, chosen: tuple[Chosen, ...]) -> bool:
        for claim, body in enumerate(self.claims):
            mine = [entry for entry in chosen if entry.claim == claim]
            for constraint in body["spec"]["devices"].get("constraints", ()):
                names = set(constraint.get("requests", ()))
                over = [
                    self.judge.values(entry.device, constraint.get("matchAttribute") or constraint["distinctAttribute"])
                    for entry in mine
                    if not names or entry.request in names or entry.request.partition("/")[0] in names
                ]
                if not all(over):
                    return False
                if "matchAttribute" in constraint and over and not frozenset.intersection(*over):
                    return False
                if "distinctAttribute" in constraint and any(one & other for one, other in combinations(over, 2)):
                    return False
        return True


def _alternatives(request: Json) -> list[tuple[str, Json]]:
    if "exactly" in request:
        return [(request["name"], request["exactly"])]
    return [(f"{request['name']}/{sub['name']}", sub) for sub in request["firstAvailable"]]


def _valid(specs: Sequence[Json], devices: Sequence[Json]) -> bool:
    """A pool that may be used: complete, names unique, every counter that is drawn from published once."""
    if any(spec["pool"]["resourceSliceCount"] != len(specs) for spec in specs):
        return False
    names = [device["name"] for device in devices]
    sets = [entry for spec in specs for entry in spec.get("sharedCounters", ())]
    if len(names) != len(set(names)) or len(sets) != len({entry["name"] for entry in sets}):
        return False
    published = {(entry["name"], name) for entry in sets for name in entry["counters"]}
    return all(
        (entry["counterSet"], name) in published
        for device in devices
        for entry in device.get("consumesCounters", ())
        for name in entry["counters"]
    )
