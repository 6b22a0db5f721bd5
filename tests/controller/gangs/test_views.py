"""Gangs as pods and claims show them, which claim is in use, and what is requested. Pure."""

import msgspec
import pytest

from fairlead.api import names
from fairlead.controller.gangs.admission import requests
from fairlead.controller.gangs.build import build_gang
from fairlead.controller.gangs.claims import claims
from fairlead.controller.gangs.held.running import RunningContext, running_gang
from fairlead.engine.types.reasons import Code
from fairlead.kube import core
from tests.controller.gang_views import (
    Objects,
    asked,
    claim,
    pod,
    problem_of,
    template,
    view,
)

# -- what a gang is ------------------------------------------------------------------------------------------------


def test_a_pod_without_annotation_is_a_gang_of_one_named_after_itself():
    gang = view(pod("solo"))
    assert (gang.id, gang.size, gang.solo, gang.present) == (("ml", "solo"), 1, True, 1)
    assert gang.members[0].claims[0].key == "uid-solo/gpu"


def test_members_are_ordered_by_completion_index_then_name():
    index = {"batch.kubernetes.io/job-completion-index": "10"}
    late = pod("a", annotations=index | {names.GANG: "g", names.GANG_SIZE: "3"})
    early = pod(
        "b", annotations={"batch.kubernetes.io/job-completion-index": "9", names.GANG: "g", names.GANG_SIZE: "3"}
    )
    plain = pod("z", gang="g", size=3)
    assert [m.pod.metadata.name for m in view(late, early, plain).members] == ["z", "b", "a"]


def said_by(annotations, **more):
    return pod(more.pop("name"), annotations={names.GANG: "g", names.GANG_SIZE: "2"} | annotations, **more)


@pytest.mark.parametrize(
    ("key", "one", "other"),
    [
        (names.GANG_SIZE, "2", "3"),
        (names.QUEUE, "red", "blue"),
        (names.TOPOLOGY, "required:rack", "preferred:rack"),
        (names.MODELS, "any", "same"),
        (names.ALIGN, "a.b/rail", "a.b/rail=distinct"),
        (names.SUBGROUP_SIZE, "2", "4"),
        (names.SUBGROUP_TOPOLOGY, "required:rack", "required:zone"),
    ],
)
def test_members_that_disagree_are_a_problem_that_says_what_each_states(key, one, other):
    both = {names.SUBGROUP_TOPOLOGY: "required:rack"}
    pods = [said_by(both | {key: value}, name=name) for name, value in (("a", one), ("b", other))]
    assert problem_of(view(*pods)).startswith(
        f"members disagree on the {key.partition('/')[2]}: a says {one}, b says {other}; "
    )


def test_a_size_that_is_missing_or_cannot_be_read_is_a_problem():
    for gang, said in (
        (view(pod("a", gang="g"), pod("b", gang="g")), "no member says how many there are"),
        (view(said_by({names.GANG_SIZE: "many"}, name="a")), "'many' is no gang size"),
    ):
        assert said in problem_of(gang)


def test_a_pod_that_only_has_the_gangs_name_is_named_in_the_problem():
    gang = view(pod("x"), pod("x-0", gang="x", size=1))
    (problem,) = gang.problems
    assert problem.message == (
        "pod x has the gang's name but is no member; delete it and give it another name, "
        f"or annotate it with {names.GANG}: x"
    )
    ended = view(pod("x", gated=False, phase="Succeeded", claim="c"), pod("x-0", gang="x", size=1))
    assert ended.problems == ()


def test_a_gang_gathers_until_all_members_exist_and_finished_ones_of_its_job_count():
    owner = [{"kind": "Job", "name": "j", "uid": "job-1", "controller": True}]
    done = pod("a", gang="g", size=3, gated=False, phase="Succeeded", ownerReferences=owner)
    other_run = pod("x", gang="g", size=3, gated=False, phase="Succeeded")
    waiting = [pod(name, gang="g", size=3, ownerReferences=owner) for name in ("b", "c")]
    assert requests.blocking_problem(view(done, *waiting)) is None
    assert problem_of(view(other_run, *waiting)) == "2 of 3 members exist; 1 member is still to be created"


