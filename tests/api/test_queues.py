"""Between queues: selectors that may take the same namespace are found exactly, and reported in a bounded message."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from fairlead.api import names
from fairlead.api.base import LabelSelector
from fairlead.api.queue import Queue
from fairlead.api.queues import disagreements, may_both_match
from fairlead.kube import labels, objects

VALUES = ["x", "y"]
KEYS = ["a", "b"]
rules = st.one_of(
    st.builds(
        lambda key, operator, values: {"key": key, "operator": operator, "values": values},
        st.sampled_from(KEYS),
        st.sampled_from(["In", "NotIn"]),
        st.lists(st.sampled_from(VALUES), min_size=1, max_size=2, unique=True),
    ),
    st.builds(
        lambda key, operator: {"key": key, "operator": operator},
        st.sampled_from(KEYS),
        st.sampled_from(["Exists", "DoesNotExist"]),
    ),
)
selectors = st.builds(
    lambda plain, more: {"matchLabels": plain, "matchExpressions": more},
    st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), max_size=1),
    st.lists(rules, max_size=2),
)


def matches(selector: LabelSelector, found: dict[str, str]) -> bool:
    expressions = tuple(
        objects.LabelSelectorRequirement(key=rule.key, operator=rule.operator, values=tuple(rule.values))
        for rule in selector.match_expressions
    )
    known = objects.LabelSelector(match_labels=dict(selector.match_labels), match_expressions=expressions)
    return labels.from_label_selector(known).matches(found)


@given(selectors, selectors)
def test_two_selectors_overlap_when_some_labels_satisfy_both(one: dict[str, object], other: dict[str, object]) -> None:
    first, second = LabelSelector.model_validate(one), LabelSelector.model_validate(other)
    choices = [{}, *({key: value} for key in KEYS for value in [*VALUES, "z"])]
    worlds = [{**left, **right} for left, right in itertools.product(choices, choices)]
    assert may_both_match(first, second) == any(matches(first, found) and matches(second, found) for found in worlds)


def test_all_overlaps_are_reported_but_not_those_of_parents() -> None:
    def queue(name: str, **spec: object) -> Queue:
        return Queue.read({"apiVersion": names.API_VERSION, "kind": "Queue", "metadata": {"name": name}, "spec": spec})

    anything: dict[str, object] = {}
    found = {
        each.name: each
        for each in (
            queue("org", namespaceSelector=anything),
            *(queue(f"t{number}", parent="org", namespaceSelector=anything) for number in range(6)),
            queue("u", namespaceSelector=None, flavors=[{"flavor": "ghost"}]),
        )
    }
    reported = disagreements(found, ["gpu"])
    assert [(each.queue, each.reason) for each in reported] == [
        *((f"t{number}", "SelectorsOverlap") for number in range(6)),
        ("u", "UnknownFlavor"),
    ]
    assert "t1, t2, t3 and 2 more may take the same namespaces" in reported[0].message
