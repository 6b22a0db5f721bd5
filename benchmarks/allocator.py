"""How fast the controller's core decides, and how its cost grows: decisions only, one core, simulated clusters.

Measures CPU time of `decide` in this process (other work on the machine does not count), from tables to plan; loading is a
figure of its own. The nodes are what our driver publishes for an HGX H100. The garbage collector is as a long-running
controller has it: what is loaded is frozen, and collected seldom. Bars: DESIGN 8 and issue 4.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from benchmarks.measured import figure
from fairlead.api import names
from fairlead.driver.backend import profiles
from fairlead.driver.backend.simulated.backend import SimulatedBackend
from fairlead.driver.publish import slices
from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.plan import Plan
from fairlead.kube import core, resource
from fairlead.kube.garbage import THRESHOLDS
from tests.support.engine.objects import GPU, MIG, claim_spec, device_request, gang
from tests.support.engine.world import World

PROFILE = "hgx-h100"
NODE = "node-placeholder"
ONE = claim_spec(device_request())
EIGHT = claim_spec(device_request(8))
SMALL_MIG = claim_spec(
    device_request(device_class=MIG, cel=f'device.attributes["{names.DRIVER}"].profile == "1g.10gb"')
)


def figures() -> list[dict[str, Any]]:
    """The table, as DESIGN 9 has it: figure, value, unit, bar."""
    found: list[dict[str, Any]] = []
    for nodes in (100, 1_000, 10_000):
        found += _mig(nodes, bars=nodes == 10_000)
    for nodes, bar in ((100, None), (500, 20_000.0), (1_000, None), (10_000, 10_000.0)):
        found += _whole_gpus(nodes, bar)
    return [*found, *_unlike(200, 3_000), *_rails(500, (32, 64))]


def _rails(nodes: int, sizes: tuple[int, ...]) -> list[dict[str, Any]]:
    """Gangs of half a node each on the same rails, where each node has three to six rails free at random: the first decision."""
    world = _cluster(nodes, partitioned=False)
    draw = random.Random(1)
    for number in range(nodes):
        node = f"node-{number:05d}"
        for minor in draw.sample(range(8), draw.randint(2, 5)):
            results = [{"request": "r0", "driver": names.DRIVER, "pool": node, "device": f"gpu-{minor}"}]
            claim = {
                "metadata": {"name": f"{node}-{minor}", "namespace": "ml", "uid": f"{node}-{minor}"},
                "spec": ONE,
                "status": {"allocation": {"devices": {"results": results}}},
            }
            world.inventory.set_claim(msgspec.convert(claim, resource.ResourceClaim))
    _settle()
    found = []
    for pods in sizes:
        asked = gang(f"rails-{pods}", pods, claim_spec(device_request(4)), align=f"{names.DRIVER}/rail")
        seconds, plan = _timed(partial(_decide, world, asked), warm=0)
        outcome = "place" if plan.admissions else "refuse"
        assert plan.admissions or "can be had by" in plan.waiting[0].reason.message
        found.append(figure(f"allocator/rails-{outcome}-{pods}x4/{nodes}x8", seconds, "s", 0.5))
    return found


def _unlike(nodes: int, count: int) -> list[dict[str, Any]]:
    """Pods of which no two are alike wait for a full cluster: the first decision on them, and the next."""
    world = _cluster(nodes, partitioned=False)
    jobs = [gang(f"job-{number:05d}", 1, ONE, created=float(number)) for number in range(8 * nodes)]
    world.carry_out(world.decide(*jobs), jobs)
    waiting = [gang(f"unlike-{number}", 1, ONE, cpu=f"{1_000 + number}m", created=1e4) for number in range(count)]
    _settle()
    label = f"allocator/unlike-{count}/{nodes}x8"
    first, plan = _timed(lambda: _decide(world, *waiting), warm=0)
    assert len(plan.waiting) == count
    again, plan = _timed(lambda: _decide(world, *waiting), warm=0)
    return [figure(label, first, "s", 1.0), figure(f"{label}/again", again, "s", None)]


def _whole_gpus(nodes: int, bar: float | None) -> list[dict[str, Any]]:
    """Fill, one gang of 1,024 x 8, one that can't fit, one pod more."""
    world = _cluster(nodes, partitioned=False)
    count = 8 * nodes
    jobs = [gang(f"job-{number:05d}", 1, ONE, created=float(number)) for number in range(count)]
    _settle()
    label = f"allocator/{{}}/{nodes}x8"
    seconds, plan = _timed(lambda: _decide(world, *jobs))
    assert len(plan.admissions) == count
    found = [figure(label.format("fill"), count / seconds, "decisions/s", bar)]
    large = gang("large", 1024, EIGHT)
    seconds, plan = _timed(lambda: _decide(world, large))
    assert bool(plan.admissions) == (nodes >= 1024)
    if plan.admissions:
        found.append(figure(label.format("gang-1024x8"), seconds, "s", 1.0 if nodes == 10_000 else None))
        found += _levels(world, large, label, bars=nodes == 10_000)
    seconds, plan = _timed(lambda: _decide(world, jobs[0]))
    found.append(figure(label.format("one-pod"), seconds * 1000, "ms", None))
    if nodes <= 1_000:
        world.carry_out(world.decide(*jobs), jobs)
        _settle()
        refused = gang("refused", 10, EIGHT)
        seconds, plan = _timed(lambda: _decide(world, refused))
        assert plan.waiting[0].reason.could_ever_fit
        found.append(figure(label.format("refuse-80-gpus"), seconds * 1000, "ms", 50.0 if nodes == 500 else None))
    return found


