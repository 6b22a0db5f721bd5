"""ResourceQuotas of namespaces in a decision: whole gangs fit them or wait, together too, and nothing is evicted for them."""

from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.engine.plan.decide import decide
from fairlead.engine.queues.limits import NamespaceQuotas
from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.plan import Plan
from fairlead.engine.types.reasons import Code
from fairlead.engine.types.settings import FlavorSpec, NamespaceQuota, QueueSpec
from tests.support.engine.objects import claim_spec, device_request, gang, gpu
from tests.support.engine.world import World

DEVICES = "gpu.deviceclass.resource.k8s.io/devices"
CLAIMS = "count/resourceclaims.resource.k8s.io"


def quota(
    limit: int, used: int = 0, *, name: str = "q", resource: str = DEVICES, namespace: str = "ml"
) -> NamespaceQuota:
    return NamespaceQuota(namespace=namespace, name=name, resource=resource, limit=limit, used=used)


def asked(name: str, devices: int, **more: Any) -> GangRequest:
    """A gang of pods with one device each."""
    charge = ((CLAIMS, devices), (DEVICES, devices))
    return gang(name, devices, claim_spec(device_request(1)), **{"quota_charge": charge, **more})


def world(gpus: int = 8, **more: Any) -> World:
    made = World()
    made.add_node("n0", [gpu(minor) for minor in range(gpus)])
    made.queues = tuple(more.pop("queues", ()))
    return made


def run(made: World, quotas: tuple[NamespaceQuota, ...], *gangs: GangRequest) -> Plan:
    return decide(replace(made.snapshot(*gangs), namespace_quotas=quotas), 100.0)


def outcome(plan: Plan) -> tuple[list[str], dict[str, str]]:
    return [each.name for each in plan.admissions], {each.name: each.reason.code.value for each in plan.waiting}


@pytest.mark.parametrize(
    ("quotas", "devices", "message"),
    [
        ((), 8, ""),
        ((quota(8),), 8, ""),
        ((quota(8, 1),), 7, ""),
        ((quota(8, 1),), 8, f"ResourceQuota ml/q does not allow all claims of the gang: {DEVICES}: 1 used + 8 asked > 8"),
        ((quota(8), quota(4, name="a")), 5, "ResourceQuota ml/a does not"),
        ((quota(8), quota(3, resource=CLAIMS, name="a")), 5, f"ResourceQuota ml/a does not allow all claims of the gang: {CLAIMS}"),
        ((quota(8, 8, name="a"), quota(4, name="b")), 5, "ResourceQuota ml/b does not"),
        ((quota(0, namespace="other"),), 8, ""),
        ((quota(4, 9),), 1, "9 used + 1 asked > 4"),
    ],
)  # fmt: skip
def test_all_claims_of_a_gang_count_for_every_quota_of_its_namespace(
    quotas: tuple[NamespaceQuota, ...], devices: int, message: str
) -> None:
    found = NamespaceQuotas(quotas).shortage(asked("g", devices))
    assert (found is None) == (not message)
    assert found is None or message in found.message


def test_the_advice_says_whether_waiting_helps() -> None:
    waits = NamespaceQuotas((quota(8, 8),)).shortage(asked("g", 1))
    never = NamespaceQuotas((quota(8),)).shortage(asked("g", 9))
    assert waits is not None
    assert never is not None
    assert (waits.could_ever_fit, never.could_ever_fit) == (None, False)
    assert (
        waits.advice == f"wait until others of the namespace end, or raise spec.hard[{DEVICES}] of ResourceQuota ml/q"
    )
    assert never.advice.startswith("it asks for more than the whole quota: raise spec.hard")


def test_what_is_charged_counts_once_and_until_it_is_withdrawn() -> None:
    quotas = NamespaceQuotas((quota(8),))
    first, second = asked("first", 5), asked("second", 5)
    quotas.charge(first)
    quotas.charge(first)
    assert quotas.shortage(first) is None
    assert "5 used + 5 asked > 8" in str(quotas.shortage(second))
    assert quotas.shortage(asked("third", 3)) is None
    quotas.withdraw("ml/first")
    quotas.withdraw("ml/first")
    assert quotas.shortage(second) is None


