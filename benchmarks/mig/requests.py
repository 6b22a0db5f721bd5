"""The trace: which requests arrive, in which order, and how long they run. A function of cluster, mix and seed alone.

A mix says how often each class of request arrives. Of the nodes that have the class, one kind is drawn by their number, and the
request names what it publishes: a MIG profile, or its product for whole GPUs. Nothing is recorded of real users: mixes are made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from random import Random

from benchmarks.mig.hardware import Cluster, Hardware
from fairlead.driver.backend.types import MigProfile

INFLATED_TO = 1.3
MIXES: Mapping[str, Mapping[str, float]] = {
    "even": {
        "1g": 20, "1g-double": 8, "2g": 14, "3g": 10, "4g": 6,
        "1 GPU": 8, "2 GPUs": 3, "4 GPUs": 1.5, "8 GPUs": 0.7,
    },
    "small": {"1g": 50, "1g-double": 10, "2g": 15, "3g": 5, "4g": 2, "1 GPU": 3, "2 GPUs": 0.5, "8 GPUs": 0.2},
    "large": {
        "1g": 10, "1g-double": 3, "2g": 8, "3g": 12, "4g": 8,
        "1 GPU": 15, "2 GPUs": 5, "4 GPUs": 3, "8 GPUs": 2,
    },
    "partitions": {"1g": 30, "1g-double": 10, "2g": 20, "3g": 20, "4g": 15, "7g": 8},
}  # fmt: skip
"""How often each class arrives, by name of the mix. `1g-double`: one compute slice with twice the memory."""
DRAWN = "drawn"  # a mix of the seed's own


@dataclass(frozen=True, slots=True)
class MigRequest:
    """What a claim requests; equal for equal claims."""

    profile: str  # of the MIG device; empty: whole GPUs
    product: str  # of whole GPUs; empty: any
    gpus: int
    slices: int  # compute slices, of all its devices

    @property
    def large(self) -> bool:
        """Whether it takes much of a GPU: three compute slices or more."""
        return self.slices >= 3


@dataclass(frozen=True, slots=True)
class Arrival:
    """Times in mean running times."""

    at: float
    runs: float
    request: MigRequest


def mix_of(name: str, seed: int) -> Mapping[str, float]:
    """The weights of a mix. `drawn`: other weights for each seed, with up to half of the requests for whole GPUs."""
    if name != DRAWN:
        return MIXES[name]
    random = Random(f"mix {seed}")  # a simulation
    weights = {each: random.gammavariate(0.7, 1) for each in ("1g", "1g-double", "2g", "3g", "4g")}
    whole = sum(weights.values()) * random.uniform(0, 0.5)
    for count in (1, 2, 4, 8):
        weights[f"{count} GPU{'s' if count > 1 else ''}"] = whole * random.gammavariate(0.7, 1) / count / 4
    return weights


def arrivals(cluster: Cluster, mix: Mapping[str, float], seed: int, *, dynamic: bool) -> tuple[MigRequest, ...]:
    """In order, until the next would pass 130 % of the cluster's compute slices."""
    draw = _Draw(cluster, mix, dynamic=dynamic)
    random = Random(f"mig arrivals {seed}")  # a simulation
    target = INFLATED_TO * cluster.capacity
    found: list[MigRequest] = []
    total = 0
    while True:
        request = draw(random)
        total += request.slices
        if total > target:
            return tuple(found)
        found.append(request)


def timed_arrivals(
    cluster: Cluster, mix: Mapping[str, float], seed: int, *, dynamic: bool, load: float, until: float
) -> tuple[Arrival, ...]:
    """Poisson arrivals with exponential running times of mean 1, up to the time `until`.

    `load`: compute slices requested at a time, as a part of the cluster's, were nothing refused.
    """
    draw = _Draw(cluster, mix, dynamic=dynamic)
    random = Random(f"mig departures {seed}")  # a simulation
    rate = load * cluster.capacity / draw.mean_slices
    found: list[Arrival] = []
    at = random.expovariate(rate)
    while at < until:
        request = draw(random)
        found.append(Arrival(at, random.expovariate(1.0), request))
        at += random.expovariate(rate)
    return tuple(found)


def demand_shares(hardware: Hardware, mix: Mapping[str, float]) -> tuple[dict[str, float], float]:
    """The share of each profile in the compute slices that are requested of such nodes, and that of whole GPUs."""
    shares: dict[str, float] = {}
    whole = 0.0
    for name, weight in mix.items():
        request = _request(hardware, name, dynamic=False)
        if request is not None and request.profile:
            shares[request.profile] = shares.get(request.profile, 0.0) + weight * request.slices
        elif request is not None:
            whole += weight * request.slices
    total = sum(shares.values()) + whole
    return ({name: share / total for name, share in shares.items()}, whole / total) if total else ({}, 0.0)


class _Draw:
    """Draws one request after the other."""

    def __init__(self, cluster: Cluster, mix: Mapping[str, float], *, dynamic: bool) -> None:
        numbers: dict[Hardware, int] = {}
        for node in cluster.nodes:
            numbers[node] = numbers.get(node, 0) + 1
        self._choices: list[MigRequest] = []
        self._weights: list[float] = []
        for name, weight in mix.items():
            able = [(number, _request(node, name, dynamic=dynamic)) for node, number in numbers.items()]
            total = sum(number for number, request in able if request is not None)
            for number, request in able:
                if request is not None:
                    self._choices.append(request)
                    self._weights.append(weight * number / total)

    def __call__(self, random: Random) -> MigRequest:
        return random.choices(self._choices, self._weights)[0]

    @property
    def mean_slices(self) -> float:
        weighted = sum(each.slices * weight for each, weight in zip(self._choices, self._weights, strict=True))
        return weighted / sum(self._weights)


@lru_cache(maxsize=1024)
def _request(node: Hardware, name: str, *, dynamic: bool) -> MigRequest | None:
    """The class on such nodes; None where they have none of it."""
    if name.rsplit(" ", maxsplit=1)[-1].startswith("GPU"):
        count = int(name.split(" ", maxsplit=1)[0])
        if count > len(node.gpus) or (dynamic and not node.whole_gpus):
            return None
        return MigRequest("", node.gpus[0].product_name or "", count, count * node.slices_per_gpu)
    size = _size(node.sizes, name)
    return None if size is None else MigRequest(size.name, "", 1, size.compute_slices)


def _size(sizes: tuple[MigProfile, ...], name: str) -> MigProfile | None:
    compute, _, double = name.partition("g")
    alike = [size for size in sizes if size.compute_slices == int(compute) and "+" not in size.name]
    alike.sort(key=lambda size: size.memory_slices)
    place = 1 if double else 0
    return alike[place] if len(alike) > place else None