def test_of_pods_without_an_owner_those_count_that_ended_when_the_others_existed():
    """The first may end before a new leader has released the rest; those of an earlier run under this name are gone."""

    def ended(at):
        state = {"terminated": {"exitCode": 0, "finishedAt": at}}
        made = pod("a", gang="g", size=3, gated=False, phase="Succeeded")
        status = core.PodStatus(
            phase="Succeeded",
            container_statuses=(msgspec.convert({"name": "main", "state": state}, core.ContainerStatus),),
        )
        return msgspec.structs.replace(made, status=status)

    created = "2026-01-01T00:01:00Z"
    waiting = [pod(name, gang="g", size=3, creationTimestamp=created) for name in ("b", "c")]
    assert requests.blocking_problem(view(ended("2026-01-01T00:01:02Z"), *waiting)) is None
    assert requests.blocking_problem(view(ended("2026-01-01T00:00:59Z"), *waiting)) is not None


def test_claims_of_other_drivers_are_not_managed_and_unknown_classes_are_named():
    objects = Objects(templates={"t": template(device_class="nic")})
    gang = view(pod("solo"), objects=objects)
    assert gang.members == ()
    assert len(gang.unmanaged) == 1
    objects = Objects(templates={"t": template(device_class="nowhere")})
    assert "DeviceClass nowhere does not exist" in problem_of(view(pod("solo"), objects=objects))


def test_a_template_that_does_not_exist_yet_is_waited_for():
    """What makes it may come after the pods: NVIDIA's controller makes one of each ComputeDomain."""
    found = requests.blocking_problem(view(pod("solo"), objects=Objects(templates={})))
    assert found is not None
    assert found.code is Code.GATHERING
    assert "ResourceClaimTemplate ml/t, which pod solo uses, does not exist yet" in found.message
    assert requests.blocking_problem(view(pod("solo"))) is None


def test_a_released_pod_is_known_by_the_claim_that_is_reserved_for_it():
    held = claim("c", "solo", node="n1", reserved=["solo"])
    released = pod("solo", gated=False, claim="c")
    gang = view(released, objects=Objects([held]))
    assert gang.released[0].claims[0].claim is held
    unreserved = claim("c", "solo", node="n1")
    assert build_gang(("ml", "solo"), [released], Objects([unreserved])) is None


# -- which claim is in use ---------------------------------------------------------------------------------------------


def in_use(named, *found):
    chosen = claims.claim_in_use(pod("p"), "gpu", named, found)
    return chosen.metadata.name if chosen else None


def test_the_claim_that_the_status_names_is_in_use():
    theirs, ours = claim("theirs", "p"), claim("ours", "p", ours=True)
    assert in_use("theirs", ours, theirs) == "theirs"
    assert in_use(None) is None
    assert in_use(None, ours) == "ours"


def test_where_none_is_named_the_claim_controllers_goes_before_ours_so_that_both_sides_agree():
    theirs, ours = claim("theirs", "p"), claim("ours", "p", ours=True)
    assert in_use(None, ours, theirs) == "theirs"
    assert in_use("ours", ours, theirs) == "theirs"


def test_an_allocated_claim_is_always_in_use():
    theirs, ours = claim("theirs", "p"), claim("ours", "p", ours=True, node="n1", reserved=["p"])
    assert in_use("theirs", ours, theirs) == "ours"
    assert claims.duplicates(pod("p"), "gpu", "theirs", [ours, theirs]) == []
    assert claims.duplicates(pod("p"), "gpu", "ours", [ours, theirs]) == [theirs]


