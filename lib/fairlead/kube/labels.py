"""Label selectors: which labels they match.

Semantics are Kubernetes': NotIn and DoesNotExist match labels without the key; an empty selector matches everything; an
absent one (None) matches nothing. Gt and Lt compare integers and occur in node selectors only.
Example: `team In (ml), env NotIn (prod)` matches {team: ml}, for a missing env is not prod.

Source: apimachinery labels/selector.go.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Protocol

_OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})


_KEY = r"[A-Za-z0-9](?:[-\w./]*[A-Za-z0-9])?"
_VALUE = r"(?:[A-Za-z0-9](?:[-\w.]*[A-Za-z0-9])?)?"
_TERM = re.compile(
    rf"\s*(?:(?P<no>!)?\s*(?P<key>{_KEY})|(?P<left>{_KEY})\s*(?P<equal>==?|!=)\s*(?P<right>{_VALUE})"
    rf"|(?P<of>{_KEY})\s+(?P<set>in|notin)\s*\((?P<values>[^()]*)\))\s*",
    re.ASCII,
)


class _Requirement(Protocol):
    @property
    def key(self) -> str: ...
    @property
    def operator(self) -> str: ...
    @property
    def values(self) -> Sequence[str]: ...


class LabelSelector(Protocol):
    """A LabelSelector as the apiserver sends it, or as one of our kinds holds it."""

    @property
    def match_labels(self) -> Mapping[str, str]: ...
    @property
    def match_expressions(self) -> Sequence[_Requirement]: ...


class SelectorError(ValueError):
    """A selector with an operator that does not exist, or without the values that its operator needs."""


@dataclasses.dataclass(frozen=True)
class Requirement:
    key: str
    operator: str  # In, NotIn, Exists, DoesNotExist, Gt, Lt
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        present = self.key in labels
        match self.operator:
            case "In":
                return present and labels[self.key] in self.values
            case "NotIn":
                return not present or labels[self.key] not in self.values
            case "Exists":
                return present
            case "DoesNotExist":
                return not present
            case _:
                return present and _compare(labels[self.key], self.operator, self.values)


@dataclasses.dataclass(frozen=True)
class Selector:
    """All requirements must hold; none at all matches everything."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(requirement.matches(labels) for requirement in self.requirements)


def parse(text: str) -> Selector:
    """A selector as kubectl's -l takes it: `a=b,c!=d,e in (f,g),h,!i`. Raises SelectorError."""
    terms = re.split(r",(?![^(]*\))", text) if text.strip() else []
    return Selector(tuple(map(_requirement, terms)))


def _requirement(term: str) -> Requirement:
    found = _TERM.fullmatch(term)
    if found is None:
        raise SelectorError(
            f"{term.strip()!r} is no requirement of labels: write a=b, a!=b, a in (b,c), a notin (b,c), a or !a"
        )
    if found["key"]:
        return Requirement(found["key"], "DoesNotExist" if found["no"] else "Exists")
    if found["left"]:
        return Requirement(found["left"], "NotIn" if found["equal"] == "!=" else "In", (found["right"],))
    values = tuple(each.strip() for each in found["values"].split(","))
    if not all(re.fullmatch(_VALUE, each, re.ASCII) for each in values):
        raise SelectorError(f"{term.strip()!r}: a value is no label's: letters, digits, '-', '_' and '.'")
    return Requirement(found["of"], "In" if found["set"] == "in" else "NotIn", values)


def _compare(value: str, operator: str, values: Sequence[str]) -> bool:
    try:
        left, right = int(value), int(values[0])
    except (ValueError, IndexError):
        return False
    return left > right if operator == "Gt" else left < right


def from_label_selector(selector: LabelSelector) -> Selector:
    """The selector that matchLabels and matchExpressions describe together. Raises SelectorError."""
    requirements = [Requirement(key, "In", (value,)) for key, value in sorted(selector.match_labels.items())]
    for expression in selector.match_expressions:
        if expression.operator not in _OPERATORS:
            raise SelectorError(
                f"matchExpressions: {expression.operator!r} is not an operator; use In, NotIn, Exists or DoesNotExist"
            )
        if expression.operator in {"In", "NotIn"} and not expression.values:
            raise SelectorError(f"matchExpressions: {expression.operator} on {expression.key!r} needs values")
        requirements.append(Requirement(expression.key, expression.operator, tuple(expression.values)))
    return Selector(tuple(requirements))


def matches(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether the selector matches these labels; None matches nothing, an empty one everything. Raises SelectorError."""
    return selector is not None and from_label_selector(selector).matches(labels)
