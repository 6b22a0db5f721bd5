"""Thousands of pending gangs that all differ, of one namespace: others are decided on as ever, and each kind has its turn."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from fairlead.api import names
from fairlead.engine.plan.decide import decide
from fairlead.engine.plan.turns import NAMESPACE_STEPS, TURN_S
from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.plan import Plan
from fairlead.engine.types.reasons import Code
from tests.support import cpu
from tests.support.engine.hard_claims import too_many, two_nodes, uncolourable, unlike_pods
from tests.support.engine.objects import Json, claim_spec, device_request, gang

ONE, NINE = claim_spec(device_request()), claim_spec(device_request(9))  # a node has eight
BLUE = gang("blue", 2, claim_spec(device_request(8)), namespace="blue", created=1e6)
NUMBERS = "[" + ",".join(map(str, range(60))) + "]"


def admitted(plan: Plan) -> set[str]:
    return {each.name for each in plan.admissions}


def looping(number: int) -> Json:
    """Reads the UUID, so that it is evaluated for each device; and loops as long as it may."""
    text = f'device.attributes["{names.DRIVER}"].uuid == "{number}" || {NUMBERS}.exists(x, {NUMBERS}.exists(y, x * y == -{number + 1}))'
    return claim_spec(*(device_request(cel=text, name=f"r{each}") for each in range(4)))


@pytest.mark.slow
@pytest.mark.parametrize("spec", [NINE, too_many(), uncolourable()])
def test_ten_thousand_unlike_gangs_delay_another_namespaces_gang_by_a_bounded_decision(spec: Json):
    snapshot = two_nodes().snapshot(*unlike_pods(10_000, spec), BLUE)
    with cpu.at_most(2.0):
        plan = decide(replace(snapshot, namespace_steps=NAMESPACE_STEPS), 0.0)
    assert admitted(plan) == {"blue"}
    passed_over = [each for each in plan.waiting if each.reason.code is Code.SEARCH_ENDED]
    assert len(passed_over) >= 9_750
    assert "of gang wait in namespace red than a decision has time for" in str(passed_over[-1].reason)


def test_selectors_that_loop_delay_another_namespaces_gang_by_a_bounded_decision():
    gangs = [each for number in range(300) for each in unlike_pods(1, looping(number), f"red-{number:03d}")]
    gangs = [replace(each, namespace="red") for each in gangs]
    snapshot = two_nodes().snapshot(*gangs, BLUE)
    with cpu.at_most(2.0):
        plan = decide(replace(snapshot, namespace_steps=NAMESPACE_STEPS), 0.0)
    assert admitted(plan) == {"blue"}


def test_each_kind_has_its_turn_before_one_has_its_second(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("fairlead.engine.plan.pending.SHAPES", 3)
    gangs: list[GangRequest] = unlike_pods(8, NINE)
    snapshot = replace(two_nodes().snapshot(*gangs), namespace_steps=NAMESPACE_STEPS)
    considered: list[set[str]] = []
    for number in range(4):
        plan = decide(snapshot, 100.0 * number)
        considered.append({each.name for each in plan.waiting if each.reason.code is not Code.SEARCH_ENDED})
        assert plan.due == 100.0 * number + TURN_S
        snapshot = replace(snapshot, searched=frozenset(plan.searched))
    name = "red-{:03d}".format
    assert considered[:2] == [{name(0), name(1), name(2)}, {name(3), name(4), name(5)}]
    assert {name(6), name(7)} <= considered[2]
    assert considered[3] == considered[0]
