"""Label selectors and field selectors: parsing their text, and matching.

Exists because queues take pods by namespace selector, and the sandbox's apiserver filters lists and watches.
Semantics are Kubernetes' own: NotIn and DoesNotExist match objects without the key; an empty selector matches all;
an absent one (None) matches nothing, where the API says so.
Source: apimachinery labels/selector.go, fields/selector.go.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence

from fairlead.kube.objects import LabelSelector

_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_SET = re.compile(r"^(?P<key>\S+)\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)$")
_OPERATORS = {"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"}


class SelectorError(ValueError):
    """A selector that cannot be read; the message quotes it."""


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
        if expression.operator not in _OPERATORS - {"Gt", "Lt"}:
            raise SelectorError(
                f"matchExpressions: {expression.operator!r} is not an operator; use In, NotIn, Exists or DoesNotExist"
            )
        if expression.operator in {"In", "NotIn"} and not expression.values:
            raise SelectorError(f"matchExpressions: {expression.operator} on {expression.key!r} needs values")
        requirements.append(Requirement(expression.key, expression.operator, expression.values))
    return Selector(tuple(requirements))


def matches(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """True when the selector takes an object with these labels; None takes nothing, an empty one everything."""
    return selector is not None and from_label_selector(selector).matches(labels)


def parse(text: str) -> Selector:
    """The selector in its text form: `a=b,c!=d,e in (x,y),f notin (z),g,!h,i>3`. Raises SelectorError."""
    return Selector(tuple(_requirement(part, text) for part in _split(text)))


def _split(text: str) -> list[str]:
    parts: list[str] = []
    depth = 0
    current = ""
    for character in text:
        if character == "," and depth == 0:
            parts.append(current.strip())
            current = ""
            continue
        depth += {"(": 1, ")": -1}.get(character, 0)
        current += character
    if depth:
        raise SelectorError(f"unable to parse requirement: brackets do not match in {text!r}")
    if current.strip() or parts:
        parts.append(current.strip())
    return parts


def _requirement(part: str, text: str) -> Requirement:
    if found := _SET.match(part):
        values = tuple(sorted({value.strip() for value in found["values"].split(",")}))
        return Requirement(_key(found["key"], text), "In" if found["operator"] == "in" else "NotIn", values)
    for sign, operator in (("!=", "NotIn"), ("==", "In"), ("=", "In"), (">", "Gt"), ("<", "Lt")):
        if sign in part:
            key, _, value = part.partition(sign)
            value = value.strip()
            if operator in {"Gt", "Lt"} and not value.lstrip("-").isdigit():
                raise SelectorError(f"unable to parse requirement: {value!r} in {text!r} is not an integer")
            return Requirement(_key(key.strip(), text), operator, (_value(value, text),))
    if part.startswith("!"):
        return Requirement(_key(part[1:].strip(), text), "DoesNotExist")
    return Requirement(_key(part, text), "Exists")


def _key(key: str, text: str) -> str:
    prefix, slash, name = key.rpartition("/")
    if not _NAME.fullmatch(name) or len(name) > 63 or (slash and not _PREFIX.fullmatch(prefix)):
        raise SelectorError(f"unable to parse requirement: {key!r} in {text!r} is not a label key")
    return key


def _value(value: str, text: str) -> str:
    if value and (not _NAME.fullmatch(value) or len(value) > 63):
        raise SelectorError(f"unable to parse requirement: {value!r} in {text!r} is not a label value")
    return value


@dataclasses.dataclass(frozen=True)
class FieldRequirement:
    field: str
    value: str
    negated: bool = False


def parse_fields(text: str) -> tuple[FieldRequirement, ...]:
    """`metadata.name=x,spec.nodeName!=y`; commas, equals and backslashes in values are escaped by a backslash."""
    requirements: list[FieldRequirement] = []
    for part in (piece for piece in re.split(r"(?<!\\),", text) if piece):
        found = re.fullmatch(r"(?P<field>[^=!]+)(?P<sign>!=|==|=)(?P<value>.*)", part)
        if not found:
            raise SelectorError(f"invalid selector: {part!r}; can't understand it, use field=value or field!=value")
        value = re.sub(r"\\([,=\\])", r"\1", found["value"])
        requirements.append(FieldRequirement(found["field"], value, negated=found["sign"] == "!="))
    return tuple(requirements)
