"""Gangs as pods and claims show them, which claim counts, and what recovery makes of it. Pure."""

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from fairlead.api import names
from fairlead.controller import claims, gangs, recovery, requests, status
from fairlead.controller.members import GroupTerms, Stage
from fairlead.kube import core, resource, timestamps

NOW = 1_800_000_000.0
CLASS = msgspec.convert({"metadata": {"name": "gpu"}, "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{names.DRIVER}'"}}]}}, resource.DeviceClass)  # fmt: skip
OTHER_CLASS = msgspec.convert({"metadata": {"name": "nic"}, "spec": {"selectors": [{"cel": {"expression": "device.driver == 'nic.example.com'"}}]}}, resource.DeviceClass)  # fmt: skip


def spec(device_class="gpu"):
    return {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": device_class}}]}}


def template(name="t", device_class="gpu"):
    return msgspec.convert(
        {"metadata": {"name": name, "namespace": "ml"}, "spec": {"spec": spec(device_class)}},
        resource.ResourceClaimTemplate,
    )


def pod(name, *, gang=None, size=None, gated=True, phase="Pending", node="", claim=None, template="t", **meta):
    annotations = ({names.GANG: gang} if gang else {}) | ({names.GANG_SIZE: str(size)} if size else {})
    use = {"name": "gpu", "resourceClaimTemplateName": template} if template else {}
    return msgspec.convert(
        {
            "metadata": {
                "name": name, "namespace": "ml", "uid": f"uid-{name}", "annotations": annotations,
                "creationTimestamp": timestamps.seconds(NOW - 60),
            } | meta,
            "spec": {
                "nodeName": node,
                "schedulingGates": [{"name": names.ADMISSION_GATE}] if gated else [],
                "resourceClaims": [use] if use else [],
            },
            "status": {
                "phase": phase,
                "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": claim}] if claim else [],
            },
        },
        core.Pod,
    )  # fmt: skip


def claim(name, owner, *, node=None, reserved=(), ours=False, age_s=0.0, **meta):
    status: dict[str, Any] = {}
    if node:
        status["allocation"] = {
            "devices": {"results": [{"request": "r", "driver": names.DRIVER, "pool": node, "device": name}]},
            "nodeSelector": {
                "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
            },
            "allocationTimestamp": timestamps.seconds(NOW - age_s),
        }
        status["reservedFor"] = [{"resource": "pods", "name": pod, "uid": f"uid-{pod}"} for pod in reserved]
    owners = [{"kind": "Pod", "name": owner, "uid": f"uid-{owner}", "controller": True}] if owner else []
    return msgspec.convert(
        {
            "metadata": {
                "name": name, "namespace": "ml", "uid": f"uid-{name}", "ownerReferences": owners,
                "annotations": {names.POD_CLAIM_NAME: "gpu"},
                "labels": {names.MANAGED_BY: names.MANAGED_BY_VALUE} if ours else {},
            } | meta,
            "spec": spec(),
            "status": status,
        },
        resource.ResourceClaim,
    )  # fmt: skip


@dataclass
class Objects:
    claims: list[resource.ResourceClaim] = field(default_factory=list)
    templates: dict[str, resource.ResourceClaimTemplate] = field(default_factory=lambda: {"t": template()})
    groups: dict[tuple[str, str], GroupTerms] = field(default_factory=dict)
    drivers: tuple[str, ...] = (names.DRIVER,)
    classes: dict[str, resource.DeviceClass] = field(default_factory=lambda: {"gpu": CLASS, "nic": OTHER_CLASS})

    def claim(self, namespace, name):
        return next((each for each in self.claims if each.metadata.name == name), None)

    def claims_of(self, uid):
        return [c for c in self.claims if c.metadata.controller and c.metadata.controller.uid == uid]

    def template(self, namespace, name):
        return self.templates.get(name)

    def pod_group(self, api, namespace, name):
        return self.groups.get((api, name))


def view(*pods, objects=None, known=False):
    found = gangs.view(gangs.gang_id(pods[0]), pods, objects or Objects(), known=known)
    assert found is not None
    return found


def step(gang, *, timeout_s=60.0, nodes=("n1", "n2")):
    return recovery.next_step(gang, now=NOW, timeout_s=timeout_s, node_exists=lambda name: name in nodes)


# -- what other systems call a gang ---------------------------------------------------------------------------------


