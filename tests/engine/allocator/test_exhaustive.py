"""The allocator says yes exactly when trying everything finds an answer, and with the alternatives that upstream would choose.

Cases are small and made up from every feature of resource.k8s.io/v1 at once. The checks of existence (`tests.support.engine.search`)
and of validity (`tests.support.engine.judge`) share no code with the allocator. Many more cases: `make properties`.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from fairlead.engine.plan.decide import decide
from tests.support.engine.case import snapshot_of
from tests.support.engine.examples import examples
from tests.support.engine.judge import faults
from tests.support.engine.objects import plain_json
from tests.support.engine.search import first_answer

Json = dict[str, Any]
COUNTERS = 3  # of each counter
DRIVER, OTHER = "gpu.example.com", "nic.example.com"
NODE = {"metadata": {"name": "node-1", "labels": {"zone": "a", "slots": "4"}}, "status": {"allocatable": {"pods": "9"}}}
CLASSES = [
    {"metadata": {"name": "any"}, "spec": {}},
    {"metadata": {"name": "gpu"}, "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]}},
]
MODEL = f'device.attributes["{DRIVER}"].?model.orValue("")'
TOLERATIONS: list[Json] = [
    {"operator": "Exists"},
    {"key": "k", "operator": "Exists"},
    {"key": "k", "operator": "Equal", "value": "v"},
    {"key": "k", "value": "w"},
    {"key": "k", "operator": "Exists", "effect": "NoExecute"},
    {"key": "k", "operator": "Exists", "effect": "NoSchedule"},
]
POLICIES: list[Json] = [
    {},
    {"requestPolicy": {"default": "2Gi"}},
    {"requestPolicy": {"default": "2Gi", "validValues": ["2Gi", "4Gi", "8Gi"]}},
    {"requestPolicy": {"default": "4Gi", "validRange": {"min": "2Gi", "step": "2Gi"}}},
    {"requestPolicy": {"default": "3Gi", "validRange": {"min": "1Gi", "max": "6Gi"}}},
    {"requestPolicy": {"default": "1Gi", "validRange": {"min": "1Gi", "max": "7Gi", "step": "3Gi"}}},
]
HERE: list[Json] = [
    {"nodeName": "node-1"},
    {"nodeName": "node-1"},
    {"nodeName": "node-1"},
    {"allNodes": True},
    {
        "nodeSelector": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
        }
    },
    {
        "nodeSelector": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "slots", "operator": "Gt", "values": ["3"]}]}]
        }
    },
    {"nodeName": "node-2"},
    {
        "nodeSelector": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["a"]}]}]
        }
    },
]


def rarely(draw: st.DrawFn, one_in: int) -> bool:
    return draw(st.integers(1, one_in)) == one_in


@st.composite
def devices(draw: st.DrawFn, name: str, sets: dict[str, list[str]], *, lists: bool) -> Json:
    attributes: Json = {}
    if not rarely(draw, 5):
        attributes["model"] = {"string": draw(st.sampled_from("ab"))}
    if not rarely(draw, 4):
        numbers = st.integers(0, 1)
        attributes["numa"] = (
            {"ints": draw(st.lists(numbers, min_size=1, max_size=2, unique=True))} if lists else {"int": draw(numbers)}
        )
    device: Json = {"name": name, "attributes": attributes}
    if not rarely(draw, 4):
        device["capacity"] = {"memory": {"value": draw(st.sampled_from(["4Gi", "8Gi"]))}}
        if rarely(draw, 4):
            device["capacity"]["cores"] = {"value": "4"}
    if rarely(draw, 3):
        device["allowMultipleAllocations"] = True
        for entry in device.get("capacity", {}).values():
            if entry["value"] == "8Gi":
                entry.update(draw(st.sampled_from(POLICIES)))
    if rarely(draw, 5):
        taint = {"key": "k", "effect": draw(st.sampled_from(["NoSchedule", "NoExecute", "None"]))}
        device["taints"] = [taint | ({"value": "v"} if draw(st.booleans()) else {})]
    if rarely(draw, 8):
        device |= {
            "bindingConditions": ["ready"],
            "bindingFailureConditions": ["broken"],
            "bindsToNode": draw(st.booleans()),
        }
    if sets and not rarely(draw, 4):
        used = draw(st.lists(st.sampled_from(sorted(sets)), min_size=1, max_size=2, unique=True))
        device["consumesCounters"] = [
            {
                "counterSet": name,
                "counters": {counter: {"value": str(draw(st.integers(1, 2)))} for counter in sets[name]},
            }
            for name in used
        ]
    return device


@st.composite
def pools(draw: st.DrawFn, number: int, *, lists: bool) -> list[Json]:
    """The slices of one pool: perhaps incomplete, with an older generation beside it, or invalid."""
    driver = draw(st.sampled_from([DRIVER, DRIVER, OTHER]))
    sets: dict[str, list[str]] = {}
    counters: list[Json] = []
    if rarely(draw, 3):
        for name in draw(st.sampled_from([["s"], ["s", "t"]])):
            sets[name] = draw(st.sampled_from([["x"], ["x", "y"]]))
            counters.append({"name": name, "counters": {each: {"value": str(COUNTERS)} for each in sets[name]}})
    count = draw(st.integers(2, 5)) if number == 0 else draw(st.integers(0, 2))
    made = [draw(devices(f"dev-{place}", sets, lists=lists)) for place in range(count)]
    if len(made) > 1 and rarely(draw, 20):
        made[1]["name"] = made[0]["name"]
    if made and sets and rarely(draw, 15):
        made[0]["consumesCounters"] = [{"counterSet": "unknown", "counters": {"x": {"value": "1"}}}]
    cut = draw(st.integers(0, count))
    parts: list[Json] = [{"devices": part} for part in (made[:cut], made[cut:]) if part] or [{"devices": []}]
    if counters:
        parts.append({"sharedCounters": counters})
    per_device = rarely(draw, 5)
    where = {"perDeviceNodeSelection": True} if per_device else draw(st.sampled_from(HERE))
    if per_device:
        for device in made:
            device.update(draw(st.sampled_from(HERE)))
    expected = len(parts) + (1 if rarely(draw, 10) else 0)
    # Pools of two drivers may have one name; counters are the pool's, not the name's.
    name = "pool" if number == [DRIVER, OTHER].index(driver) else f"pool-{number}"
    slices = [
        {
            "metadata": {"name": f"slice-{number}-{place}"},
            "spec": {
                "driver": driver,
                "pool": {"name": name, "generation": 2, "resourceSliceCount": expected},
                **where,
                **part,
            },
        }
        for place, part in enumerate(parts)
    ]
    if rarely(draw, 6):
        old = {"name": name, "generation": 1, "resourceSliceCount": 1}
        more = [{"name": "old", "attributes": {"model": {"string": "a"}}}]
        spec = {"driver": driver, "pool": old, "nodeName": "node-1", "devices": more}
        slices.append({"metadata": {"name": f"slice-{number}-old"}, "spec": spec})
    return slices


@st.composite
def device_requests(draw: st.DrawFn, *, sub: bool) -> Json:
    wanted: Json = {"deviceClassName": draw(st.sampled_from(["any", "any", "gpu"]))}
    if rarely(draw, 8):
        wanted["allocationMode"] = "All"
    else:
        wanted |= {"allocationMode": "ExactCount", "count": draw(st.sampled_from([1, 1, 1, 1, 2, 3]))}
    if rarely(draw, 4):
        text = draw(st.sampled_from([f'{MODEL} == "a"', f'{MODEL} != "b"', "device.allowMultipleAllocations"]))
        wanted["selectors"] = [{"cel": {"expression": text}}]
    if rarely(draw, 3):
        wanted["tolerations"] = draw(st.lists(st.sampled_from(TOLERATIONS), min_size=1, max_size=2))
    if rarely(draw, 4):
        amount = draw(st.sampled_from(["1Gi", "2Gi", "3Gi", "5Gi", "8Gi"]))
        requests = {"memory": amount} | ({"cores": "2"} if rarely(draw, 4) else {})
        wanted["capacity"] = {"requests": requests}
    if not sub and rarely(draw, 8):
        wanted["adminAccess"] = True
    return wanted


@st.composite
def claims(draw: st.DrawFn, number: int) -> Json:
    requests: list[Json] = []
    names: list[str] = []
    for place in range(draw(st.sampled_from([1, 1, 2, 2, 3]))):
        name = f"req-{place}"
        names.append(name)
        if rarely(draw, 3):
            options = [{"name": f"sub-{n}", **draw(device_requests(sub=True))} for n in range(draw(st.integers(1, 3)))]
            names += [f"{name}/{option['name']}" for option in options]
            requests.append({"name": name, "firstAvailable": options})
        else:
            requests.append({"name": name, "exactly": draw(device_requests(sub=False))})
    constraints: list[Json] = []
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 1, 2]))):
        attribute = draw(st.sampled_from([f"{DRIVER}/model", f"{DRIVER}/numa", f"{DRIVER}/numa"]))
        kind = draw(st.sampled_from(["matchAttribute", "matchAttribute", "distinctAttribute"]))
        over = draw(st.lists(st.sampled_from(names), max_size=2, unique=True))
        constraints.append({kind: attribute} | ({"requests": over} if over else {}))
    spec = {"devices": {"requests": requests, **({"constraints": constraints} if constraints else {})}}
    return {"metadata": {"name": f"claim-{number}", "namespace": "default", "uid": f"uid-{number}"}, "spec": spec}


@st.composite
def cases(draw: st.DrawFn) -> Json:
    lists = rarely(draw, 3)
    slices = [entry for number in range(draw(st.integers(1, 3))) for entry in draw(pools(number, lists=lists))]
    case: Json = {
        "node": NODE,
        "classes": CLASSES,
        "slices": slices,
        "claims": [draw(claims(number)) for number in range(draw(st.sampled_from([1, 1, 1, 2])))],
        "allocated": [],
        "consumed": [],
    }
    drawn: dict[tuple[str, ...], int] = {}
    for entry in slices:
        spec = entry["spec"]
        for device in spec.get("devices", ()):
            if not rarely(draw, 6):
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
                case["consumed"].append({**held, "capacity": capacity})
            else:
                case["allocated"].append(held)
    return case


@pytest.mark.slow
@settings(max_examples=examples(250), suppress_health_check=list(HealthCheck))
@given(case=cases())
def test_it_allocates_exactly_when_trying_everything_finds_an_answer(case: Json) -> None:
    expected = first_answer(case)
    plan = decide(snapshot_of(case), 0.0)
    event("allocated" if expected is not None else "unallocatable")
    if expected is None:
        assert not plan.admissions, plan.admissions
        assert str(plan.waiting[0].reason)
        return
    assert plan.admissions, (plan.waiting[0].reason, expected)
    answers = {claim.key: plain_json(claim.allocation) for claim in plan.admissions[0].claims}
    held = {key: case[key] for key in ("classes", "slices", "allocated", "consumed")}
    given_out = [(claim, "node-1", answers[claim["metadata"]["uid"]]) for claim in case["claims"]]
    assert not faults(nodes=[case["node"]], answers=given_out, **held)
    for number, claim in enumerate(case["claims"]):
        results = answers[claim["metadata"]["uid"]]["devices"]["results"]
        got = {result["request"] for result in results if "/" in result["request"]}
        assert got == {entry.request for entry in expected if entry.claim == number and "/" in entry.request}


@pytest.mark.slow
@settings(max_examples=examples(120), suppress_health_check=list(HealthCheck))
@given(case=cases(), more=devices("more", {}, lists=False))
def test_one_device_more_never_makes_impossible_what_was_possible(case: Json, more: Json) -> None:
    """But for `All`, which then asks for more."""
    assume('"All"' not in json.dumps(case["claims"]))
    assume(decide(snapshot_of(case), 0.0).admissions)
    pool = {"name": "a-new-pool", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "pool": pool, "nodeName": "node-1", "devices": [more]}
    larger = {**case, "slices": [*case["slices"], {"metadata": {"name": "a-new-slice"}, "spec": spec}]}
    assert decide(snapshot_of(larger), 0.0).admissions
