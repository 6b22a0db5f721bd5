"""Label selectors match as Kubernetes' do."""

import pytest

from fairlead.kube import labels
from fairlead.kube.labels import Requirement, Selector
from fairlead.kube.objects import LabelSelector, LabelSelectorRequirement


@pytest.mark.parametrize(
    ("requirements", "given", "expected"),
    [
        ((), {}, True),
        ([("a", "Exists")], {"a": ""}, True),
        ([("a", "DoesNotExist")], {"a": ""}, False),
        ([("a", "In", ("b",))], {"a": "b"}, True),
        ([("a", "In", ("b",))], {"a": "c"}, False),
        ([("a", "NotIn", ("b",))], {}, True),
        ([("a", "In", ("x", "y")), ("c", "Exists")], {"a": "y", "c": "1"}, True),
        ([("a", "NotIn", ("x",))], {}, True),
        ([("a", "NotIn", ("x",))], {"a": "x"}, False),
        ([("n", "Gt", ("3",))], {"n": "4"}, True),
        ([("n", "Lt", ("3",))], {"n": "x"}, False),
        ([("example.com/team", "In", ("",))], {"example.com/team": ""}, True),
    ],
)
def test_a_selector_matches_when_all_its_requirements_hold(requirements, given, expected):
    assert Selector(tuple(Requirement(*each) for each in requirements)).matches(given) is expected


def test_no_selector_matches_nothing_and_an_empty_one_everything():
    assert not labels.matches(None, {"a": "b"})
    assert labels.matches(LabelSelector(), {"a": "b"})


def test_match_labels_and_expressions_must_all_hold():
    selector = LabelSelector(
        match_labels={"team": "ml"},
        match_expressions=(LabelSelectorRequirement(key="env", operator="NotIn", values=("prod",)),),
    )
    assert labels.matches(selector, {"team": "ml"})
    assert not labels.matches(selector, {"team": "ml", "env": "prod"})
    with pytest.raises(labels.SelectorError, match="Near"):
        labels.matches(LabelSelector(match_expressions=(LabelSelectorRequirement(key="a", operator="Near"),)), {})