def test_pods_of_kueues_group_are_a_gang_of_its_total_count():
    meta = {
        "labels": {names.KUEUE_GROUP_LABEL: "g", names.KUEUE_QUEUE: "q"},
        "annotations": {names.KUEUE_SIZE: "2"},
    }
    gang = view(pod("a", **meta), pod("b", **meta))
    assert (gang.id, gang.size, gang.solo, gang.queue, gang.borrowed_queue) == (("ml", "g"), 2, False, "q", True)
    assert requests.blocked(gang) is None


def test_what_kueues_own_gate_waits_for_is_said():
    one = pod("a")
    one = msgspec.structs.replace(
        one, spec=msgspec.structs.replace(one.spec, scheduling_gates=(*one.spec.scheduling_gates, core.PodSchedulingGate(name=names.KUEUE_GATE)))
    )  # fmt: skip
    problem = requests.blocked(view(one))
    assert problem is not None
    assert "Kueue admits the pod first" in problem.message


def test_the_size_of_a_podgroup_is_read_from_its_object_and_missed_by_name():
    meta = {"annotations": {names.VOLCANO_GROUP: "g", names.VOLCANO_QUEUE: "q"}}
    groups = {("scheduling.volcano.sh", "g"): GroupTerms(size=4, queue="theirs")}
    gang = view(pod("a", **meta), objects=Objects(groups=groups))
    assert (gang.size, gang.queue) == (4, "q")
    problem = requests.blocked(view(pod("a", **meta)))
    assert problem is not None
    assert problem.message.startswith("PodGroup ml/g of scheduling.volcano.sh does not exist")


def test_the_queue_of_a_podgroup_counts_where_no_member_names_one():
    groups = {("scheduling.volcano.sh", "g"): GroupTerms(size=2, queue="theirs")}
    gang = view(pod("a", annotations={names.VOLCANO_GROUP: "g"}), objects=Objects(groups=groups))
    assert (gang.size, gang.queue, gang.borrowed_queue) == (2, "theirs", True)
    settled = {names.VOLCANO_GROUP: "g", names.GANG: "g", names.GANG_SIZE: "3"}
    gang = view(pod("a", annotations=settled), objects=Objects(groups=groups))
    assert (gang.size, gang.queue, gang.borrowed_queue) == (3, "theirs", True)
    gang = view(pod("a", annotations=settled | {names.QUEUE: "ours"}), objects=Objects(groups=groups))
    assert (gang.queue, gang.borrowed_queue) == ("ours", False)


def test_pods_of_one_group_that_contradict_one_another_wait_with_the_reason():
    """At the door the second is refused; those that came at the same moment are compared here."""
    labels = {names.KUEUE_GROUP_LABEL: "g", names.KUEUE_QUEUE: "q"}
    two = pod("a", labels=labels, annotations={names.KUEUE_SIZE: "2"})
    three = pod("b", labels=labels, annotations={names.KUEUE_SIZE: "3"})
    problem = requests.blocked(view(two, three))
    assert problem is not None
    assert problem.message.startswith("members disagree on the gang-size: a says 2, b says 3; ")
    other = pod("b", labels=labels | {names.KUEUE_QUEUE: "r"}, annotations={names.KUEUE_SIZE: "2"})
    problem = requests.blocked(view(two, other))
    assert problem is not None
    assert problem.message.startswith("members disagree on the queue: a says q, b says r; ")
    none = pod("a", labels=labels, annotations={names.KUEUE_SIZE: "two"})
    problem = requests.blocked(view(none))
    assert problem is not None
    assert f"metadata.annotations[{names.KUEUE_SIZE}]: 'two' is no gang size" in problem.message


def test_the_topology_of_a_podgroup_counts_where_no_member_names_one():
    groups = {("scheduling.volcano.sh", "g"): GroupTerms(size=2, topology="required:rack")}
    meta = {names.VOLCANO_GROUP: "g"}
    assert view(pod("a", annotations=meta), objects=Objects(groups=groups)).topology == "required:rack"
    meta |= {names.TOPOLOGY: "preferred:zone"}
    assert view(pod("a", annotations=meta), objects=Objects(groups=groups)).topology == "preferred:zone"


def test_a_queue_is_borrowed_only_if_all_who_name_it_borrow_it():
    theirs, ours = {names.KUEUE_QUEUE: "q"}, {names.QUEUE: "q"}
    group = {names.GANG: "g", names.GANG_SIZE: "3"}
    silent, borrower = pod("a", annotations=group), pod("b", annotations=group, labels=theirs)
    assert view(silent, borrower).borrowed_queue
    gang = view(silent, borrower, pod("c", annotations=group, labels=ours))
    assert (gang.queue, gang.borrowed_queue) == ("q", False)


