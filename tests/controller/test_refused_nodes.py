"""For how long a node that kube-scheduler refused is not chosen again, and for whom."""

from __future__ import annotations

from random import Random

from msgspec import structs

from fairlead.controller.commit.backoff import GangBackoffs
from fairlead.controller.commit.refusals import FIRST_S, FORGET_S, MAX_S, Refusals
from fairlead.controller.gangs.recovery import RollBack
from fairlead.engine.types.gangs import RefusedNode
from fairlead.kube import core

from .gang_views import NOW, Objects, claim, pod, step, view


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


def test_the_end_of_the_time_is_a_deadline():
    backoffs = GangBackoffs(Random(1))
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
