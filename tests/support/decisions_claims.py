"""Random allocations: one node, a few pools of devices, the claims of one pod; every feature of resource.k8s.io/v1 at once.

Pools may be incomplete, invalid, of an older generation beside a newer one, or out of the node's reach. All of it follows from a
seed. Nothing is asserted here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from fairlead.engine.plan.decide import decide
from tests.support.engine.case import snapshot_of

Json = dict[str, Any]
COUNTERS = 3  # of each counter
DRIVERS = ("gpu.example.com", "gpu.example.com", "nic.example.com")
MODEL = f'device.attributes["{DRIVERS[0]}"].?model.orValue("")'
NODE: Json = {"metadata": {"name": "here", "labels": {"zone": "a"}}, "status": {"allocatable": {"pods": "9"}}}
CLASSES: Sequence[Json] = (
    {"metadata": {"name": "any"}, "spec": {}},
    {
        "metadata": {"name": "gpu"},
        "spec": {
            "selectors": [{"cel": {"expression": f'device.driver == "{DRIVERS[0]}"'}}],
            "config": [{"opaque": {"driver": DRIVERS[0], "parameters": {"from": "class", "share": 0.25}}}],
        },
    },
)
SELECTORS = (f'{MODEL} == "a"', f'{MODEL} != "b"', "device.allowMultipleAllocations", "device.nix == 1")
TOLERATIONS: Sequence[Json] = (
    {"operator": "Exists"},
    {"key": "worn", "operator": "Exists"},
    {"key": "worn", "operator": "Equal", "value": "yes"},
    {"key": "worn", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "worn", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60},
)
POLICIES: Sequence[Json] = (
    {},
    {"default": "2Gi"},
    {"default": "2Gi", "validValues": ["2Gi", "4Gi", "8Gi"]},
    {"default": "4Gi", "validRange": {"min": "2Gi", "step": "2Gi"}},
    {"default": "3Gi", "validRange": {"min": "1Gi", "max": "6Gi"}},
    {"default": "1Gi", "validRange": {"min": "1Gi", "max": "7Gi", "step": "3Gi"}},
)


def _in_zone(operator: str, zone: str) -> Json:
    rule = {"key": "zone", "operator": operator, "values": [zone]}
    return {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}}


REACHES: Sequence[Json] = (
    *({"nodeName": "here"} for _ in range(8)),
    {"allNodes": True},
    _in_zone("In", "a"),
    _in_zone("NotIn", "a"),
    {"nodeName": "elsewhere"},
)


def decide_many(seed: int, count: int) -> None:
    """So many allocations, one decision each."""
    random = Random(f"claims {seed}")
    for _ in range(count):
        decide(snapshot_of(RandomCase(random).body()), 0.0)


class RandomCase:
    """`sizes`: least and most devices of the first pool, and of the others."""

    def __init__(self, random: Random, sizes: tuple[tuple[int, int], tuple[int, int]] = ((2, 7), (2, 7))) -> None:
        self.random = random
        self.sizes = sizes
        self.pools = dict.fromkeys(DRIVERS, 0)
        self.lists = self.one_in(3)  # attributes are lists

    def one_in(self, number: int) -> bool:
        return self.random.randrange(number) == 0

    def body(self) -> Json:
        random = self.random
        slices = [entry for number in range(random.randint(1, 3)) for entry in self._pool(number)]
        allocated, consumed = self._held(slices)
        return {
            "node": NODE,
            "classes": CLASSES,
            "slices": slices,
            "claims": [self._claim(number) for number in range(random.choice((1, 1, 1, 2)))],
            "allocated": allocated,
            "consumed": consumed,
        }

    # ----------------------------------------------------------------------------------------------------- devices

    def _pool(self, number: int) -> list[Json]:
        random = self.random
        counters = {name: random.choice((("x",), ("x", "y"))) for name in random.choice(((), (), ("s",), ("s", "t")))}
        devices = [self.device(f"dev-{place}", counters) for place in range(random.randint(*self.sizes[number > 0]))]
        if len(devices) > 1 and self.one_in(50):
            devices[1]["name"] = devices[0]["name"]
        if counters and self.one_in(30):
            devices[0]["consumesCounters"] = [{"counterSet": "unknown", "counters": {"x": {"value": "1"}}}]
        cut = random.randint(0, len(devices))
        parts: list[Json] = [{"devices": part} for part in (devices[:cut], devices[cut:]) if part]
        if counters:
            sets = [
                {"name": name, "counters": {each: {"value": str(COUNTERS)} for each in every}}
                for name, every in counters.items()
            ]
            parts.append({"sharedCounters": sets})
        where = random.choice(REACHES)
        if self.one_in(5):
            where = {"perDeviceNodeSelection": True}
            for device in devices:
                device.update(random.choice(REACHES))
        driver = random.choice(DRIVERS) if number else DRIVERS[0]
        pool = {
            "name": f"pool-{self.pools[driver]}",  # pools of two drivers may have one name
            "generation": 2,
            "resourceSliceCount": len(parts) + (1 if self.one_in(40) else 0),
        }
        self.pools[driver] += 1
        found = [
            {"metadata": {"name": f"slice-{number}-{place}"}, "spec": {"driver": driver, "pool": pool, **where, **part}}
            for place, part in enumerate(parts)
        ]
        if self.one_in(6):
            spec = {"driver": driver, "pool": {**pool, "generation": 1, "resourceSliceCount": 1}, "nodeName": "here"}
            found.append({"metadata": {"name": f"slice-{number}-old"}, "spec": {**spec, "devices": [{"name": "old"}]}})
        return found

    def device(self, name: str, counters: Mapping[str, Sequence[str]]) -> Json:
        random = self.random
        attributes: Json = {}
        if not self.one_in(5):
            attributes["model"] = {"string": random.choice("ab")}
        if not self.one_in(4):
            attributes["numa"] = (
                {"ints": random.sample((0, 1), random.randint(1, 2))} if self.lists else {"int": random.randint(0, 1)}
            )
        device: Json = {"name": name, "attributes": attributes}
        if not self.one_in(4):
            device["capacity"] = {"memory": {"value": random.choice(("4Gi", "8Gi"))}}
        if self.one_in(3):
            device["allowMultipleAllocations"] = True
            policy = random.choice(POLICIES)
            if policy and "capacity" in device:
                device["capacity"]["memory"]["requestPolicy"] = policy
        if self.one_in(6):
            taint = {"key": "worn", "effect": random.choice(("NoSchedule", "NoExecute", "None"))}
            device["taints"] = [taint | ({"value": "yes"} if self.one_in(2) else {})]
        if self.one_in(8):
            device |= {"bindingConditions": ["ready"], "bindingFailureConditions": ["broken"]}
        if counters and not self.one_in(4):
            device["consumesCounters"] = [
                {"counterSet": each, "counters": {one: {"value": str(random.randint(1, 2))} for one in counters[each]}}
                for each in random.sample(sorted(counters), random.randint(1, len(counters)))
            ]
        return device

    def _held(self, slices: Sequence[Json]) -> tuple[list[Json], list[Json]]:
        """Whole devices, and parts of shared ones, that other claims hold; counters are never overdrawn by them."""
        allocated: list[Json] = []
        consumed: list[Json] = []
        drawn: dict[tuple[str, ...], int] = {}
        for entry in slices:
            spec = entry["spec"]
            for device in spec.get("devices", ()):
                if not self.one_in(6):
                    continue
                after = dict(drawn)
                for used in device.get("consumesCounters", ()):
                    for counter, amount in used["counters"].items():
                        key = (spec["driver"], spec["pool"]["name"], used["counterSet"], counter)
                        after[key] = after.get(key, 0) + int(amount["value"])
                if any(value > COUNTERS or "unknown" in key for key, value in after.items()):
                    continue
                drawn = after
                held = {"driver": spec["driver"], "pool": spec["pool"]["name"], "device": device["name"]}
                if device.get("allowMultipleAllocations"):
                    capacity = {"memory": "2Gi"} if "memory" in device.get("capacity", {}) else {}
                    consumed.append({**held, "capacity": capacity})
                else:
                    allocated.append(held)
        return allocated, consumed

    # ------------------------------------------------------------------------------------------------------ claims

    def _claim(self, number: int) -> Json:
        random = self.random
        requests: list[Json] = []
        named: list[str] = []
        for place in range(random.choice((1, 1, 2, 2, 3))):
            name = f"req-{place}"
            named.append(name)
            if self.one_in(3):
                options = [{"name": f"sub-{each}", **self._ask(sub=True)} for each in range(random.randint(1, 3))]
                named += [f"{name}/{option['name']}" for option in options]
                requests.append({"name": name, "firstAvailable": options})
            else:
                requests.append({"name": name, "exactly": self._ask(sub=False)})
        constraints = [self._constraint(named) for _ in range(random.choice((0, 0, 0, 1, 1, 2)))]
        devices: Json = {"requests": requests, "constraints": constraints}
        if self.one_in(4):
            opaque = {"driver": DRIVERS[0], "parameters": {"number": number, "ratio": 1 / 3}}
            devices["config"] = [{"requests": random.sample(named, 1), "opaque": opaque}]
        metadata = {"name": f"claim-{number}", "namespace": "default", "uid": f"uid-{number}"}
        return {"metadata": metadata, "spec": {"devices": devices}}

    def _constraint(self, named: Sequence[str]) -> Json:
        kind = self.random.choice(("matchAttribute", "matchAttribute", "distinctAttribute"))
        over = self.random.sample(named, min(len(named), self.random.randint(0, 2)))
        return {kind: f"{DRIVERS[0]}/{self.random.choice(('model', 'numa', 'numa'))}", "requests": over}

    def _ask(self, *, sub: bool) -> Json:
        random = self.random
        wanted: Json = {"deviceClassName": random.choice(("any", "any", "gpu"))}
        if self.one_in(8):
            wanted["allocationMode"] = "All"
        else:
            wanted |= {"allocationMode": "ExactCount", "count": random.choice((1, 1, 1, 1, 2, 3))}
        if self.one_in(4):
            chosen = SELECTORS[-1] if self.one_in(10) else random.choice(SELECTORS[:-1])
            wanted["selectors"] = [{"cel": {"expression": chosen}}]
        if self.one_in(3):
            wanted["tolerations"] = random.sample(TOLERATIONS, random.randint(1, 2))
        if self.one_in(4):
            amounts = {"memory": random.choice(("1Gi", "2Gi", "3Gi", "5Gi", "8Gi"))}
            wanted["capacity"] = {"requests": amounts | ({"cores": "2"} if self.one_in(4) else {})}
        if not sub and self.one_in(8):
            wanted["adminAccess"] = True
        return wanted