def test_a_group_of_kueue_without_a_size_asks_for_its_annotation():
    problem = requests.blocked(view(pod("a", labels={names.KUEUE_GROUP_LABEL: "g"})))
    assert problem is not None
    assert problem.message == f"no member says how many there are; annotate each with {names.KUEUE_SIZE}: <number>"


def test_a_native_podgroup_is_a_gang():
    one = pod("a")
    group = core.PodSchedulingGroup(pod_group_name="g")
    one = msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, scheduling_group=group))
    gang = view(one, objects=Objects(groups={("scheduling.k8s.io", "g"): GroupTerms(size=3)}))
    assert (gang.id, gang.size) == (("ml", "g"), 3)


# -- what a gang is ------------------------------------------------------------------------------------------------


def test_a_pod_without_annotation_is_a_gang_of_one_named_after_itself():
    gang = view(pod("solo"))
    assert (gang.id, gang.size, gang.solo, gang.present) == (("ml", "solo"), 1, True, 1)
    assert gang.members[0].entries[0].key == "uid-solo/gpu"


def test_members_are_ordered_by_completion_index_then_name():
    index = {"batch.kubernetes.io/job-completion-index": "10"}
    late = pod("a", annotations=index | {names.GANG: "g", names.GANG_SIZE: "3"})
    early = pod(
        "b", annotations={"batch.kubernetes.io/job-completion-index": "9", names.GANG: "g", names.GANG_SIZE: "3"}
    )
    plain = pod("z", gang="g", size=3)
    assert [m.pod.metadata.name for m in view(late, early, plain).members] == ["z", "b", "a"]


@pytest.mark.parametrize(
    ("pods", "said"),
    [
        ([pod("a", gang="g", size=2), pod("b", gang="g", size=3)], "disagree on the gang-size: a says 2, b says 3"),
        ([pod("a", gang="g"), pod("b", gang="g")], "no member says how many there are"),
        ([pod("a", annotations={names.GANG: "g", names.GANG_SIZE: "many"})], "'many' is no gang size"),
    ],
)
def test_what_is_wrong_with_annotations_is_said(pods, said):
    problem = requests.blocked(view(*pods))
    assert problem is not None
    assert said in problem.message


def test_a_pod_that_only_has_the_gangs_name_is_named_as_what_is_wrong():
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
    stranger = pod("x", gang="g", size=3, gated=False, phase="Succeeded")
    waiting = [pod(name, gang="g", size=3, ownerReferences=owner) for name in ("b", "c")]
    assert requests.blocked(view(done, *waiting)) is None
    problem = requests.blocked(view(stranger, *waiting))
    assert problem is not None
    assert problem.message == "2 of 3 members exist; 1 member is still to be created"


def test_claims_of_other_drivers_are_not_ours_and_unknown_classes_are_named():
    objects = Objects(templates={"t": template(device_class="nic")})
    gang = view(pod("solo"), objects=objects)
    assert gang.members == ()
    assert len(gang.strangers) == 1
    objects = Objects(templates={"t": template(device_class="nowhere")})
    problem = requests.blocked(view(pod("solo"), objects=objects))
    assert problem is not None
    assert "DeviceClass nowhere does not exist" in problem.message


def test_a_released_pod_is_known_by_the_claim_that_is_reserved_for_it():
    held = claim("c", "solo", node="n1", reserved=["solo"])
    released = pod("solo", gated=False, claim="c")
    gang = view(released, objects=Objects([held]))
    assert gang.released[0].entries[0].claim is held
    unreserved = claim("c", "solo", node="n1")
    assert gangs.view(("ml", "solo"), [released], Objects([unreserved])) is None


# -- which claim counts ---------------------------------------------------------------------------------------------


def settled(named, *found):
    chosen = claims.settled(pod("p"), "gpu", named, found)
    return chosen.metadata.name if chosen else None


def test_the_claim_that_the_status_names_counts():
    theirs, ours = claim("theirs", "p"), claim("ours", "p", ours=True)
    assert settled("theirs", ours, theirs) == "theirs"
    assert settled(None) is None
    assert settled(None, ours) == "ours"


def test_where_none_is_named_theirs_goes_before_ours_so_that_both_sides_agree():
    theirs, ours = claim("theirs", "p"), claim("ours", "p", ours=True)
    assert settled(None, ours, theirs) == "theirs"
    assert settled("ours", ours, theirs) == "theirs"


