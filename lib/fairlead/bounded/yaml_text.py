"""The documents of a text in YAML, or of one in JSON, which nearly is YAML.

First the text's events are counted, by libyaml and without building anything: an alias counts as much as what its anchor stands for. Only then it
is built. A key that stands twice in one mapping is refused, as kubectl refuses it: which of the two counts would be chance.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import yaml

from fairlead.bounded import json_text
from fairlead.bounded.limits import (
    MANIFESTS,
    MERGES_MAX,
    BoundError,
    Limits,
    UnreadableError,
    check_key,
    check_number,
    shown,
)

_MERGE = "tag:yaml.org,2002:merge"
_INT = "tag:yaml.org,2002:int"


def documents(text: str | bytes, limits: Limits = MANIFESTS) -> list[Any]:
    """All, those that are empty as None. Raises UnreadableError, and BoundError where it goes beyond a limit."""
    limits.check_bytes(len(text))
    data = _encoded(text)
    limits.check_bytes(len(data))
    if data.lstrip()[:1] in {b"{", b"["}:
        try:
            return [json_text.value(data, limits)]
        except json_text.NotJsonError:
            pass  # a mapping of YAML may begin like that
    try:
        check(data, limits)
        return list(yaml.load_all(data, Loader=_Loader))
    except UnreadableError:
        raise
    except RecursionError:
        raise BoundError(f"is nested more than {limits.depth} levels deep") from None
    except Exception as error:  # PyYAML takes scalars for dates and more, and raises whatever their constructors do
        what = " ".join(str(error).split())
        raise UnreadableError(
            what if isinstance(error, yaml.YAMLError) else f"not YAML: {type(error).__name__}: {what}"
        ) from None


def document(text: str | bytes, limits: Limits = MANIFESTS) -> Any:
    """The only one; None where there is none. Raises UnreadableError."""
    found = documents(text, limits)
    if len(found) > 1:
        raise UnreadableError(f"holds {len(found)} documents; write one")
    return found[0] if found else None


def _encoded(text: str | bytes) -> bytes:
    try:
        if isinstance(text, str):
            return text.encode()
        text.decode()
    except UnicodeError as error:
        raise UnreadableError(f"is no UTF-8 text: {error}") from None
    return text


def check(data: bytes, limits: Limits = MANIFESTS) -> None:
    """Checks the bounds before anything is built. Raises BoundError, and yaml.YAMLError for what is no YAML."""
    sizes: dict[str, tuple[int, int, int]] = {}
    values = expanded = 0
    open_: list[list[Any]] = []  # of each collection: anchor, values, levels below, bytes

    def closed(anchor: str | None, size: int, height: int, length: int) -> None:
        if anchor is not None:
            sizes[anchor] = (size, height, length)
        if open_:
            open_[-1][1] += size
            open_[-1][2] = max(open_[-1][2], height + 1)
            open_[-1][3] += length

    event: Any
    for event in yaml.parse(data, Loader=_Safe):
        kind = type(event)
        if kind is yaml.ScalarEvent:
            values += 1
            expanded += len(event.value)
            closed(event.anchor, 1, 1, len(event.value))
        elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
            open_.append([event.anchor, 1, 1, 2])
            values += 1
            expanded += 2
        elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
            closed(*open_.pop())
        elif kind is yaml.AliasEvent:
            if event.anchor not in sizes:
                raise UnreadableError(f"the alias *{event.anchor[:80]} stands for nothing, or for what holds it")
            size, height, length = sizes[event.anchor]
            values += size
            expanded += length
            limits.check_depth(len(open_) + height)
            closed(None, size, height, length)
        elif kind is yaml.DocumentStartEvent:
            sizes.clear()
            values += 2  # its beginning and its end take as long as two
        limits.check_values(values)
        limits.check_expanded(expanded)
        limits.check_depth(len(open_))


# libyaml reads ten times faster; its composer recurses in C, which the bound on depth keeps shallow.
_Safe: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Safe):  # type: ignore[misc]
    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        if isinstance(node, yaml.MappingNode):
            _check_keys(node)
        found: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return found

    def flatten_mapping(self, node: Any) -> None:
        """Merges what a mapping refers to before its keys are built; the keys are checked with its own."""
        if sum(key.tag == _MERGE for key, _ in node.value) > MERGES_MAX:
            raise BoundError(f"{_line(node)}more than {MERGES_MAX} merge keys (<<) in one mapping")
        super().flatten_mapping(node)
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                check_key(key.value, number=key.tag == _INT, where=_line(key))

    def construct_yaml_int(self, node: Any) -> Any:
        check_number(node.value if isinstance(node.value, str) else "", _line(node))
        return super().construct_yaml_int(node)

    def construct_yaml_float(self, node: Any) -> Any:
        check_number(node.value if isinstance(node.value, str) else "", _line(node))
        return super().construct_yaml_float(node)


_Loader.add_constructor(_INT, _Loader.construct_yaml_int)
_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.construct_yaml_float)


def _check_keys(node: yaml.MappingNode) -> None:
    seen: set[tuple[str, str]] = set()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE:
            continue
        if (key.tag, key.value) in seen:
            raise UnreadableError(f"{_line(key)}the key {shown(key.value)} stands twice in one mapping: remove one")
        seen.add((key.tag, key.value))


def _line(node: Any) -> str:
    return f"line {node.start_mark.line + 1}: "
