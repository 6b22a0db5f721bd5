"""One run of the MIG trace: requests in order of arrival, without departures or with them, and what is counted of it.

A request that fits nowhere is refused at once; nothing moves. Without departures one run gives all loads: the figures at a
load are those after the last arrival with which no more than that share of the compute slices was requested. With departures
each load is a run of its own: requests arrive at random and run for exponential times, as many slices are requested at a time as
the load says, and figures are means over time after a start that does not count.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from benchmarks.mig.baselines import ListedFleet, Rule
from benchmarks.mig.engine_fleet import EngineFleet
from benchmarks.mig.hardware import Cluster, Hardware
from benchmarks.mig.layouts import layouts_for
from benchmarks.mig.published import read
from benchmarks.mig.requests import Arrival, MigRequest, arrivals, demand_shares, mix_of, timed_arrivals
from fairlead.driver.publish.slices import SliceBody

LOADS = (80, 90, 100, 130)  # percent of the cluster's compute slices
POLICIES = ("fairlead", "best-fit", "first-fit")
START, MEASURED = 3.0, 6.0  # mean running times


class Fleet(Protocol):
    def place(self, request: MigRequest) -> int | None: ...

    def release(self, number: int) -> None: ...


@dataclass(slots=True)
class Figures:
    """What one load gave. `allocated`: percent of the compute slices; requests by kind: how many came, how many were refused."""

    allocated: float = 0.0
    came: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)

    def note(self, request: MigRequest, *, placed: bool) -> None:
        kinds = ["all"]
        if not request.profile:
            kinds.append("whole")
        elif request.large:
            kinds.append("large")
        for kind in kinds:
            self.came[kind] = self.came.get(kind, 0) + 1
            self.refused[kind] = self.refused.get(kind, 0) + (not placed)


def fleet(cluster: Cluster, policy: str, mix: Mapping[str, float], *, static: bool) -> Fleet:
    """The empty cluster, with the rule that places."""
    bodies: dict[Hardware, tuple[SliceBody, ...]] = {}
    per_node: list[tuple[Hardware, tuple[SliceBody, ...]]] = []
    if static:
        per_node = _cut(cluster, mix)
    else:
        for node in cluster.nodes:
            if node not in bodies:
                bodies[node] = node.published(None)
            per_node.append((node, bodies[node]))
    if policy == "fairlead":
        least = {name: size for node, each in per_node for name, size in read(node, each).sizes.items()}
        return EngineFleet([each for _, each in per_node], least if static else None)
    rule: Rule = "best-fit" if policy == "best-fit" else "first-fit"
    return ListedFleet([read(node, each) for node, each in per_node], rule, static=static)


def _cut(cluster: Cluster, mix: Mapping[str, float]) -> list[tuple[Hardware, tuple[SliceBody, ...]]]:
    """Each node with the devices of its static layouts; nodes of one kind are cut together."""
    numbers: dict[Hardware, int] = {}
    for node in cluster.nodes:
        numbers[node] = numbers.get(node, 0) + 1
    layouts = {}
    for node, number in numbers.items():
        shares, whole = demand_shares(node, mix)
        layouts[node] = layouts_for(node.sizes, number * len(node.gpus), shares, whole)
    taken: dict[Hardware, int] = {}
    found = []
    for node in cluster.nodes:
        first = taken.get(node, 0)
        taken[node] = first + len(node.gpus)
        found.append((node, node.published(layouts[node][first : first + len(node.gpus)])))
    return found


def fill(into: Fleet, capacity: int, requests: Sequence[MigRequest]) -> dict[int, Figures]:
    """Figures by load; nothing departs."""
    found: dict[int, Figures] = {}
    now = Figures()
    arrived = allocated = 0
    for request in requests:
        arrived += request.slices
        placed = into.place(request) is not None
        allocated += request.slices if placed else 0
        now.note(request, placed=placed)
        for load in LOADS:
            if 100 * arrived <= load * capacity:
                found[load] = Figures(100 * allocated / capacity, dict(now.came), dict(now.refused))
    return found


def churn(into: Fleet, capacity: int, arrivals: Sequence[Arrival]) -> Figures:
    """Means over time from `START` until the last arrival."""
    found = Figures()
    running: list[tuple[float, int, int]] = []  # when it ends, number, slices
    allocated = 0
    area, since = 0.0, START
    for arrival in arrivals:
        while running and running[0][0] <= arrival.at:
            ended, number, slices = heapq.heappop(running)
            if ended > since:
                area, since = area + allocated * (ended - since), ended
            into.release(number)
            allocated -= slices
        if arrival.at > since:
            area, since = area + allocated * (arrival.at - since), arrival.at
        placed = into.place(arrival.request)
        if arrival.at > START:
            found.note(arrival.request, placed=placed is not None)
        if placed is not None:
            allocated += arrival.request.slices
            heapq.heappush(running, (arrival.at + arrival.runs, placed, arrival.request.slices))
    found.allocated = 100 * area / capacity / (since - START) if since > START else 0.0
    return found


def measure(
    cluster: Cluster, mix: str, seed: int, policy: str, *, static: bool, departures: bool
) -> tuple[dict[int, Figures], int]:
    """One seed and policy: figures by load, and how many requests arrived."""
    weights = mix_of(mix, seed)
    if not departures:
        requests = arrivals(cluster, weights, seed, dynamic=not static)
        return fill(fleet(cluster, policy, weights, static=static), cluster.capacity, requests), len(requests)
    found: dict[int, Figures] = {}
    number = 0
    for load in LOADS:
        timed = timed_arrivals(cluster, weights, seed, dynamic=not static, load=load / 100, until=START + MEASURED)
        number += len(timed)
        found[load] = churn(fleet(cluster, policy, weights, static=static), cluster.capacity, timed)
    return found, number
