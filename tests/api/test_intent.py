"""Annotations are read with one function, and one set of messages."""

import re

import pytest

from fairlead.api import names
from fairlead.api.intent import Intent, IntentError, misspelt, read_intent


def test_every_annotation_is_read() -> None:
    assert read_intent(
        {
            names.GANG: "llm",
            names.GANG_SIZE: "8",
            names.QUEUE: "ml",
            names.TOPOLOGY: "preferred:rack",
            names.MIN_RUNTIME: "30m",
            names.CHECKPOINT_GRACE: "90s",
        }
    ) == Intent(gang="llm", size=8, queue="ml", topology="preferred:rack", min_runtime_s=1800, checkpoint_grace_s=90)


def test_what_may_change_while_a_pod_runs_is_read_too() -> None:
    found = read_intent({names.MOVABLE: "true", names.CHECKPOINTED_AT: "2026-11-21T02:50:31+01:00"})
    assert (found.movable, found.checkpointed) == (True, 1795225831.0)
    assert read_intent({names.MOVABLE: "false"}).movable is False
    assert not misspelt({names.MOVABLE: "true", names.CHECKPOINTED_AT: ""})


def test_a_time_that_cannot_be_read_counts_as_absent_on_a_pod_that_exists() -> None:
    found = read_intent({names.CHECKPOINTED_AT: "now"}, lenient=True)
    assert found.checkpointed is None
    assert "no time" in found.notes[0]


def test_the_queue_may_be_a_label_too_but_not_another_one() -> None:
    assert read_intent({}, {names.QUEUE: "ml"}).queue == "ml"
    assert read_intent({names.QUEUE: "ml"}, {names.QUEUE: "ml"}).queue == "ml"
    with pytest.raises(IntentError, match="label of that name says 'b'"):
        read_intent({names.QUEUE: "a"}, {names.QUEUE: "b"})


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (names.GANG, "LLM", "'LLM' is no gang name"),
        (names.GANG, "", "'' is no gang name"),
        (names.GANG_SIZE, "eight", "'eight' is no gang size: write a whole number from 1"),
        (names.GANG_SIZE, "0", "'0' is no gang size"),
        (names.GANG_SIZE, "-1", "'-1' is no gang size"),
        (names.GANG_SIZE, "1.5", "'1.5' is no gang size"),
        (names.GANG_SIZE, "100001", "from 1 to 100000"),
        (names.GANG_SIZE, "\u0668", "is no gang size"),
        (names.QUEUE, "a b", "'a b' is no queue name"),
        (names.TOPOLOGY, "rack", "'rack' is no topology"),
        (names.MODELS, "Any", "'Any' is neither 'same' nor 'any'"),
        (names.ALIGN, "rail", "'rail' is no attribute of a device"),
        (names.MIN_RUNTIME, "soon", "'soon' is no duration"),
        (names.CHECKPOINT_GRACE, "1", "'1' is no duration"),
        (names.MOVABLE, "yes", "'yes' is neither 'true' nor 'false'"),
        (names.CHECKPOINTED_AT, "just now", "'just now' is no time: write RFC 3339"),
        (names.CHECKPOINTED_AT, "2026-11-21T01:50:31", "with its zone, such as 2026-11-21T01:50:31Z"),
    ],
)
def test_nonsense_is_refused_with_the_annotations_path(key: str, value: str, message: str) -> None:
    with pytest.raises(IntentError) as refused:
        read_intent({key: value})
    (fault,) = refused.value.faults
    assert fault.startswith(f"metadata.annotations[{key}]: ")
    assert message in fault


def test_no_key_of_ours_is_called_misspelt() -> None:
    ours = [key for key in vars(names).values() if isinstance(key, str) and re.fullmatch(r"fairlead\.dev/[a-z].*", key)]
    assert {names.USER, names.CHECKPOINT_BY, names.GANG} < set(ours)
    assert misspelt(dict.fromkeys(ours, "x")) == ()
