"""Between queues: selectors that may match, or do match, one namespace are found exactly, and reported in a bounded message."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from fairlead.api.base import LabelSelector
from fairlead.api.queues import may_both_match
from fairlead.controller.watch.settings import selected_twice
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


def built(selector: LabelSelector) -> labels.Selector:
    expressions = tuple(
        objects.LabelSelectorRequirement(key=rule.key, operator=rule.operator, values=tuple(rule.values))
        for rule in selector.match_expressions
    )
    return labels.from_label_selector(
        objects.LabelSelector(match_labels=dict(selector.match_labels), match_expressions=expressions)
    )


def matches(selector: LabelSelector, found: dict[str, str]) -> bool:
    return built(selector).matches(found)


@given(selectors, selectors)
def test_two_selectors_overlap_when_some_labels_satisfy_both(one: dict[str, object], other: dict[str, object]) -> None:
    first, second = LabelSelector.model_validate(one), LabelSelector.model_validate(other)
    choices = [{}, *({key: value} for key in KEYS for value in [*VALUES, "z"])]
    worlds = [{**left, **right} for left, right in itertools.product(choices, choices)]
    assert may_both_match(first, second) == any(matches(first, found) and matches(second, found) for found in worlds)


@given(
    st.dictionaries(st.sampled_from("pqrst"), selectors, max_size=5),
    st.dictionaries(
        st.sampled_from("klmn"), st.dictionaries(st.sampled_from(KEYS), st.sampled_from([*VALUES, "z"])), max_size=4
    ),
)
def test_queues_are_in_conflict_where_a_namespace_that_exists_matches_both(
    found: dict[str, dict[str, object]], namespaces: dict[str, dict[str, str]]
) -> None:
    known = {name: LabelSelector.model_validate(selector) for name, selector in found.items()}
    told = {
        each.name: each.message for each in selected_twice({q: built(s) for q, s in known.items()}, namespaces.items())
    }
    expected: dict[str, tuple[str, str]] = {}
    for namespace in sorted(namespaces):
        taking = sorted(name for name, selector in known.items() if matches(selector, namespaces[namespace]))
        if len(taking) > 1:
            expected |= {name: (namespace, taking[0]) for name in taking if name not in expected}
    assert told.keys() == expected.keys()
    for name, (namespace, taker) in expected.items():
        assert f" namespace {namespace} too; pods there that name no queue go to {taker};" in told[name]


def test_a_conflict_names_three_queues_and_counts_the_others() -> None:
    anything = built(LabelSelector.model_validate({}))
    told = [*selected_twice({f"t{number}": anything for number in range(6)}, [("ml", {"a": "x"})])]
    assert [each.name for each in told] == [f"t{number}" for number in range(6)]
    assert told[0].message.startswith("spec.namespaceSelector: Queue t1, t2, t3 and 2 more select namespace ml too;")