def test_an_allocated_claim_always_counts():
    theirs, ours = claim("theirs", "p"), claim("ours", "p", ours=True, node="n1", reserved=["p"])
    assert settled("theirs", ours, theirs) == "ours"
    assert claims.strays(pod("p"), "gpu", "theirs", [ours, theirs]) == []
    assert claims.strays(pod("p"), "gpu", "ours", [ours, theirs]) == [theirs]


def test_a_claim_of_another_pod_or_entry_or_one_being_deleted_never_counts():
    leaving = claim("leaving", "p", deletionTimestamp="2026-01-01T00:00:00Z")
    assert settled("other", claim("other", "q"), leaving) is None


def test_names_are_made_as_the_claim_controller_makes_them():
    assert claims.claim_name("pod", "gpu", lambda alphabet: alphabet[0]) == "pod-gpu-bbbbb"
    long = claims.claim_name("p" * 250, "c" * 63, lambda alphabet: alphabet[0])
    assert len(long) <= 63
    assert long.startswith("ppp")
    assert "-ccc" in long


# -- what is asked for ----------------------------------------------------------------------------------------------


def test_more_members_than_the_size_are_asked_for_after_the_gang_stands():
    standing = requests.Standing()
    waiting = [pod(f"p{number}", gang="g", size=2) for number in range(5)]
    asked = requests.request(view(*waiting), standing, {})
    assert asked is not None
    assert len(asked.members) == 2
    held = [claim(f"c{number}", f"p{number}", node="n1", reserved=[f"p{number}"]) for number in range(2)]
    running = [pod(f"p{number}", gang="g", size=2, gated=False, node="n1", claim=f"c{number}") for number in range(2)]
    asked = requests.request(view(*running, *waiting[2:], objects=Objects(held)), standing, {})
    assert asked is not None
    assert [member.pod.name for member in asked.members] == ["p2"]
    assert asked.placed_nodes == ("n1", "n1")


def test_a_claim_that_was_made_meanwhile_does_not_make_it_another_request():
    standing = requests.Standing()
    first = requests.request(view(pod("p")), standing, {})
    made = requests.request(view(pod("p", claim="c"), objects=Objects([claim("c", "p")])), standing, {})
    assert first is not None
    assert made is not None
    assert first.claims[0].key != made.claims[0].key
    assert requests.same(first, made)
    assert not requests.same(first, None)
    assert not requests.same(first, requests.request(view(pod("q")), standing, {}))


def test_only_a_gang_whose_every_pod_has_a_deadline_promises_an_end():
    def limited(name: str, seconds: int | None) -> core.Pod:
        plain: core.Pod = pod(name, gang="g", size=2)
        return msgspec.structs.replace(plain, spec=msgspec.structs.replace(plain.spec, active_deadline_seconds=seconds))

    asked = requests.request(view(limited("p0", 60), limited("p1", 90)), requests.Standing(), {})
    assert asked is not None
    assert asked.run_s == 90.0
    asked = requests.request(view(limited("p0", 60), limited("p1", None)), requests.Standing(), {})
    assert asked is not None
    assert asked.run_s is None


# -- recovery -------------------------------------------------------------------------------------------------------


def gated_with(*numbers, size=3, total=3, node="n1", age_s=0.0):
    """A gang of gated pods, of which `numbers` have their claims written."""
    held = [claim(f"c{n}", f"p{n}", node=node, reserved=[f"p{n}"], age_s=age_s) for n in numbers]
    held += [claim(f"c{n}", f"p{n}") for n in range(total) if n not in numbers]
    pods = [pod(f"p{n}", gang="g", size=size, claim=f"c{n}") for n in range(total)]
    return view(*pods, objects=Objects(held))


def test_nothing_written_is_nothing_to_do():
    assert step(gated_with()) is None


def test_a_gang_written_in_part_is_undone():
    found = step(gated_with(0, 2))
    assert isinstance(found, recovery.Undo)
    assert [member.pod.metadata.name for member in found.members] == ["p0", "p2"]


def test_a_gang_written_whole_is_completed():
    found = step(gated_with(0, 1, 2))
    assert isinstance(found, recovery.Complete)
    assert {node for _, node in found.members} == {"n1"}


def test_a_gang_written_whole_on_a_node_that_is_gone_is_undone():
    assert isinstance(step(gated_with(0, 1, 2, node="n9")), recovery.Undo)


def test_a_gang_released_in_part_is_completed():
    held = [claim(f"c{n}", f"p{n}", node="n1", reserved=[f"p{n}"]) for n in range(3)]
    pods = [pod(f"p{n}", gang="g", size=3, claim=f"c{n}", gated=n > 0) for n in range(3)]
    found = step(view(*pods, objects=Objects(held)))
    assert isinstance(found, recovery.Complete)
    assert [member.pod.metadata.name for member, _ in found.members] == ["p1", "p2"]


