"""Label and field selectors match as Kubernetes' do."""

import pytest

from fairlead.kube import labels
from fairlead.kube.objects import LabelSelector, LabelSelectorRequirement


@pytest.mark.parametrize(
    ("selector", "given", "expected"),
    [
        ("", {}, True),
        ("a", {"a": ""}, True),
        ("!a", {"a": ""}, False),
        ("a=b", {"a": "b"}, True),
        ("a==b", {"a": "c"}, False),
        ("a!=b", {}, True),
        ("a in (x, y),c", {"a": "y", "c": "1"}, True),
        ("a notin (x)", {}, True),
        ("a notin (x)", {"a": "x"}, False),
        ("n>3", {"n": "4"}, True),
        ("n<3", {"n": "x"}, False),
        ("example.com/team=", {"example.com/team": ""}, True),
    ],
)
def test_a_selector_in_text(selector, given, expected):
    assert labels.parse(selector).matches(given) is expected


@pytest.mark.parametrize("text", ["a in (x", "=b", "a=b=c", "a b", "a>x", "-a", ",", "A.b/c/d"])
def test_a_selector_that_cannot_be_read_is_quoted(text):
    with pytest.raises(labels.SelectorError):
        labels.parse(text)


def test_no_selector_takes_nothing_and_an_empty_one_everything():
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


def test_field_selectors():
    parsed = labels.parse_fields(r"spec.nodeName=n1,status.phase!=Running,metadata.name=a\,b")
    assert [(item.field, item.value, item.negated) for item in parsed] == [
        ("spec.nodeName", "n1", False),
        ("status.phase", "Running", True),
        ("metadata.name", "a,b", False),
    ]
    with pytest.raises(labels.SelectorError):
        labels.parse_fields("nonsense")
