"""Manifests written for other systems: their gang, size and queue, ours before theirs."""

import pytest

from fairlead.api import foreign, names
from fairlead.api.intent import IntentError, overridden, read_intent

KUEUE = {names.KUEUE_GROUP_LABEL: "train", names.KUEUE_QUEUE: "user-queue"}


def test_ours_come_before_theirs_each_by_itself():
    intent = read_intent({names.GANG: "mine", names.GANG_SIZE: "2", names.KUEUE_SIZE: "8"}, KUEUE)
    assert (intent.gang, intent.size, intent.system) == ("mine", 2, None)
    assert (intent.queue, intent.foreign_queue) == ("user-queue", True)
    intent = read_intent({names.QUEUE: "team", names.GANG_SIZE: "2", names.KUEUE_SIZE: "8"}, KUEUE)
    assert (intent.gang, intent.size, intent.queue, intent.foreign_queue) == ("train", 2, "team", False)


def test_the_controllers_short_way_to_the_name_agrees():
    assert foreign.gang_name({}, KUEUE) == read_intent({names.KUEUE_SIZE: "8"}, KUEUE).gang
    assert foreign.gang_name({names.GANG: "mine"}, KUEUE) == "mine"
    assert foreign.gang_name({"a": "b"}, {"c": "d"}) is None


def test_faults_name_the_keys_that_are_at_fault():
    with pytest.raises(IntentError) as caught:
        read_intent({names.KUEUE_SIZE: "many"}, {names.KUEUE_GROUP_LABEL: "Train", names.KUEUE_QUEUE: "Q"})
    assert [fault.partition(":")[0] for fault in caught.value.faults] == [
        f"metadata.annotations[{names.KUEUE_SIZE}]",
        f"metadata.labels[{names.KUEUE_GROUP_LABEL}]",
        f"metadata.labels[{names.KUEUE_QUEUE}]",
    ]


def test_keys_that_are_overridden_are_pointed_out():
    ours = {names.GANG: "mine", names.GANG_SIZE: "2", names.QUEUE: "team", names.KUEUE_SIZE: "8"}
    group, size, queue = overridden(ours, KUEUE)
    assert group == (
        f"metadata.labels[{names.KUEUE_GROUP_LABEL}]: 'train' does not count: "
        f"metadata.annotations[{names.GANG}] says 'mine'; keep one of them"
    )
    assert size.startswith(f"metadata.annotations[{names.KUEUE_SIZE}]: '8' does not count: ")
    assert queue.startswith(f"metadata.labels[{names.KUEUE_QUEUE}]: 'user-queue' does not count: ")
    (two,) = overridden({names.VOLCANO_GROUP: "v", names.KUEUE_SIZE: "8"}, KUEUE)
    assert two.startswith(f"metadata.annotations[{names.VOLCANO_GROUP}]: 'v' does not count: metadata.labels[")
    (native,) = overridden({names.KUEUE_SIZE: "8"}, {names.KUEUE_GROUP_LABEL: "train"}, "native")
    assert native.endswith("spec.schedulingGroup.podGroupName says 'native'; keep one of them")


@pytest.mark.parametrize(
    ("key", "ours"),
    [
        (names.KUEUE_TOPOLOGY_REQUIRED, "required:example.com/rack"),
        (names.KUEUE_TOPOLOGY_PREFERRED, "preferred:example.com/rack"),
    ],
)
def test_kueues_topology_is_ours_and_says_where_it_was_read(key, ours):
    intent = read_intent({key: "example.com/rack"})
    assert intent.topology == ours
    assert intent.paths[names.TOPOLOGY] == f"metadata.annotations[{key}]"
    assert not list(overridden({key: "example.com/rack", names.TOPOLOGY: ours}))
    own = {key: "example.com/rack", names.TOPOLOGY: "required:example.com/block"}
    assert read_intent(own).topology == "required:example.com/block"
    (warning,) = overridden(own)
    assert warning.startswith(f"metadata.annotations[{key}]: {ours!r} does not count: ")


def test_two_topologies_of_kueues_are_refused_with_ours_that_means_both():
    both = {names.KUEUE_TOPOLOGY_REQUIRED: "block", names.KUEUE_TOPOLOGY_PREFERRED: "rack"}
    with pytest.raises(IntentError, match=f"keep one, or write {names.TOPOLOGY}: required:block, preferred:rack"):
        read_intent(both)
    with pytest.raises(IntentError) as caught:
        read_intent({names.KUEUE_TOPOLOGY_REQUIRED: "no label"})
    assert caught.value.faults[0].startswith(f"metadata.annotations[{names.KUEUE_TOPOLOGY_REQUIRED}]: ")


def test_kueues_topology_is_one_level():
    with pytest.raises(IntentError, match="'rack,preferred:b' is no node label: name one level"):
        read_intent({names.KUEUE_TOPOLOGY_REQUIRED: "rack,preferred:b"})


def test_kueues_slices_are_subgroups():
    slices = {names.KUEUE_SLICE_TOPOLOGY: "example.com/rack", names.KUEUE_SLICE_SIZE: "4"}
    intent = read_intent(slices)
    assert (intent.subgroup_size, intent.subgroup_topology) == (4, "required:example.com/rack")
    assert intent.paths[names.SUBGROUP_SIZE] == f"metadata.annotations[{names.KUEUE_SLICE_SIZE}]"
    own = slices | {names.SUBGROUP_SIZE: "8", names.SUBGROUP_TOPOLOGY: "preferred:example.com/rack"}
    assert read_intent(own).subgroup_size == 8
    assert read_intent({names.KUEUE_SLICE_SIZE: "4"}).subgroup_size is None
    with pytest.raises(IntentError, match=f"write {names.KUEUE_SLICE_SIZE}: <pods of one slice>"):
        read_intent({names.KUEUE_SLICE_TOPOLOGY: "example.com/rack"})
    with pytest.raises(IntentError, match="'many' is no slice size"):
        read_intent(slices | {names.KUEUE_SLICE_SIZE: "many"})
