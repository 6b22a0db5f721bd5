"""A member of a running gang is replaced: what is held for it, for how long, and what follows. Pure but for the tables."""

from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.controller.book.book import Book
from fairlead.controller.commit.places import Replacements
from fairlead.controller.gangs.admission.requests import GangRecord, gang_request
from fairlead.controller.gangs.claims.allocations import held_claims
from fairlead.controller.gangs.held.running import RunningContext, running_gang
from fairlead.controller.watch.tables import Tables
from fairlead.engine.plan.decide import decide
from fairlead.engine.snapshot import Snapshot
from fairlead.kube import timestamps
from tests.controller.gang_views import NOW
from tests.controller.gangs.test_membership import EIGHT, gang, job, members
from tests.support.engine.objects import claim_spec, device_request, gpu, slice_of
from tests.support.engine.objects import gang as waiting_gang
from tests.support.engine.world import World

TIMEOUT_S = 60.0


class Watched:
    """The informers behind the tables: what the cluster shows now."""

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {}

    def by_index(self, index: str, key: str) -> list[Any]:
        return [self.objects[key]] if key in self.objects else []

    def all(self) -> list[Any]:
        return list(self.objects.values())


class Bench:
    """A node with eight GPUs, on which a gang of eight runs: each pod holds the GPU of its number."""

    def __init__(self, size: int = 8, jobs: Any = None, owner: Any = ("Job", "job-1")) -> None:
        world = World()
        world.add_node("n0", [gpu(minor) for minor in range(8)])
        self.pods, self.claims = Watched(), Watched()
        self.tables = Tables(self.pods, self.claims)  # type: ignore[arg-type]
        self.tables.inventory, self.tables.nodes = world.inventory, world.nodes
        self.classes = world.classes
        self.world = world
        self.size, self.owner = size, owner
        self.jobs = [job(**EIGHT)] if jobs is None else jobs
        self.replacements = Replacements(Book(), self.tables, timeout_s=TIMEOUT_S)
        self.now = NOW

    def show(self, shown: str) -> Any:
        """The cluster shows the gang so; a failed pod or one that is gone has given its claim back."""
        pods, held = members(shown, size=self.size, owner=self.owner)
        for number, each in enumerate(held):
            result = each.status.allocation.devices.results[0]
            minor = int(each.metadata.name.removeprefix("c-p"))
            allocation = {"device": f"gpu-{minor}", "pool": "n0"}
            held[number] = _with_device(each, result, allocation)
        before, now = set(self.claims.objects), {each.metadata.uid: each for each in held}
        self.claims.objects = now
        for uid in before - set(now):
            self.tables.set_claim(uid, None)
        for uid, each in now.items():
            self.tables.set_claim(uid, each)
        self.shown = gang(pods, held, self.jobs)
        self.replacements.update(self.shown.id, self.shown, self.now)
        return self.shown

    def decide(self, *others: Any) -> dict[str, set[str]]:
        """What is admitted, by gang: its devices."""
        requests = [] if not self.shown.gated else [gang_request(self.shown, GangRecord(), {})]
        lifted = self.replacements.lift([*(each for each in requests if each is not None), *others], self.now)
        running = running_gang(self.shown, GangRecord(), {}, RunningContext())
        found = [] if running is None else [self.replacements.running(self.shown.id, running, self.now)]
        snapshot = Snapshot(
            inventory=self.tables.inventory,
            nodes=self.tables.nodes,
            classes=self.classes,
            gangs=tuple(lifted),
            running=tuple(found),
        )
        self.plan = decide(snapshot, self.now)
        self.replacements.restore(self.plan.admissions)
        return {
            each.name: {result.device for held in each.claims for result in held.allocation.devices.results}
            for each in self.plan.admissions
        }


def _with_device(claim: Any, result: Any, fields: dict[str, str]) -> Any:
    allocation = claim.status.allocation
    devices = replace(allocation.devices, results=(replace(result, **fields),))
    return replace(claim, status=replace(claim.status, allocation=replace(allocation, devices=devices)))


OTHER = waiting_gang("other", 1, claim_spec(device_request()), created=0.0)