def _levels(world: World, large: GangRequest, label: str, *, bars: bool) -> list[dict[str, Any]]:
    """The same gang by one level, by three, and in subgroups of eight with ranks; and one that no block holds."""
    levels = "preferred:block, preferred:rack, preferred:kubernetes.io/hostname"
    members = tuple(replace(each, rank=number, subgroup=str(number // 8)) for number, each in enumerate(large.members))
    kinds = {
        "level": replace(large, topology="preferred:rack"),
        "levels-3": replace(large, topology=levels),
        "subgroups": replace(large, topology="preferred:block", subgroup_topology="required:rack", members=members),
    }
    found = []
    for name, asked in kinds.items():
        seconds, plan = _timed(partial(_decide, world, asked))
        assert plan.admissions
        found.append(figure(label.format(f"gang-1024x8-{name}"), seconds, "s", 1.0 if bars else None))
    refused = replace(large, topology="required:block, preferred:rack")
    seconds, plan = _timed(lambda: _decide(world, refused))
    assert plan.waiting[0].reason.could_ever_fit is False
    return [*found, figure(label.format("refuse-1024x8-levels"), seconds, "s", None)]


def _mig(nodes: int, *, bars: bool) -> list[dict[str, Any]]:
    """Every placement of every MIG profile of eight GPUs a node. Memory is that of the whole process."""
    began = time.process_time()
    world = _cluster(nodes, partitioned=True)
    loaded = time.process_time() - began
    _settle()
    jobs = [gang(f"job-{number}", 1, SMALL_MIG, created=float(number)) for number in range(1_000)]
    first, plan = _timed(lambda: _decide(world, jobs[0]), warm=0)
    one, plan = _timed(lambda: _decide(world, jobs[1]))
    assert plan.admissions
    many, plan = _timed(lambda: _decide(world, *jobs))
    assert len(plan.admissions) == (min(len(jobs), nodes * 56))
    label = f"allocator/mig-{{}}/{nodes}x8"
    return [
        figure(label.format("load"), loaded, "s", 60.0 if bars else None),
        figure(label.format("memory"), _resident_bytes() / 2**30, "GiB", 2.0 if bars else None),
        figure(label.format("first"), first, "s", None),
        figure(label.format("one"), one * 1000, "ms", 5.0 if bars else None),
        figure(label.format("fill-1000"), len(jobs) / many, "decisions/s", None),
    ]


def _labels(name: str, number: int) -> dict[str, str]:
    """Racks of 16 nodes, blocks of 16 racks."""
    return {"rack": f"rack-{number // 16}", "block": f"block-{number // 256}", "kubernetes.io/hostname": name}


def _cluster(nodes: int, *, partitioned: bool) -> World:
    """Loaded as a controller loads it: from the JSON of each node's slices."""
    bodies = _slices(partitioned=partitioned)
    text = json.dumps(bodies)
    decoder = msgspec.json.Decoder(list[resource.ResourceSlice])
    world = World()
    world.add_class(GPU, {"selectors": [{"cel": {"expression": f'device.attributes["{names.DRIVER}"].type == "gpu"'}}]})
    status = {"allocatable": {"cpu": "192", "memory": "2Ti", "pods": "250"}}
    for number in range(nodes):
        name = f"node-{number:05d}"
        raw = text.replace(NODE, name).replace("GPU-", f"GPU-{number:05d}-")
        world.inventory.set_slices(decoder.decode(raw.encode()))
        node = {"metadata": {"name": name, "labels": _labels(name, number)}, "status": status}
        world.nodes.set_node(msgspec.convert(node, core.Node))
    return world


def _slices(*, partitioned: bool) -> list[dict[str, Any]]:
    inventory = SimulatedBackend(profiles.load(PROFILE), node=NODE).inventory()
    gpus = tuple(dataclasses.replace(gpu, uuid=f"GPU-{gpu.minor}") for gpu in inventory.gpus)
    inventory = dataclasses.replace(inventory, gpus=gpus)
    cut = frozenset(gpu.uuid for gpu in gpus) if partitioned else frozenset()
    built = slices.build(inventory, slices.Facts(partitionable=cut)).slices
    return [
        {
            "metadata": {"name": f"{NODE}-{place}"},
            "spec": {
                "driver": names.DRIVER,
                "nodeName": NODE,
                "pool": {"name": NODE, "generation": 1, "resourceSliceCount": len(built)},
                "devices": msgspec.to_builtins(body.devices),
                "sharedCounters": msgspec.to_builtins(body.shared_counters),
            },
        }
        for place, body in enumerate(built)
    ]


def _decide(world: World, *gangs: GangRequest) -> Plan:
    """Anew: the plan that is remembered answers the same question only with the same source of share IDs."""
    return world.engine.decide(
        world.snapshot(*gangs), world.now, share_ids=lambda claim, request, _device: f"{claim} {request}"
    )


def _timed(call: Callable[[], Plan], *, warm: int = 1, runs: int = 3) -> tuple[float, Plan]:
    """The best of some runs, after some that do not count."""
    for _ in range(warm):
        call()
    best = float("inf")
    for _ in range(runs if warm else 1):
        began = time.process_time()
        plan = call()
        best = min(best, time.process_time() - began)
    return best, plan


def _settle() -> None:
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)


def _resident_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0