def test_a_claim_of_another_pod_or_entry_or_one_being_deleted_is_never_in_use():
    leaving = claim("leaving", "p", deletionTimestamp="2026-01-01T00:00:00Z")
    assert in_use("other", claim("other", "q"), leaving) is None


def test_claim_names_are_composed_as_the_claim_controller_does():
    assert claims.claim_name("pod", "gpu", lambda alphabet: alphabet[0]) == "pod-gpu-bbbbb"
    long = claims.claim_name("p" * 250, "c" * 63, lambda alphabet: alphabet[0])
    assert len(long) <= 63
    assert long.startswith("ppp")
    assert "-ccc" in long


# -- what is requested ----------------------------------------------------------------------------------------------


def test_members_beyond_the_size_are_requested_once_the_gang_runs():
    record = requests.GangRecord()
    waiting = [pod(f"p{number}", gang="g", size=2) for number in range(5)]
    asked = requests.gang_request(view(*waiting), record, {})
    assert asked is not None
    assert len(asked.members) == 2
    held = [claim(f"c{number}", f"p{number}", node="n1", reserved=[f"p{number}"]) for number in range(2)]
    running = [pod(f"p{number}", gang="g", size=2, gated=False, node="n1", claim=f"c{number}") for number in range(2)]
    asked = requests.gang_request(view(*running, *waiting[2:], objects=Objects(held)), record, {})
    assert asked is not None
    assert [member.pod.name for member in asked.members] == ["p2"]
    assert asked.placed_nodes == ("n1", "n1")


def test_a_claim_created_meanwhile_does_not_change_the_request():
    record = requests.GangRecord()
    first = requests.gang_request(view(pod("p")), record, {})
    made = requests.gang_request(view(pod("p", claim="c"), objects=Objects([claim("c", "p")])), record, {})
    assert first is not None
    assert made is not None
    assert first.claims[0].key != made.claims[0].key
    assert requests.same_request(first, made)
    assert not requests.same_request(first, None)
    assert not requests.same_request(first, requests.gang_request(view(pod("q")), record, {}))


def test_only_a_gang_whose_every_pod_has_a_deadline_promises_an_end():
    def limited(name: str, seconds: int | None) -> core.Pod:
        plain: core.Pod = pod(name, gang="g", size=2)
        return msgspec.structs.replace(plain, spec=msgspec.structs.replace(plain.spec, active_deadline_seconds=seconds))

    assert asked(view(limited("p0", 60), limited("p1", 90))).run_s == 90.0
    assert asked(view(limited("p0", 60), limited("p1", None))).run_s is None


def test_a_gang_that_moves_asks_for_all_that_it_asked_for_when_it_was_made():
    asked = {names.MOVABLE: "true", names.MODELS: "same", names.ALIGN: "a.b/rail", names.SUBGROUP_SIZE: "2"}
    asked |= {names.SUBGROUP_TOPOLOGY: "required:rack", names.TOPOLOGY: "preferred:zone"}
    owner = [{"kind": "Job", "name": "job", "uid": "uid-job", "controller": True}]
    there = {"gated": False, "node": "n1", "phase": "Running", "ownerReferences": owner}
    running = [said_by(asked | {names.COMPLETION_INDEX: str(n)}, name=f"p{n}", claim=f"c{n}", **there) for n in (1, 0)]
    held = [claim(f"c{n}", f"p{n}", node="n1", reserved=[f"p{n}"]) for n in range(2)]
    found = running_gang(view(*running, objects=Objects(held)), requests.GangRecord(), {}, RunningContext())
    assert found is not None
    moved = found.relocation
    assert moved is not None
    assert (moved.models, moved.align) == ("same", "a.b/rail")
    assert (moved.topology, moved.subgroup_topology) == ("preferred:zone", "required:rack")
    assert [(each.rank, each.subgroup) for each in moved.members] == [(0, "0"), (1, "0")]
    assert [each.name for _, each in moved.placed_claims] == ["c0"], "of a pool one is enough"