def test_of_two_gangs_that_exceed_it_together_the_first_runs_and_the_second_waits_with_the_reason() -> None:
    plan = run(world(16), (quota(8),), asked("second", 8, created=2.0), asked("first", 8, created=1.0))
    assert outcome(plan) == (["first"], {"second": "ExceedsResourceQuota"})
    (waiting,) = plan.waiting
    assert "8 used + 8 asked > 8" in waiting.reason.message


def test_a_smaller_gang_passes_and_another_namespace_is_not_concerned() -> None:
    gangs = (
        asked("large", 6, created=1.0),
        asked("small", 4, created=2.0),
        asked("other", 6, created=3.0, namespace="red"),
    )
    plan = run(world(16), (quota(4), quota(8, namespace="red")), *gangs)
    assert outcome(plan) == (["small", "other"], {"large": "ExceedsResourceQuota"})


def test_alike_gangs_of_several_namespaces_have_each_their_own_answer() -> None:
    gangs = [asked(f"g{number}", 2, created=number, namespace=f"n{number % 2}") for number in range(6)]
    plan = run(world(16), (quota(2, namespace="n0"), quota(4, namespace="n1")), *gangs)
    assert outcome(plan)[0] == ["g0", "g1", "g3"]
    assert set(outcome(plan)[1].values()) == {"ExceedsResourceQuota"}


def test_a_strict_queue_waits_for_its_head() -> None:
    made = world(16, queues=[QueueSpec(name="q", ordering="StrictFIFO")])
    plan = run(made, (quota(4),), asked("large", 6, queue="q", created=1.0), asked("small", 4, queue="q", created=2.0))
    assert outcome(plan) == ([], {"large": "ExceedsResourceQuota", "small": "BehindQueueHead"})


def test_nothing_is_evicted_for_a_gang_that_a_quota_stops() -> None:
    made = world(8)
    low = asked("low", 8)
    plan = run(made, (quota(8),), low)
    made.carry_out(plan, [low])
    high = asked("high", 8, priority=10)
    stopped = run(made, (quota(8, 8),), high)
    assert (stopped.evictions, outcome(stopped)) == ((), ([], {"high": "ExceedsResourceQuota"}))
    assert run(made, (quota(16, 8),), high).evictions != ()


def test_a_nominated_gang_keeps_its_part_of_the_quota() -> None:
    """It waits for devices that come free; a later gang of the namespace must not take its quota meanwhile."""
    made = world(8)
    low = asked("low", 7)
    made.carry_out(run(made, (), low), [low])
    high, late = asked("high", 8, priority=10, created=1.0), asked("late", 1, created=2.0)
    plan = run(made, (quota(15, 7),), high, late)
    assert [each.name for each in plan.evictions] == ["low"]
    assert outcome(plan) == ([], {"high": "MakingRoom", "late": Code.OVER_QUOTA.value})


def test_a_gang_that_a_quota_stops_does_not_count_for_fair_shares() -> None:
    made = world(8, queues=[QueueSpec(name="a"), QueueSpec(name="b")])
    made.flavors = (FlavorSpec(name="gpu", device_selector="true"),)
    gangs = (asked("g", 8, queue="a", namespace="red", created=2.0), asked("h", 8, queue="b", created=1.0))
    shares = [
        {use.name: use.flavors[0].fair_share for use in run(made, quotas, *gangs).queues}
        for quotas in ((quota(8),), (quota(1),))
    ]
    assert shares == [{"a": 4, "b": 4}, {"a": 8, "b": 0}]
    assert outcome(run(made, (quota(1),), *gangs)) == (["g"], {"h": "ExceedsResourceQuota"})


def test_what_a_copy_is_charged_does_not_count_for_the_other() -> None:
    quotas = NamespaceQuotas((quota(8),))
    quotas.charge(asked("first", 3))
    trial = quotas.copy()
    trial.charge(asked("second", 5))
    assert "8 used + 1 asked > 8" in str(trial.shortage(asked("third", 1)))
    assert quotas.shortage(asked("third", 5)) is None
