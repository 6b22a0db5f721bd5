"""A snapshot that is written down and read again gives the same plan, to the byte; what is no snapshot is named."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairlead.bounded import unpack
from fairlead.bounded.limits import BoundError
from fairlead.engine.placement.value.workload import DEMANDS_MAX, WorkloadCounter
from fairlead.engine.plan.decide import Engine, decide
from fairlead.engine.snapshot import Snapshot
from fairlead.engine.types.plan import Plan
from fairlead.history.facts.form import FactsError
from fairlead.history.facts.snapshot_file import dump, load, load_facts
from fairlead.history.facts.state import State
from tests.support.decisions_sources import Case, Data, selected
from tests.support.engine.objects import claim_spec, device_request, gang
from tests.support.engine.world import h100_world
from tests.support.history import seen_by

EVERY = 11  # of the decisions, so many are decided again


def quick() -> list[Case]:
    return selected("quick", Data(Path("/nowhere"), Path("/nowhere")))[0]


def read(data: bytes) -> tuple[Snapshot, float]:
    facts, now = load_facts(data)
    state = State()
    state.apply(facts)
    return state.snapshot(), now


@pytest.mark.slow
@pytest.mark.parametrize("source", ["scenarios", "clusters", "claims"])
def test_what_was_written_down_gives_the_same_plan(source: str):
    decided = compared = 0

    def look(snapshot: Snapshot, now: float, plan: Plan) -> None:
        nonlocal decided, compared
        decided += 1
        if decided % EVERY == 0:
            compared += 1
            assert original(*read(dump(snapshot, now))) == plan

    original = Engine().decide  # as it is outside of `seen_by`
    for case in [case for case in quick() if case.name.startswith(source)][::2]:
        with seen_by(look):
            case.run()
    assert compared > 5


def test_a_mix_is_read_as_it_was_written():
    """With what placement knows of rare requests."""
    counter = WorkloadCounter()
    for number in range(DEMANDS_MAX):
        counter.note(gang(f"often-{number}", 2, claim_spec(device_request()), cpu=str(1 + number)))
    counter.note(gang("rare", 1, claim_spec(device_request(8)), cpu="64"))
    world = h100_world(1)
    world.workload = counter.workload()
    assert world.workload is not None
    text = dump(world.snapshot(), 0.0)
    found = read(text)[0].workload
    assert found is not None
    assert (found.demands, found.rare) == (world.workload.demands, world.workload.rare)
    assert (found.pods, found.once, found.cpu) == (2 * DEMANDS_MAX + 1, 1, world.workload.cpu)
    assert len(found.rare) == 1


def small() -> tuple[Snapshot, float]:
    world = h100_world(2)
    return world.snapshot(gang("job", 2, claim_spec(device_request(4)))), 17.0


def test_a_file_says_what_it_is_and_may_be_compressed():
    data = dump(*small(), code="a version")
    body = json.loads(data)
    assert (body["format"], body["version"], body["at"], body["code"]) == ("fairlead-snapshot", 1, 17.0, "a version")
    for form in (data, gzip.compress(data)):
        loaded = load(form)
        assert loaded.now == 17.0
        assert decide(*loaded) == decide(*small())


def test_a_slice_that_cannot_be_measured_stays_so():
    world = h100_world(1)
    body = next(iter(world.slice_json.values()))
    body["spec"]["devices"][0] |= {"capacity": {"memory": {"value": "much"}}, "allowMultipleAllocations": True}
    world.add_slices([body])
    wanted = gang("job", 1, claim_spec(device_request(1)))
    plan = decide(world.snapshot(wanted), 1.0)
    assert not plan.admissions
    assert decide(*load(dump(world.snapshot(wanted), 1.0))) == plan


def broken(change: Callable[[dict[str, Any]], object]) -> bytes:
    body = json.loads(dump(*small()))
    change(body)
    return json.dumps(body).encode()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "no snapshot of `fairlead snapshot`"),
        (b"[]", "no snapshot of `fairlead snapshot`"),
        (b'{"kind": "List"}', "format: ''"),
        (dump(*small())[:200], "it may be cut"),
        (gzip.compress(dump(*small()))[:-20], "its end is missing"),
        (b"\x1f\x8bnonsense", "compressed data that cannot be read"),
        (broken(lambda body: body.update(version=7)), "version: 7: this fairlead reads version 1"),
        (broken(lambda body: body["facts"].pop("slices")), "has no ResourceSlices"),
        (broken(lambda body: body["facts"]["gangs"].update(x={"name": "x"})), "missing required field"),
        (broken(lambda body: body["facts"].update(order={"gangs": ["ml/other"]})), "facts.order.gangs: 'ml/other'"),
        (broken(lambda body: body["facts"].update(order={"gangs": []})), "0 keys for 1 entries"),
    ],
)
def test_what_is_no_snapshot_is_named(data: bytes, words: str):
    with pytest.raises(FactsError, match=words):
        load(data)


def test_two_gangs_of_one_name_are_named():
    world = h100_world(1)
    twice = [gang("job", 1, claim_spec(device_request(1))) for _ in range(2)]
    with pytest.raises(FactsError, match=r"snapshot.gangs: 'ml/job' is there twice"):
        dump(world.snapshot(*twice), 1.0)


def test_what_is_too_large_when_it_is_unpacked_is_named():
    packed = gzip.compress(bytes(1000))
    assert unpack.whole(packed) == bytes(1000)
    with pytest.raises(BoundError, match="more than 999 bytes"):
        unpack.whole(packed, 999)
