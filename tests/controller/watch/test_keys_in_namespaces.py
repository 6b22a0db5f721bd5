"""Owner references name UIDs that users choose: what names an owner of another namespace finds nothing there, and is found by nothing."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest

from fairlead.api import names
from fairlead.api.gang import SPOTS_MAX
from fairlead.controller.book.book import Book
from fairlead.controller.commit.gang_tasks import Refusals
from fairlead.controller.commit.places import Moves
from fairlead.controller.gangs.evictions.moved import HELD_S, Held, Spot, may_have
from fairlead.controller.gangs.evictions.past_evictions import (
    AGE_MAX_S,
    GRACE_MAX_S,
    SKEW_S,
    PastEviction,
    past_eviction,
)
from fairlead.controller.gangs.membership.gangs import Gang
from fairlead.controller.report.metrics import Metrics
from fairlead.controller.watch.caches import Caches
from fairlead.engine.types.values import DeviceRef
from fairlead.kube import batch, core, resource
from fairlead.ui.model.holders import holders
from tests.support.engine.objects import claim_spec, device_request, gang

NOW = 1_800_000_000.0
OWNER = "7d1c0e3a-job-of-blue"
GPU = DeviceRef(names.DRIVER, "n1", "gpu-0")
Json = dict[str, Any]


def owned(namespace: str, name: str, kind: str = "Job", owner: str = OWNER) -> Json:
    reference = {"apiVersion": "batch/v1", "kind": kind, "name": "job", "uid": owner, "controller": True}
    return {"namespace": namespace, "name": name, "uid": f"{namespace}-{name}", "ownerReferences": [reference]}


def pod(namespace: str, name: str, annotations: dict[str, str] | None = None) -> core.Pod:
    gated = {
        "schedulingGates": [{"name": names.ADMISSION_GATE}], "containers": [{"name": "c"}],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}],
    }  # fmt: skip
    return msgspec.convert(
        {"metadata": {**owned(namespace, name), "annotations": annotations or {}}, "spec": gated}, core.Pod
    )


def caches() -> Caches:
    source: Any = None
    made = Caches(source, (names.DRIVER,))
    made.pods.note(pod("blue", "next"))
    made.refresh()
    return made


def evicted(namespace: str, **more: Any) -> Json:
    past = PastEviction(at=NOW, queued_since=NOW - 1e6, mark="x", why="y", until=NOW + 900, owner=OWNER, maker="Job")
    metadata = {"name": "gone", "namespace": namespace, "resourceVersion": "1"}
    return {"metadata": metadata, "spec": {"size": 1, "hold": {"by": "mallory"}}, "status": past.status(), **more}


@pytest.mark.parametrize(("namespace", "found"), [("blue", True), ("red", False)])
def test_a_hold_and_an_age_come_from_gangs_of_the_same_namespace_only(namespace: str, found: bool) -> None:
    known = caches()
    known.gang_objects.note(evicted(namespace))
    own: Gang = known.gangs["blue", "next"]
    assert (known.records.hold_of(own) is not None) is found
    assert bool(known.records.past_evictions(own, NOW)) is found


def test_a_gang_object_that_a_user_made_first_does_not_end_the_hold_of_the_pod_before() -> None:
    known = caches()
    known.gang_objects.note(evicted("blue"))
    made: Json = {"metadata": {"name": "next", "namespace": "blue", "resourceVersion": "2"}, "spec": {"size": 1}}
    known.gang_objects.note(made)
    own = known.gangs["blue", "next"]
    assert known.records.hold_of(own) is not None
    known.gang_objects.note({**made, "metadata": made["metadata"] | {"resourceVersion": "3"}, "status": {"members": 1}})
    assert known.records.hold_of(own) is None, "its own says so from now on"


def test_claims_and_pods_are_of_the_owner_in_their_own_namespace() -> None:
    known = caches()
    own = known.gangs["blue", "next"].members[0].pod
    forged = msgspec.convert({"metadata": owned("red", "c", "Pod", own.metadata.uid)}, resource.ResourceClaim)
    known.claims.note(forged)
    assert list(known.lookup.claims_of(own)) == []
    assert known.pods_of(forged) == {}
    job = {"metadata": {"namespace": "blue", "name": "job", "uid": OWNER}, "spec": {"template": {}}}
    known.jobs.note(msgspec.convert(job, batch.Job))
    past = past_eviction(evicted("red"), NOW)
    assert past is not None
    assert known.lookup.makers(("red", "gone"), past) == ()


def test_a_change_of_a_job_wakes_gangs_of_its_namespace_only() -> None:
    known = caches()
    for namespace in ("blue", "red"):
        known.pods.note(pod(namespace, "member", {names.GANG: "g", names.GANG_SIZE: "1"}))
    known.gang_objects.note(evicted("red"))
    known.triggers.take_gangs()
    job = {"metadata": {"namespace": "blue", "name": "job", "uid": OWNER}, "spec": {"template": {}}}
    known.jobs.note(msgspec.convert(job, batch.Job))
    assert known.triggers.take_gangs() == {("blue", "g")}


def test_nodes_refused_for_one_namespace_are_not_refused_for_another() -> None:
    known = caches()
    known.pods.note(pod("red", "next"))
    known.refresh()
    refusals = Refusals()
    refusals.note(known.gangs["red", "next"], [("n1", "no")], NOW)
    assert refusals.of(known.gangs["red", "next"], NOW)
    assert refusals.of(known.gangs["blue", "next"], NOW) == ()


def moved() -> PastEviction:
    return PastEviction(
        at=NOW, queued_since=NOW, mark="moved", why="", until=NOW + 900, owner=OWNER, maker="Job", queue="blue",
        place=(Spot("n1", (GPU,)),), held_until=NOW + 600,
    )  # fmt: skip


def requests(namespace: str, count: int = 1) -> list[Any]:
    return [msgspec.structs.replace(gang("next", 1, claim_spec(device_request(count))), namespace=namespace)]


@pytest.mark.parametrize(("namespace", "gets"), [("blue", True), ("red", False)])
def test_a_held_place_goes_to_a_pod_of_the_same_owner_and_namespace(namespace: str, gets: bool) -> None:
    moves = Moves(Book(), caches().tables, Metrics())
    moves.update(("blue", "gone"), None, moved(), NOW)
    assert moves.running()["blue", "gone"].devices() == {GPU}
    (request,) = moves.lift(requests(namespace), lambda _: OWNER)
    assert request.replaces is gets


def test_the_place_is_charged_to_the_queue_that_the_gang_had() -> None:
    moves = Moves(Book(), caches().tables, Metrics())
    moves.update(("blue", "gone"), None, moved(), NOW)
    (held,) = moves.running().values()
    assert moves.with_place(None, held).queue == "blue"


def test_pods_that_ask_for_more_than_the_place_has_wait_as_others() -> None:
    held = Held(("blue", "gone"), (Spot("n1", (GPU,)),), NOW)
    assert may_have(requests("blue")[0], held)
    assert not may_have(requests("blue", 8)[0], held)
    assert not may_have(gang("g", 2, claim_spec(device_request(1))), held)


@pytest.mark.parametrize(("namespace", "held"), [("blue", True), ("red", False)])
def test_a_place_whose_devices_another_namespace_has_is_not_held_again(namespace: str, held: bool) -> None:
    """The leader before gave it up, and gave the devices out."""
    known = caches()
    result = {"request": "gpu", "driver": names.DRIVER, "pool": "n1", "device": "gpu-0"}
    taken = {
        "metadata": {"namespace": namespace, "name": "c", "uid": "c", "resourceVersion": "1"},
        "status": {"allocation": {"devices": {"results": [result]}}},
    }
    known.claims.note(msgspec.convert(taken, resource.ResourceClaim))
    moves = Moves(Book(), known.tables, Metrics())
    moves.update(("blue", "gone"), None, moved(), NOW)
    assert bool(moves.running()) is held


def test_what_is_read_of_an_eviction_is_no_more_than_an_eviction_could_have_written() -> None:
    spots = [{"node": "n", "devices": [f"{names.DRIVER}/n/gpu-{number}"]} for number in range(SPOTS_MAX + 1)]

    def read(**more: Any) -> PastEviction | None:
        status = moved().status()
        status["lastEviction"] |= more
        return past_eviction({"status": status}, NOW)

    assert read(at="2099-01-01T00:00:00Z") is None
    assert past_eviction({"status": moved().status()}, NOW - SKEW_S - 1) is None
    old = read(since="1970-01-01T00:00:00Z", until="2099-01-01T00:00:00Z", held="2099-01-01T00:00:00Z")
    assert old is not None
    assert old.queued_since == NOW - AGE_MAX_S
    assert old.until <= NOW + GRACE_MAX_S + 900
    assert old.held_until == NOW + GRACE_MAX_S + HELD_S
    young = read(since="2099-01-01T00:00:00Z")
    assert young is not None
    assert young.queued_since == NOW
    for place in (spots, [spots[0], spots[0]]):
        found = read(place=place)
        assert found is not None
        assert found.place == ()


def test_whatever_pods_say_the_record_fits_the_schema() -> None:
    """A refused record would keep the gang from being evicted."""
    long = dataclasses.replace(moved(), mark="m" * 9_999, why="w" * 99_999, maker="k" * 9_999)
    written = long.status()["lastEviction"]
    assert (len(written["what"]), len(written["why"]), len(written["maker"])) == (1024, 4096, 253)


def test_the_pages_show_no_gang_of_another_namespace_as_holder() -> None:
    allocated = {
        "metadata": {"namespace": "blue", "name": "c", "uid": "c"},
        "status": {"allocation": {}, "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]},
    }
    theirs = {"metadata": {"namespace": "red", "name": "p", "uid": "u"}}
    (found,) = holders([msgspec.convert(allocated, resource.ResourceClaim)], [theirs], []).values()
    assert found.gang == ""