def test_a_gang_released_in_part_whose_rest_cannot_be_released_goes_back_after_the_timeout():
    held = [claim(f"c{n}", f"p{n}", node="n1", reserved=[f"p{n}"], age_s=100) for n in range(3)]
    pods = [pod(f"p{n}", gang="g", size=3, claim=f"c{n}", gated=n > 0, node="" if n else "n1") for n in range(3)]
    found = step(view(*pods, objects=Objects(held)))
    assert isinstance(found, recovery.RollBack)
    assert [member.pod.metadata.name for member in found.members] == ["p0"]


def released_with(bound, unbound, *, size, age_s):
    total = bound + unbound
    held = [claim(f"c{n}", f"p{n}", node="n1", reserved=[f"p{n}"], age_s=age_s) for n in range(total)]
    pods = [
        pod(f"p{n}", gang="g", size=size, claim=f"c{n}", gated=False, node="n1" if n < bound else "")
        for n in range(total)
    ]
    return view(*pods, objects=Objects(held))


def test_members_that_do_not_bind_in_time_take_the_gang_with_them():
    assert step(released_with(2, 1, size=3, age_s=59)) is None
    found = step(released_with(2, 1, size=3, age_s=61))
    assert isinstance(found, recovery.RollBack)
    assert len(found.members) == 3
    assert "1 of its pods (p2) did not bind" in found.why
    assert recovery.next_deadline(released_with(2, 1, size=3, age_s=10), 60) == NOW + 50


def test_a_surplus_member_that_does_not_bind_goes_alone():
    found = step(released_with(3, 1, size=3, age_s=61))
    assert isinstance(found, recovery.RollBack)
    assert [member.pod.metadata.name for member in found.members] == ["p3"]


def test_a_bound_gang_needs_nothing():
    gang = released_with(3, 0, size=3, age_s=10_000)
    assert step(gang) is None
    assert recovery.next_deadline(gang, 60) is None


def test_only_allocations_that_nobody_holds_or_uses_are_abandoned():
    free = claim("free", None, node="n1")
    held = claim("held", None, node="n1", reserved=["x"])
    used = claim("used", None, node="n1")
    found = recovery.abandoned(
        [free, held, used, claim("empty", None)], drivers=(names.DRIVER,), used=lambda c: c.metadata.name == "used"
    )
    assert found == [free]
    assert recovery.abandoned([free], drivers=("other",), used=lambda _: False) == []


# -- status ---------------------------------------------------------------------------------------------------------


def phase(gang, **standing):
    return status.verdict(gang, status.Standing(**standing)).phase


def test_phases_follow_the_members():
    assert phase(view(pod("a", gang="g", size=2))) == "Gathering"
    assert phase(gated_with()) == "Waiting"
    assert phase(gated_with(0), admitting=True) == "Admitted"
    assert phase(released_with(1, 2, size=3, age_s=0)) == "Admitted"
    running = [pod(f"p{n}", gang="g", size=2, gated=False, node="n1", phase="Running", claim=f"c{n}") for n in range(2)]
    held = [claim(f"c{n}", f"p{n}", node="n1", reserved=[f"p{n}"]) for n in range(2)]
    assert phase(view(*running, objects=Objects(held))) == "Running"
    ended = [pod(f"p{n}", gang="g", size=2, gated=False, phase="Succeeded") for n in range(2)]
    assert phase(view(*ended)) == "Finished"
    assert phase(view(ended[0], pod("p1", gang="g", size=2, gated=False, phase="Failed"))) == "Failed"
    assert view(*ended).at(Stage.SUCCEEDED) == view(*ended).members


def test_a_status_that_says_the_same_is_the_same():
    gang = gated_with()
    first = status.gang_status(gang, status.Standing(), before={}, created=NOW - 60, now=NOW)
    second = status.gang_status(gang, status.Standing(), before=first, created=NOW - 60, now=NOW + 30)
    assert second == first
    given = status.gang_status(released_with(3, 0, size=3, age_s=0), status.Standing(), before=first, created=NOW - 60, now=NOW)  # fmt: skip
    assert (given["phase"], given["waitSeconds"], given["nodes"]) == ("Admitted", 60.0, ["n1"])
    by_type = {condition["type"]: condition["status"] for condition in given["conditions"]}
    assert by_type == {"Admitted": "True", "Running": "False"}
