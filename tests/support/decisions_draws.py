"""Draws of everything that a random cluster is made of: nodes and their devices, flavors, queues, gangs and their claims.

Each draw is a function of the random generator's state and of the features that are switched on. Names are unique in one
cluster's life.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from random import Random
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from fairlead.api import names
from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.settings import FlavorQuota, FlavorSpec, QueueSpec
from fairlead.engine.types.values import Amount
from fairlead.kube.objects import LabelSelector
from tests.support.engine.objects import MIG, claim_spec, device_request, gang, gpu, mig_gpu
from tests.support.engine.world import World

Json = dict[str, Any]
DRIVER = names.DRIVER
ISLAND = f"{DRIVER}/nvlinkDomain"
TYPE = f'device.attributes["{DRIVER}"].type'
MODEL = f'device.attributes["{DRIVER}"].productName'
PROFILE = f'device.attributes["{DRIVER}"].profile'
PRODUCTS = ("x", "x", "y")
PROFILES = ("1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb")
POLICIES: Sequence[Json] = (
    {},
    {"requestPolicy": {"default": "10Gi"}},
    {"requestPolicy": {"default": "10Gi", "validValues": ["10Gi", "20Gi", "40Gi"]}},
    {"requestPolicy": {"default": "20Gi", "validRange": {"min": "10Gi", "step": "10Gi", "max": "60Gi"}}},
)
TOLERATIONS: Sequence[Json] = (
    {"operator": "Exists"},
    {"key": "xid", "operator": "Exists"},
    {"key": "xid", "operator": "Exists", "effect": "NoExecute"},
    {"key": "xid", "operator": "Equal", "value": "79"},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    nodes: tuple[int, int] = (2, 4)  # least and most
    mig: bool = False
    shared: bool = False
    taints: bool = False
    claims: bool = False  # several requests, alternatives, constraints, `All`, admin access, configuration
    queues: bool = False
    deep: bool = False  # a forest of queues, as deep as it comes
    odd: bool = False  # limits, selectors of namespaces, mistakes
    flawed: bool = False  # queues that make a cycle, running gangs of which no pod is known
    strict: bool = False  # StrictFIFO
    elastic: bool = False
    deadlines: bool = False


class Draws:
    def __init__(self, random: Random, features: Features) -> None:
        self.random = random
        self.features = features
        self._gangs = 0
        self._generation = 1

    def one_in(self, number: int) -> bool:
        return self.random.randrange(number) == 0

    # ----------------------------------------------------------------------------------------------------- devices

    def add_node(self, world: World, name: str) -> None:
        if name in world.node_json:
            return
        random = self.random
        labels = {"rack": f"r{random.randrange(3)}"} if not self.one_in(5) else {}
        spec: Json = {"taints": [{"key": "dedicated", "effect": "NoSchedule"}]} if self.one_in(12) else {}
        if self.features.mig and self.one_in(2):
            parts = [mig_gpu(minor) for minor in range(random.randint(1, 2))]
            devices = [device for part, _ in parts for device in part]
            world.add_node(name, devices, counters=[counter for _, counter in parts], labels=labels, **spec)
            return
        devices = [self._device(minor) for minor in range(random.choice((0, 1, 2, 4, 4, 4, 8)))]
        allocatable = {"cpu": str(random.choice((4, 16, 64, 64, 64)))}
        world.add_node(name, devices, labels=labels, allocatable=allocatable, **spec)

    def add_roaming(self, world: World) -> None:
        """Devices that every node reaches, or those of one rack."""
        if not (self.features.claims and self.one_in(2)):
            return
        for pool in ("net", "rack")[: self.random.randint(1, 2)]:
            rule = {"key": "rack", "operator": "In", "values": ["r0", "r1"]}
            reach = {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}}
            spec = {
                "driver": DRIVER,
                "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1},
                "devices": [self._device(minor) for minor in range(self.random.randint(1, 3))],
                **({"allNodes": True} if pool == "net" else reach),
            }
            world.add_slices([{"metadata": {"name": pool}, "spec": spec}])

    def _device(self, minor: int) -> Json:
        random = self.random
        more: Json = {}
        if self.features.taints and self.one_in(8):
            more["taints"] = [self._taint()]
        if self.features.shared and self.one_in(3):
            more["allowMultipleAllocations"] = True
        if self.features.claims and self.one_in(12):
            more["bindingConditions"] = ["attached"]
            more["bindingFailureConditions"] = ["failed"]
        memory = random.choice(("40Gi", "80Gi")) if self.features.claims else "80Gi"
        device = gpu(minor, product=random.choice(PRODUCTS), island=random.choice((None, 0, 1)), memory=memory, **more)
        if "allowMultipleAllocations" in more:
            device["capacity"]["memory"] |= random.choice(POLICIES)
        return device

    def _taint(self) -> Json:
        effect = self.random.choice(("NoSchedule", "NoExecute", "NoExecute"))
        return {"key": "xid", "value": self.random.choice(("79", "48")), "effect": effect}

    def taint(self, world: World, slice_name: str) -> None:
        """One device of the slice gets a taint, or loses those that it has."""
        changed: Json = msgspec.json.decode(msgspec.json.encode(world.slice_json[slice_name]))
        devices = changed["spec"].get("devices")
        if not devices:
            return
        device = self.random.choice(devices)
        device["taints"] = [] if device.get("taints") else [self._taint()]
        pool = changed["spec"]["pool"]
        self._generation += 1
        pool["generation"] = self._generation
        others = [
            body
            for body in world.slice_json.values()
            if body["spec"]["pool"]["name"] == pool["name"] and body["metadata"]["name"] != slice_name
        ]
        others = [
            {**body, "spec": {**body["spec"], "pool": {**body["spec"]["pool"], "generation": self._generation}}}
            for body in others
        ]
        world.add_slices([changed, *others])

    # ------------------------------------------------------------------------------------------- flavors and queues

    def flavors(self) -> tuple[FlavorSpec, ...]:
        ours = f'device.driver == "{DRIVER}"'
        if not self.features.queues:
            return ()
        options: list[tuple[FlavorSpec, ...]] = [
            (FlavorSpec(name="gpu", device_selector=ours),),
            (
                FlavorSpec(name="x", device_selector=f'{MODEL} == "x"'),
                FlavorSpec(name="y", device_selector=f'{MODEL} == "y"'),
            ),
        ]
        if self.features.deep:
            options = options[1:]
        if self.features.mig or self.features.shared:
            options += [
                (
                    FlavorSpec(name="mig", device_selector=f'{TYPE} == "mig"', measure="Share"),
                    FlavorSpec(name="whole", device_selector=f'{TYPE} == "gpu"'),
                ),
                (FlavorSpec(name="share", device_selector=ours, measure="Share"),),
                (FlavorSpec(name="memory", device_selector=ours, measure="Capacity", capacity_name="memory"),),
            ]
        chosen = self.random.choice(options)
        return (
            (*chosen, FlavorSpec(name="broken", device_selector="device.nix =="))
            if self.features.odd and self.one_in(8)
            else chosen
        )

    def queues(self, flavors: Sequence[FlavorSpec]) -> tuple[QueueSpec, ...]:
        """Departments with queues and queues of their own; a forest; or none at all."""
        random = self.random
        if not self.features.queues:
            return ()
        if self.features.deep:
            return self._forest(flavors)
        found: list[QueueSpec] = []
        for letter in "abc"[: random.randint(1, 3)]:
            leaves = [f"{letter}{number}" for number in range(random.randint(1, 3))]
            parent = None
            if self.one_in(2):
                parent = f"dep-{letter}"
                above = f"org-{letter}" if self.one_in(3) else None
                if above is not None:
                    found.append(QueueSpec(name=above, uid=above))
                department = self._queue(parent, above, flavors)
                found.append(department if self.one_in(3) else replace(department, quotas=()))
            found += [self._queue(name, parent, flavors) for name in leaves]
        if self.features.odd and self.one_in(10):
            found.append(QueueSpec(name="lost", parent="nowhere"))
        if self.features.flawed and self.one_in(3):
            found[0] = replace(found[0], parent=random.choice(found).name)
        return tuple(found)

    def _forest(self, flavors: Sequence[FlavorSpec]) -> tuple[QueueSpec, ...]:
        found: list[QueueSpec] = []
        for number in range(self.random.randint(3, 12)):
            parent = self.random.choice(found).name if found and not self.one_in(4) else None
            queue = self._queue(f"q{number:02}", parent, flavors)
            found.append(queue if self.one_in(2) else replace(queue, quotas=()))
        return tuple(found)

    def _queue(self, name: str, parent: str | None, flavors: Sequence[FlavorSpec]) -> QueueSpec:
        random, odd = self.random, self.features.odd
        ordering: Literal["BestEffortFIFO", "StrictFIFO"] = "BestEffortFIFO"
        if self.features.strict and self.one_in(3):
            ordering = "StrictFIFO"
        return QueueSpec(
            name=name,
            uid=name,
            parent=parent,
            quotas=self._quotas(flavors),
            priority=random.choice((0, 0, 0, 1)),
            strategy=random.choice(("pack", "pack", "spread")),
            ordering=ordering,
            namespace_selector=LabelSelector(match_labels={"team": "a"}) if odd and self.one_in(12) else None,
            preemption=random.choice(("LowerPriority", "LowerPriority", "Never")),
            min_runtime_s=random.choice((None, None, None, 15.0, 60.0)),
            evictions_left=random.choice((None, None, 2, 0)) if odd else None,
            past_usage=self.past(flavors),
        )

    def changed(self, queue: QueueSpec, flavors: Sequence[FlavorSpec]) -> QueueSpec:
        """The same queue with other quotas, or as it is."""
        if not queue.quotas or self.one_in(2):
            return queue
        return replace(queue, quotas=self._quotas(flavors), evictions_left=self.random.choice((None, None, 1)))

    def _quotas(self, flavors: Sequence[FlavorSpec]) -> tuple[FlavorQuota, ...]:
        return tuple(self._quota(flavor) for flavor in flavors if not self.one_in(8))

    def _quota(self, flavor: FlavorSpec) -> FlavorQuota:
        random, odd = self.random, self.features.odd
        unit: Amount = (
            20 * 2**30 if flavor.measure == "Capacity" else Fraction(1, 2) if flavor.measure == "Share" else 1
        )
        deserved = random.choice((0, 0, 1, 2, 4)) * unit
        return FlavorQuota(
            flavor=flavor.name,
            deserved=deserved,
            limit=deserved + random.randint(1, 4) * unit if odd and self.one_in(4) else None,
            weight=random.choice((0.0, 0.5, 1.0, 1.0, 1.0, 1.0, 2.0)),
            borrowing_limit=random.choice((None, None, None, 2 * unit)) if odd else None,
            lending_limit=random.choice((None, None, None, unit)) if odd else None,
        )

    def past(self, flavors: Sequence[FlavorSpec]) -> Mapping[str, float]:
        return {flavor.name: self.random.choice((0.0, 0.0, 0.1, 0.4)) for flavor in flavors}

    # ------------------------------------------------------------------------------------------- gangs and claims

    def gang(self, world: World) -> GangRequest:
        random, features = self.random, self.features
        self._gangs += 1
        pods = random.choice((1, 1, 1, 1, 2, 2, 3, 4))
        spec = None if self.one_in(15) else self._claim()
        made = gang(
            f"g{self._gangs:04}",
            pods,
            spec,
            cpu=random.choice(("1", "1", "1", "2", "500m", "6")),
            shared=self.one_in(6),
            pod=self._pod(),
            namespace=random.choice(("ml", "ml", "ml", "research")),
            namespace_labels={"team": random.choice("ab")},
            queue=self._queue_of(world),
            priority=random.choice((0, 0, 0, 1, 2)),
            created=world.now + self._gangs % 8 / 8,
            topology=random.choice((None, None, None, None, None, None, "required:rack", "preferred:rack")),
            avoid=("n00",) if self.one_in(15) else (),
            run_s=random.choice((None, 10.0, 60.0, 900.0)) if features.deadlines else None,
        )
        if features.elastic and self.one_in(2):
            made = replace(made, size=random.randint(1, pods))
        return replace(made, size=pods + 1) if self.one_in(40) else made

    def _pod(self) -> Json | None:
        match self.random.randrange(20):
            case 0:
                return {"nodeSelector": {"rack": "r1"}}
            case 1:
                return {"tolerations": [{"key": "dedicated", "operator": "Exists"}]}
        return None

    def _queue_of(self, world: World) -> str | None:
        parents = {queue.parent for queue in world.queues}
        leaves = [queue.name for queue in world.queues if queue.name not in parents]
        if not leaves or self.one_in(25):
            return self.random.choice((None, None, "unknown", "dep-a"))
        if not self.one_in(3):  # one queue asks for more than the others for a while
            return leaves[self._gangs // 20 % len(leaves)]
        return self.random.choice(leaves)

    def _claim(self) -> Json:
        random = self.random
        if not self.features.claims:
            return claim_spec(self._ask())
        requests: list[Json] = []
        for _ in range(random.choice((1, 1, 1, 2))):
            if self.one_in(4):
                options = [{"name": f"s{place}", **self._ask()} for place in range(random.randint(2, 3))]
                requests.append({"firstAvailable": options})
            else:
                admin = {"adminAccess": True} if self.one_in(20) else {}
                requests.append({**self._ask(), **admin})
        constraints: list[Json] = random.choice(
            ([], [], [], [{"matchAttribute": ISLAND}], [{"distinctAttribute": ISLAND}])
        )
        opaque = {"driver": DRIVER, "parameters": {"sharing": {"strategy": "TimeSlicing", "ratio": 0.5}}}
        config: list[Json] = [{"requests": ["r0"], "opaque": opaque}] if self.one_in(6) else []
        return claim_spec(*requests, constraints=constraints, config=config)

    def _ask(self) -> Json:
        random, features = self.random, self.features
        more: Json = {}
        if features.taints and self.one_in(5):
            more["tolerations"] = [random.choice(TOLERATIONS)]
        if features.shared and self.one_in(2):
            more["capacity"] = {"requests": {"memory": random.choice(("10Gi", "15Gi", "30Gi", "60Gi"))}}
        if features.mig and self.one_in(2):
            return device_request(
                random.choice((1, 1, 2)), device_class=MIG, cel=f'{PROFILE} == "{random.choice(PROFILES)}"', **more
            )
        if self.one_in(40):
            return random.choice(
                (
                    device_request(device_class="gpu.unknown"),
                    device_request(cel="device.nix =="),
                    device_request(cel=f"{MODEL}.nix == 1"),
                )
            )
        cel = random.choice(("", "", "", f'{MODEL} == "x"', f'{MODEL} != "x"'))
        wanted = device_request(random.choice((1, 1, 1, 1, 2, 2, 4, 8)), cel=cel, **more)
        if features.claims and self.one_in(12):
            del wanted["count"]
            wanted["allocationMode"] = "All"
        return wanted
