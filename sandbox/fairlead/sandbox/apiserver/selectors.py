"""Label and field selectors: the text of list and watch requests, and LabelSelector objects of specs.

Pure. The parser's errors are Go's. Which fields a kind has, and the error for others, is reading.py's.
Source: k8s.io/apimachinery/pkg/labels/selector.go, pkg/fields/selector.go (1.36).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fairlead.sandbox.apiserver import names


class SelectorError(ValueError):
    """The text is no selector; the message is Go's."""


@dataclass(frozen=True)
class Requirement:
    key: str
    operator: str  # =, !=, in, notin, exists, !, gt, lt
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        present = self.key in labels
        value = labels.get(self.key, "")
        match self.operator:
            case "=" | "in":
                return present and value in self.values
            case "!=" | "notin":
                return not present or value not in self.values
            case "exists":
                return present
            case "!":
                return not present
            case _:
                return present and self._compare(value)

    def _compare(self, value: str) -> bool:
        try:
            left, right = int(value), int(self.values[0])
        except ValueError:
            return False
        return left > right if self.operator == "gt" else left < right


@dataclass(frozen=True)
class LabelSelector:
    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(one.matches(labels) for one in self.requirements)


_TOKEN = re.compile(r"\s*(==|!=|[=!(),><]|[^\s=!(),><]+)")


class _Tokens:
    """Look-ahead by one, over Go's lexer."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = []
        position = 0
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                break
            self._tokens.append(match.group(1))
            position = match.end()
        self._at = 0

    def peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def next(self) -> str:
        lexeme = self.peek()
        self._at += 1
        return lexeme


_SYMBOLS = {"=", "==", "!=", "!", "(", ")", ",", ">", "<"}


def _is_identifier(lexeme: str) -> bool:
    return lexeme != "" and lexeme not in _SYMBOLS  # "in" and "notin" may be keys and values too


def parse_labels(text: str) -> LabelSelector:
    """`a=b,c!=d,e in (f,g),h,!i`. Raises SelectorError."""
    tokens = _Tokens(text)
    requirements: list[Requirement] = []
    if not text.strip():
        return LabelSelector()
    while True:
        lexeme = tokens.peek()
        if lexeme == "!" or _is_identifier(lexeme):
            try:
                requirements.append(_requirement(tokens))
            except SelectorError as error:
                raise SelectorError(f"unable to parse requirement: {error}") from error
            after = tokens.next()
            if after == "":
                break
            if after != ",":
                raise SelectorError(f"found '{after}', expected: ',' or 'end of string'")
            following = tokens.peek()
            if following != "!" and not _is_identifier(following):
                raise SelectorError(f"found '{following}', expected: identifier after ','")
        elif lexeme == "":
            break
        else:
            raise SelectorError(f"found '{lexeme}', expected: !, identifier, or 'end of string'")
    return LabelSelector(tuple(sorted(requirements, key=lambda one: one.key)))


def _requirement(tokens: _Tokens) -> Requirement:
    lexeme = tokens.next()
    if lexeme == "!":
        key = tokens.next()
        if not _is_identifier(key):
            raise SelectorError(f"found '{key}', expected: identifier")
        _check_key(key)
        return Requirement(key, "!")
    key = lexeme
    _check_key(key)
    operator = tokens.peek()
    if operator in {"", ","}:
        return Requirement(key, "exists")
    tokens.next()
    if operator in {"in", "notin"}:
        values = _set(tokens)
    elif operator in {"=", "==", "!=", ">", "<"}:
        values = (_value(tokens),)
    else:
        raise SelectorError(f"found '{operator}', expected: in, notin, =, ==, !=, gt, lt")
    for index, value in enumerate(values):
        complaints = names.label_value_complaints(value)
        if complaints:
            raise SelectorError(f'values[{index}][{key}]: Invalid value: "{value}": {"; ".join(complaints)}')
    canonical = {"==": "=", ">": "gt", "<": "lt"}.get(operator, operator)
    if canonical in {"gt", "lt"} and not re.fullmatch(r"[+-]?\d+", values[0]):
        raise SelectorError(
            f"values[0][{key}]: Invalid value: \"{values[0]}\": for 'Gt', 'Lt' operators, the value must be an integer"
        )
    return Requirement(key, canonical, values)


def _check_key(key: str) -> None:
    complaints = names.qualified_name_complaints(key)
    if complaints:
        raise SelectorError(f'key: Invalid value: "{key}": {"; ".join(complaints)}')


def _value(tokens: _Tokens) -> str:
    if tokens.peek() in {"", ","}:
        return ""
    lexeme = tokens.next()
    if not _is_identifier(lexeme):
        raise SelectorError(f"found '{lexeme}', expected: identifier")
    return lexeme


def _set(tokens: _Tokens) -> tuple[str, ...]:
    lexeme = tokens.next()
    if lexeme != "(":
        raise SelectorError(f"found '{lexeme}', expected: '('")
    values: set[str] = set()
    lexeme = tokens.peek()
    if lexeme == ")":
        tokens.next()
        return ("",)
    while True:
        lexeme = tokens.next()
        if lexeme == ",":  # an empty member
            values.add("")
            continue
        if lexeme == ")":
            return tuple(sorted(values | {""}))
        if not _is_identifier(lexeme):
            raise SelectorError(f"found '{lexeme}', expected: ',', ')' or identifier")
        values.add(lexeme)
        lexeme = tokens.next()
        if lexeme == ")":
            return tuple(sorted(values))
        if lexeme != ",":
            raise SelectorError(f"found '{lexeme}', expected: ',' or ')'")


@dataclass(frozen=True)
class FieldSelector:
    """`terms` are (field, operator, value); the operator is = or !=."""

    terms: tuple[tuple[str, str, str], ...] = ()

    def matches(self, fields: Mapping[str, str]) -> bool:
        return all((fields.get(key, "") == value) == (operator == "=") for key, operator, value in self.terms)

    def exact(self, key: str) -> str | None:
        """The value that `key` must have, if it must have one."""
        return next((value for k, operator, value in self.terms if k == key and operator == "="), None)


def parse_fields(text: str) -> FieldSelector:
    r"""`a=b,c!=d`, with backslash escapes of \\, = and ,. Raises SelectorError."""
    terms = []
    for term in _split_terms(text):
        if not term:
            continue
        match = re.match(r"((?:\\.|[^\\=!])*)(!=|==|=)(.*)", term, re.DOTALL)
        if match is None:
            raise SelectorError(f"invalid selector: '{text}'; can't understand '{term}'")
        key, operator, value = match.groups()
        terms.append((key, "!=" if operator == "!=" else "=", _unescape(value)))
    return FieldSelector(tuple(terms))


def _split_terms(text: str) -> list[str]:
    terms, current, escaped = [], "", False
    for char in text:
        if escaped:
            current += char
            escaped = False
        elif char == "\\":
            current += char
            escaped = True
        elif char == ",":
            terms.append(current)
            current = ""
        else:
            current += char
    terms.append(current)
    return terms


def _unescape(value: str) -> str:
    return re.sub(r"\\([\\,=])", r"\1", value)


# -- metav1.LabelSelector
def matches_labels(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """A LabelSelector object, as specs hold it; an empty one matches everything. What null means, the caller decides."""
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_expression(one, labels) for one in selector.get("matchExpressions") or ())


def _expression(one: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, values = one.get("key", ""), one.get("values") or ()
    match one.get("operator"):
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case _:
            return key not in labels
