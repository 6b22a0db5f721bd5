"""Groups, sizes and queues that pods name by the labels and annotations of other systems. Pure."""

import msgspec

from fairlead.api import names
from fairlead.controller.book.shown import SchedulingState
from fairlead.controller.gangs.admission import requests
from fairlead.controller.gangs.membership.members import GroupTerms
from fairlead.controller.report.gang_status import gang_status
from fairlead.kube import core
from fairlead.ui.model.explanations import gang_explanation
from tests.controller.gang_views import (
    NOW,
    Objects,
    pod,
    problem_of,
    view,
)


def kueues(name, **labels):
    one = pod(name, labels=labels)
    gates = (*one.spec.scheduling_gates, core.PodSchedulingGate(name=names.KUEUE_GATE))
    return msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, scheduling_gates=gates))


def test_pods_of_kueues_group_are_a_gang_of_its_total_count():
    meta = {
        "labels": {names.KUEUE_GROUP_LABEL: "g", names.KUEUE_QUEUE: "q"},
        "annotations": {names.KUEUE_SIZE: "2"},
    }
    gang = view(pod("a", **meta), pod("b", **meta))
    assert (gang.id, gang.size, gang.solo, gang.queue, gang.foreign_queue) == (("ml", "g"), 2, False, "q", True)
    assert requests.blocking_problem(gang) is None


def test_the_problem_of_kueues_own_gate_names_kueue():
    assert "Kueue admits the pod first" in problem_of(view(kueues("a")))


def test_the_size_of_a_podgroup_is_read_from_its_object_and_a_missing_object_is_named():
    meta = {"annotations": {names.VOLCANO_GROUP: "g", names.VOLCANO_QUEUE: "q"}}
    groups = {("scheduling.volcano.sh", "g"): GroupTerms(size=4, queue="theirs")}
    gang = view(pod("a", **meta), objects=Objects(groups=groups))
    assert (gang.size, gang.queue) == (4, "q")
    assert problem_of(view(pod("a", **meta))).startswith("PodGroup ml/g of scheduling.volcano.sh does not exist")


def test_the_queue_of_a_podgroup_counts_where_no_member_names_one():
    groups = {("scheduling.volcano.sh", "g"): GroupTerms(size=2, queue="theirs")}
    gang = view(pod("a", annotations={names.VOLCANO_GROUP: "g"}), objects=Objects(groups=groups))
    assert (gang.size, gang.queue, gang.foreign_queue) == (2, "theirs", True)
    settled = {names.VOLCANO_GROUP: "g", names.GANG: "g", names.GANG_SIZE: "3"}
    gang = view(pod("a", annotations=settled), objects=Objects(groups=groups))
    assert (gang.size, gang.queue, gang.foreign_queue) == (3, "theirs", True)
    gang = view(pod("a", annotations=settled | {names.QUEUE: "ours"}), objects=Objects(groups=groups))
    assert (gang.queue, gang.foreign_queue) == ("ours", False)


def test_a_size_of_kueues_that_cannot_be_read_is_the_reason():
    none = pod("a", labels={names.KUEUE_GROUP_LABEL: "g"}, annotations={names.KUEUE_SIZE: "two"})
    assert f"metadata.annotations[{names.KUEUE_SIZE}]: 'two' is no gang size" in problem_of(view(none))


def test_the_topology_of_a_podgroup_counts_where_no_member_names_one():
    groups = {("scheduling.volcano.sh", "g"): GroupTerms(size=2, topology="required:rack")}
    meta = {names.VOLCANO_GROUP: "g"}
    assert view(pod("a", annotations=meta), objects=Objects(groups=groups)).topology == "required:rack"
    meta |= {names.TOPOLOGY: "preferred:zone"}
    assert view(pod("a", annotations=meta), objects=Objects(groups=groups)).topology == "preferred:zone"


def test_a_queue_is_foreign_only_if_all_members_that_name_it_do_so_in_another_systems_words():
    theirs, ours = {names.KUEUE_QUEUE: "q"}, {names.QUEUE: "q"}
    group = {names.GANG: "g", names.GANG_SIZE: "3"}
    silent, borrower = pod("a", annotations=group), pod("b", annotations=group, labels=theirs)
    assert view(silent, borrower).foreign_queue
    gang = view(silent, borrower, pod("c", annotations=group, labels=ours))
    assert (gang.queue, gang.foreign_queue) == ("q", False)