def test_the_devices_of_a_failed_member_are_held_from_others_and_given_to_the_one_that_replaces_it():
    bench = Bench()
    bench.show("RRRRRRRR")
    assert bench.decide(OTHER) == {}
    bench.show("RRRFRRRR")
    assert bench.decide(OTHER) == {}
    bench.show("RRRFRRRRG")
    assert bench.decide(OTHER) == {"g": {"gpu-3"}}


def test_a_member_that_is_deleted_leaves_the_same_vacancy():
    bench = Bench()
    bench.show("RRRRRRRR")
    bench.show("RRRTRRRR")
    assert bench.decide(OTHER) == {}
    bench.show("RRR-RRRR")
    assert bench.decide(OTHER) == {}
    assert held_claims(bench.shown.members).keys() == {f"uid-c-p{n:02}" for n in range(8) if n != 3}


def test_of_two_places_one_is_taken_and_the_other_stays_held():
    bench = Bench()
    bench.show("RRRRRRRR")
    bench.show("RRFFRRRR")
    bench.show("RRFFRRRRG")
    (taken,) = bench.decide(OTHER)["g"]
    assert taken in {"gpu-2", "gpu-3"}
    bench.show("RRFFRRRR")  # its admission is being written
    assert bench.decide(OTHER) == {"other": {taken}}


def test_what_a_gang_of_fewer_than_it_runs_loses_is_not_held():
    bench = Bench(size=4)
    bench.show("RRRRRRRR")
    bench.show("RRRFRRRR")
    assert bench.decide(OTHER) == {"other": {"gpu-3"}}


@pytest.mark.parametrize(
    ("owner", "shown", "whole"),
    [
        (("Job", "job-1"), "RRRFRRRR", True),
        (("ReplicaSet", "rs"), "RRR-RRRR", False),
        (("ReplicaSet", "rs"), "RRR-RRRRG", True),
        (("StatefulSet", "s"), "RRR-RRRR", False),
        (None, "RRRFRRRR", None),
    ],
    ids=["its Job makes another", "a Deployment may be smaller", "its next pod waits", "a StatefulSet", "bare pods"],
)
def test_after_the_timeout_it_goes_whole_if_more_pods_come_and_else_runs_on(owner: Any, shown: str, whole: bool | None):
    bench = Bench(owner=owner, jobs=None if owner == ("Job", "job-1") else [])
    bench.show("RRRRRRRR")
    bench.show(shown)
    if whole is None:  # nothing is held, and nothing is waited for
        assert bench.replacements.deadline(bench.shown.id) is None
        assert bench.decide(OTHER) == {"other": {"gpu-3"}}
        return
    assert bench.replacements.deadline(bench.shown.id) == NOW + TIMEOUT_S
    assert bench.replacements.overdue(bench.shown, NOW + TIMEOUT_S - 1) == ""
    said = bench.replacements.overdue(bench.shown, NOW + TIMEOUT_S)
    assert said == ("1 of its 8 members was not replaced within 60 s" if whole else "")
    if not whole:
        assert bench.replacements.deadline(bench.shown.id) is None
        bench.show(shown)
        assert bench.decide(OTHER) == {"other": {"gpu-3"}}


@pytest.mark.parametrize(
    "shown", ["RRR-RRRR", "RRR-RRRRG"], ids=["nothing replaces it yet", "its next pod waits already"]
)
def test_a_gang_whose_lost_member_held_a_broken_device_goes_whole(shown: str):
    bench = Bench()
    bench.show("RRRRRRRR")
    bench.show(shown)
    broken = {"key": "xid", "effect": "NoExecute", "timeAdded": timestamps.seconds(NOW)}
    slices = slice_of("n0", [{**gpu(n), "taints": [broken] * (n == 3)} for n in range(8)])
    for body in slices:
        body["spec"]["pool"]["generation"] = 2
    bench.world.add_slices(slices)
    assert bench.decide(OTHER) == {}, "its place is of no use to others either"
    assert [(each.kind, each.whole, len(each.pods)) for each in bench.plan.evictions] == [("Replace", True, 7)]


def test_a_gang_that_is_gone_holds_nothing():
    bench = Bench()
    bench.show("RRRRRRRR")
    bench.show("RRRFRRRR")
    bench.replacements.update(bench.shown.id, None, NOW)
    bench.show("FFFFFFFF")
    assert bench.decide(OTHER)["other"]
