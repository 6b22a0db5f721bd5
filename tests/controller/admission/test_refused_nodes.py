"""For how long a node that kube-scheduler refused is not chosen again, and for whom."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from msgspec import structs

from fairlead.controller.book.book import Book
from fairlead.controller.commit.gang_tasks import FIRST_S, FORGET_S, MAX_S, GangBackoffs, Refusals
from fairlead.controller.gangs.admission.recovery import RollBack
from fairlead.controller.gangs.evictions.past_evictions import past_eviction, roll_back_of
from fairlead.engine.types.gangs import RefusedNode
from fairlead.kube import core
from tests.controller.gang_views import NOW, Objects, claim, pod, step, view


def gang(name: str = "g"):
    return view(pod(f"{name}-0", gang=name, size=1, claim="c"), objects=Objects([claim("c", f"{name}-0")]))


def solo(name: str, owner: str):
    owners = [{"kind": "ReplicaSet", "name": owner, "uid": owner, "controller": True}]
    return view(pod(name, claim="c", ownerReferences=owners), objects=Objects([claim("c", name)]))


def test_a_node_is_refused_for_twice_as_long_each_time_in_a_row():
    known, now, times = Refusals(), NOW, []
    for _ in range(6):
        known.note(gang(), [("n1", "no")], now)
        (found,) = known.of(gang(), now)
        times.append(found.until - now)
        now = found.until
    assert times == [min(MAX_S, FIRST_S * 2.0**n) for n in range(6)]
    assert known.of(gang(), now) == ()
    known.expire(NOW, now + FORGET_S)
    known.note(gang(), [("n1", "no")], now + FORGET_S)
    assert known.of(gang(), now + FORGET_S)[0].until == now + FORGET_S + FIRST_S


def test_other_gangs_may_use_the_node_and_one_that_runs_forgets_it():
    known = Refusals()
    known.note(gang(), [("n1", "no")], NOW)
    assert known.of(gang(), NOW) == (RefusedNode(node="n1", until=NOW + FIRST_S, why="no"),)
    assert known.of(gang("other"), NOW) == ()
    known.reset(gang())
    assert known.of(gang(), NOW) == ()


def test_the_next_pod_of_the_same_owner_is_the_same_gang():
    known = Refusals()
    known.note(solo("web-a", "rs"), [("n1", "no")], NOW)
    assert known.of(solo("web-b", "rs"), NOW)
    assert not known.of(solo("web-c", "another"), NOW)
    assert known.expire(NOW, NOW + FIRST_S) == [("ml", "web-a"), ("ml", "web-b")]


def rolled_back(known: Refusals, of):
    """What is on the Gang object after the last of them, as the next leader reads it."""
    made = roll_back_of(of, of.members, "did not bind", known.told(of, NOW), at=NOW, queued_since=NOW - 60)
    read = past_eviction({"status": made.status()}, NOW)
    assert read == made
    assert read.waits_since == NOW - 60  # it has not started
    return read


def test_the_next_leader_knows_them_and_how_many_there_were_in_a_row():
    known, of = Refusals(), solo("web-a", "rs")
    for _ in range(2):
        known.note(of, [("n1", "no")], NOW)
    known.note(of, [("n2", "neither")], NOW)
    past = rolled_back(known, of)
    new, later = Refusals(), solo("web-b", "rs")
    new.learn(later, [past], NOW)
    assert new.of(later, NOW) == known.of(of, NOW)
    new.note(later, [("n1", "no")], NOW)
    assert new.of(later, NOW)[0].until == NOW + 4 * FIRST_S


def test_a_leader_that_knows_better_does_not_learn_it_again():
    known = Refusals()
    known.note(gang(), [("n1", "no")], NOW)
    past = rolled_back(known, gang())
    known.reset(gang())  # it runs
    known.learn(gang(), [past], NOW)
    assert known.of(gang(), NOW) == ()
    new = Refusals()
    new.learn(gang(), [past], NOW)
    new.reset(gang())
    new.learn(gang(), [past], NOW)
    assert new.of(gang(), NOW) == ()
    new.expire(NOW, NOW + MAX_S + FORGET_S)
    assert not new._learnt
    new.learn(gang(), [past], NOW + MAX_S + FORGET_S)
    assert new.told(gang(), NOW) == ()
    long_ago = Refusals()
    long_ago.learn(gang(), [past], NOW + FIRST_S + FORGET_S)
    assert long_ago.told(gang(), NOW) == ()


def test_a_time_that_is_written_wrongly_bars_a_node_no_longer_than_the_longest():
    known = Refusals()
    known.note(gang(), [("n1", "no")], NOW)
    past = rolled_back(known, gang())
    far = [replace(each, until=NOW + 1e9) for each in past.refused]
    new = Refusals()
    new.learn(gang(), [replace(past, refused=tuple(far))], NOW)
    assert new.of(gang(), NOW)[0].until == NOW + MAX_S


def test_the_end_of_the_time_is_a_deadline():
    backoffs = GangBackoffs(Book(), Random(1))
    backoffs.expire(NOW, ())
    backoffs.refusals.note(gang(), [("n1", "no")], NOW)
    assert backoffs.next_end() == NOW + FIRST_S
    assert backoffs.expire(NOW + FIRST_S, ()) == [("ml", "g")]
    assert backoffs.next_end() is None
    assert backoffs.expire(NOW + FIRST_S + 1, ()) == []


def late(reason: str):
    held = [claim("c", "p", node="n1", reserved=["p"], age_s=100.0)]
    made = pod("p", gang="g", size=1, claim="c", gated=False)
    refused = core.PodCondition(type="PodScheduled", status="False", reason=reason, message="0/1 nodes")
    made = structs.replace(made, status=structs.replace(made.status, conditions=(refused,)))
    return view(made, objects=Objects(held))


def test_only_what_kube_scheduler_refused_counts():
    """A pod that it has not tried, or that failed otherwise, says nothing of the node."""
    found = step(late("Unschedulable"))
    assert isinstance(found, RollBack)
    assert found.refused == (("n1", "0/1 nodes"),)
    found = step(late("SchedulerError"))
    assert isinstance(found, RollBack)
    assert (found.nodes, found.refused) == (("n1",), ())
