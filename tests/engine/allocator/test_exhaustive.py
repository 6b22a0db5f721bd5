"""The allocator says yes exactly when trying everything finds an answer, and with the alternatives that upstream would choose.

Cases are small and made up from every feature of resource.k8s.io/v1 at once. The checks of existence (`tests.support.engine.search`)
and of validity (`tests.support.engine.judge`) share no code with the allocator. Many more cases: `make properties`.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from fairlead.engine.plan.decide import decide
from tests.support.decisions_claims import DRIVERS, SELECTORS, RandomCase
from tests.support.engine.case import snapshot_of
from tests.support.engine.examples import examples
from tests.support.engine.judge import faults
from tests.support.engine.objects import plain_json
from tests.support.engine.search import first_answer

Json = dict[str, Any]
SMALL = ((2, 5), (1, 2))


def drawn(random: Random) -> Json:
    body = RandomCase(random, SMALL).body()
    assume(SELECTORS[-1] not in json.dumps(body))  # does not compile
    return body


@pytest.mark.slow
@settings(max_examples=examples(250), suppress_health_check=list(HealthCheck))
@given(random=st.randoms(use_true_random=False))
def test_it_allocates_exactly_when_trying_everything_finds_an_answer(random: Random) -> None:
    case = drawn(random)
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
    given_out = [
        (claim, case["node"]["metadata"]["name"], answers[claim["metadata"]["uid"]]) for claim in case["claims"]
    ]
    assert not faults(nodes=[case["node"]], answers=given_out, **held)
    for number, claim in enumerate(case["claims"]):
        results = answers[claim["metadata"]["uid"]]["devices"]["results"]
        got = {result["request"] for result in results if "/" in result["request"]}
        assert got == {entry.request for entry in expected if entry.claim == number and "/" in entry.request}


@pytest.mark.slow
@settings(max_examples=examples(120), suppress_health_check=list(HealthCheck))
@given(random=st.randoms(use_true_random=False))
def test_one_device_more_never_makes_impossible_what_was_possible(random: Random) -> None:
    """But for `All`, which then asks for more."""
    case = drawn(random)
    assume('"All"' not in json.dumps(case["claims"]))
    assume(decide(snapshot_of(case), 0.0).admissions)
    pool = {"name": "a-new-pool", "generation": 1, "resourceSliceCount": 1}
    devices = [RandomCase(random).device("more", {})]
    spec = {"driver": DRIVERS[0], "pool": pool, "nodeName": case["node"]["metadata"]["name"], "devices": devices}
    larger = {**case, "slices": [*case["slices"], {"metadata": {"name": "a-new-slice"}, "spec": spec}]}
    assert decide(snapshot_of(larger), 0.0).admissions
