"""Which objects a selector leaves, and what the parser says to nonsense."""

import pytest

from fairlead.sandbox.apiserver.selectors import SelectorError, parse_fields, parse_labels

LABELS = {"app": "web", "tier": "", "n": "5"}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("app=web", True),
        ("app==web", True),
        ("app=db", False),
        ("app!=db", True),
        ("missing!=x", True),
        ("missing=x", False),
        ("tier=", True),
        ("app", True),
        ("!app", False),
        ("!missing", True),
        ("app in (web, db)", True),
        ("app in (db)", False),
        ("app notin (db)", True),
        ("missing notin (db)", True),
        ("app in (web),n=5", True),
        ("n>4", True),
        ("n<5", False),
        ("missing>4", False),
        ("example.com/x notin (a,)", True),
        ("in in (in)", False),
    ],
)
def test_labels_match_as_the_selector_says(text, matches):
    assert parse_labels(text).matches(LABELS) is matches


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("==", "found '==', expected: !, identifier, or 'end of string'"),
        ("a=b,", "found '', expected: identifier after ','"),
        ("a b", "found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a in b", "found 'b', expected: '('"),
        ("a=b)", "found ')', expected: ',' or 'end of string'"),
        ("n>x", "for 'Gt', 'Lt' operators, the value must be an integer"),
        ("-bad=x", "name part must consist of alphanumeric characters"),
    ],
)
def test_a_selector_that_does_not_parse_is_told_in_gos_words(text, message):
    with pytest.raises(SelectorError) as error:
        parse_labels(text)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("a=1", True),
        ("a==1,b!=1", True),
        ("a!=1", False),
        ("c=", True),
        ("c!=", False),
        (r"d=x\,y\=z", True),
        ("", True),
    ],
)
def test_field_selectors_compare_text(text, matches):
    fields = {"a": "1", "b": "2", "d": "x,y=z"}
    assert parse_fields(text).matches(fields) is matches
