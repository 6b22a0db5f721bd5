"""Manifests written for other systems: their gang, size and queue, ours before theirs."""

import pytest

from fairlead.api import foreign, names
from fairlead.api.intent import IntentError, read_intent

KUEUE = {names.KUEUE_GROUP_LABEL: "train", names.KUEUE_QUEUE_LABEL: "user-queue"}


def test_kueues_labels_name_gang_size_and_queue():
    intent = read_intent({names.KUEUE_SIZE: "8"}, KUEUE)
    assert (intent.gang, intent.size, intent.queue) == ("train", 8, "user-queue")
    assert (intent.system, intent.borrowed_queue, intent.size_elsewhere) == ("Kueue", True, False)


def test_volcanos_annotations_do():
    intent = read_intent({names.VOLCANO_GROUP: "train", names.VOLCANO_QUEUE: "q", names.VOLCANO_SIZE: "3"})
    assert (intent.gang, intent.size, intent.queue, intent.system) == ("train", 3, "q", "Volcano")
    assert read_intent({names.VOLCANO_GROUP: "train"}).size_elsewhere


@pytest.mark.parametrize("where", ["labels", "annotations"])
def test_the_coscheduling_plugins_do(where):
    label = {names.COSCHEDULING_GROUP_LABEL: "train"}
    size = {names.COSCHEDULING_SIZE: "4"}
    intent = read_intent({}, label | size) if where == "labels" else read_intent(size, label)
    assert (intent.gang, intent.size, intent.system) == ("train", 4, "coscheduling")


def test_a_native_podgroup_does_and_comes_before_the_others():
    intent = read_intent({names.KUEUE_SIZE: "8"}, KUEUE, "native")
    assert (intent.gang, intent.system, intent.size_elsewhere) == ("native", "PodGroup", True)


def test_ours_come_before_theirs_each_by_itself():
    intent = read_intent({names.GANG: "mine", names.GANG_SIZE: "2", names.KUEUE_SIZE: "8"}, KUEUE)
    assert (intent.gang, intent.size, intent.system) == ("mine", 2, None)
    assert (intent.queue, intent.borrowed_queue) == ("user-queue", True)
    intent = read_intent({names.QUEUE: "team", names.GANG_SIZE: "2", names.KUEUE_SIZE: "8"}, KUEUE)
    assert (intent.gang, intent.size, intent.queue, intent.borrowed_queue) == ("train", 2, "team", False)


def test_the_controllers_short_way_to_the_name_agrees():
    assert foreign.gang_name({}, KUEUE) == read_intent({names.KUEUE_SIZE: "8"}, KUEUE).gang
    assert foreign.gang_name({names.GANG: "mine"}, KUEUE) == "mine"
    assert foreign.gang_name({"a": "b"}, {"c": "d"}) is None


def test_faults_name_the_words_that_are_at_fault():
    with pytest.raises(IntentError) as caught:
        read_intent({names.KUEUE_SIZE: "many"}, {names.KUEUE_GROUP_LABEL: "Train", names.KUEUE_QUEUE_LABEL: "Q"})
    assert [fault.partition(":")[0] for fault in caught.value.faults] == [
        f"metadata.annotations[{names.KUEUE_SIZE}]",
        f"metadata.labels[{names.KUEUE_GROUP_LABEL}]",
        f"metadata.labels[{names.KUEUE_QUEUE_LABEL}]",
    ]