def test_a_group_of_kueue_without_a_size_asks_for_its_annotation():
    assert (
        problem_of(view(pod("a", labels={names.KUEUE_GROUP_LABEL: "g"})))
        == f"no member says how many there are; annotate each with {names.KUEUE_SIZE}: <number>"
    )


def test_a_native_podgroup_is_a_gang():
    one = pod("a")
    group = core.PodSchedulingGroup(pod_group_name="g")
    one = msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, scheduling_group=group))
    gang = view(one, objects=Objects(groups={("scheduling.k8s.io", "g"): GroupTerms(size=3)}))
    assert (gang.id, gang.size) == (("ml", "g"), 3)


def test_kueues_class_is_the_priority_of_the_gang():
    meta = {"labels": {names.KUEUE_GROUP_LABEL: "g"}, "annotations": {names.KUEUE_SIZE: "2"}}
    high = meta | {"labels": {names.KUEUE_GROUP_LABEL: "g", names.KUEUE_PRIORITY: "high"}}
    gang = view(pod("a", **high), pod("b", **meta), objects=Objects(priorities={"high": 10_000}))
    assert (gang.priority, gang.notes) == (10_000, ())
    gang = view(pod("a", **high), pod("b", **meta))
    assert gang.priority == 0
    assert gang.notes[0].startswith(
        "metadata.labels[kueue.x-k8s.io/priority-class]: there is no WorkloadPriorityClass 'high'"
    )
    below = view(pod("a", **high), pod("b", **meta), objects=Objects(priorities={"high": -5}))
    assert below.priority == -5, "a class below the pods' own counts, as in Kueue"


def test_a_native_groups_priority_comes_before_kueues_and_its_pods():
    group = core.PodSchedulingGroup(pod_group_name="train")
    one = pod("a", labels={names.KUEUE_PRIORITY: "high"})
    one = msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, scheduling_group=group, priority=3))
    terms = {("scheduling.k8s.io", "train"): GroupTerms(size=1, priority=7, preempts=False)}
    gang = view(one, objects=Objects(groups=terms, priorities={"high": 10_000}))
    assert (gang.priority, gang.preempts) == (7, False)
    gang = view(one, objects=Objects(groups={("scheduling.k8s.io", "train"): GroupTerms(size=1)}))
    assert (gang.priority, gang.preempts) == (3, True)


def test_a_gang_that_two_systems_hold_says_whose_its_namespace_is():
    assert view(pod("a")).shared_with is None
    shared = view(kueues("a")).shared_with
    assert shared is not None
    assert shared.system == "Kueue"
    assert "nothing says whose Namespace ml is" in shared.text
    of_kueue = view(kueues("a"), objects=Objects(labels={names.QUEUE_SYSTEM: "kueue"})).shared_with
    assert of_kueue is not None
    assert of_kueue.text.endswith("Kueue decides by its quota when the pods start, Fairlead where")
    of_fairlead = Objects(labels={names.QUEUE_SYSTEM: "fairlead"})
    assert view(pod("a"), objects=of_fairlead).shared_with is None
    shared = view(kueues("a"), objects=of_fairlead).shared_with
    assert shared is not None
    assert "managedJobsNamespaceSelector" in shared.text
    wrong = view(pod("a"), objects=Objects(labels={names.QUEUE_SYSTEM: "slurm"})).shared_with
    assert wrong is not None
    assert "'slurm' is no queue system" in wrong.text


def test_the_status_has_a_condition_for_it_until_it_is_over():
    def conditions(gang, before):
        status = gang_status(gang, SchedulingState(), before=before, created=NOW, now=NOW)
        return status, {each["type"]: each for each in status["conditions"]}

    status, found = conditions(view(pod("a")), {})
    assert "SharedWithOtherSystem" not in found
    status, found = conditions(view(kueues("a")), status)
    assert (found["SharedWithOtherSystem"]["status"], found["SharedWithOtherSystem"]["reason"]) == ("True", "Kueue")
    shown = gang_explanation(
        {"metadata": {"name": "a", "namespace": "ml"}, "spec": {"size": 1}, "status": status}, now=NOW
    )
    (also,) = (part for part in shown.parts if part.title == "Also")
    assert also.lines[0].startswith(
        "Kueue lays claim to the pods, too (spec.schedulingGates has kueue.x-k8s.io/admission)"
    )
    status, found = conditions(view(pod("a")), status)
    assert (found["SharedWithOtherSystem"]["status"], found["SharedWithOtherSystem"]["reason"]) == ("False", "Over")
