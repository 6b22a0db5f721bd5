"""How long gangs run: services end by no time of their own, and say nothing of those that do."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.controller.forecasting.history import RunHistory
from fairlead.controller.gangs.admission.requests import endless
from fairlead.engine.forecast.forecast import forecast
from fairlead.engine.forecast.run_times import GangKey, RunRecord, RunTimes
from fairlead.engine.types.gangs import GangRequest, RunningGang
from tests.support.engine.objects import claim_spec, device_request, gang
from tests.support.engine.world import World, h100_world

WHOLE = claim_spec(device_request(8))
SHORT = [RunRecord(GangKey("ml", "test", 1), 20.0)] * 20


def held_by(request: GangRequest, *, started: float = 0.0) -> World:
    world = h100_world(1)
    world.now = started
    assert world.carry_out(world.decide(request), [request]) == []
    running = world.running[request.id]
    world.running[request.id] = replace(running, endless=request.endless)
    world.now = started + 50.0
    return world


def test_what_waits_for_a_service_has_no_time_though_short_runs_are_known():
    world, waits = held_by(gang("serves", 1, WHOLE, endless=True)), gang("waits", 1, WHOLE, created=50.0)
    found = forecast(world.snapshot(waits), world.now, RunTimes(SHORT), seed=1).gangs["ml/waits"]
    assert (found.p50, found.p90, found.never) == (None, None, False)
    assert "run times of 1 running gang from services, which end by no time of their own (1)" in found.because
    assert "later than 24 h from now in 32 of them" in found.because


def test_a_service_that_will_be_started_before_it_holds_its_devices_for_good():
    world = held_by(gang("train", 1, WHOLE))
    service = gang("serves", 1, WHOLE, endless=True, created=10.0)
    waits = gang("waits", 1, WHOLE, created=20.0)
    found = forecast(world.snapshot(service, waits), world.now, RunTimes(SHORT), seed=1).gangs
    assert found["ml/serves"].p50 is not None
    assert found["ml/waits"].p50 is None


def test_a_deadline_ends_a_service_too():
    world, waits = held_by(gang("serves", 1, WHOLE, endless=True, run_s=600.0)), gang("waits", 1, WHOLE, created=50.0)
    found = forecast(world.snapshot(waits), world.now, RunTimes(SHORT), seed=1).gangs["ml/waits"]
    assert found.p90 == 600.0


def test_the_end_of_a_service_says_nothing_of_runs():
    history = RunHistory()
    made = [
        RunningGang(namespace="ml", name=name, uid=name, queue=None, claims=(), endless=name == "s") for name in "sj"
    ]
    history.note((), made, 0.0, lambda _: False)
    assert [record.key.stem for record in history.records(10.0)] == ["j"]
    history.note((), (), 30.0, lambda _: False)
    assert [record.key.stem for record in history.records(40.0)] == ["j"]


@pytest.mark.parametrize(
    ("policy", "kind", "found"),
    [
        ("Always", "ReplicaSet", True),
        ("Always", "StatefulSet", True),
        ("Always", "RayCluster", False),
        ("Always", None, False),
        ("Never", "Job", False),
        ("OnFailure", "ReplicaSet", False),
    ],
)
def test_a_service_is_known_by_its_pods_and_what_makes_them(policy: str, kind: str | None, found: bool):
    owner = None if kind is None else SimpleNamespace(kind=kind)
    pod = SimpleNamespace(spec=SimpleNamespace(restart_policy=policy), metadata=SimpleNamespace(controller=owner))
    made: Any = SimpleNamespace(members=[SimpleNamespace(pod=pod)])
    assert endless(made) is found
