"""The documents of a file, read so that a hostile one costs little: bounded text, depth, and size once its aliases are expanded.

YAML with several documents, or JSON. A key that stands twice in one mapping is refused, as kubectl refuses it: which of the two
counts would be chance.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from fairlead.cli.imports.model import Fault, RefusedError, Source, plain, shown

TEXT_MAX = 16 * 2**20
"""Characters of one file."""
NODES_MAX = 200_000
"""Values of one file, each alias counted with all that it stands for."""
DEPTH_MAX = 64


@dataclass(frozen=True, slots=True)
class Document:
    """`where` is what messages call it: the file, and which of its documents."""

    where: str
    value: Any


def documents(text: str, where: str) -> list[Document]:
    """Those that are not empty. Raises RefusedError."""
    try:
        values = list(_values(text))
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError) as error:
        raise RefusedError([Fault(Source(plain(where)), "", f"{_reason(error)}; correct the file")]) from None
    several = len(values) > 1
    return [
        Document(f"{plain(where)}, document {number}" if several else plain(where), value)
        for number, value in enumerate(values, 1)
        if value is not None
    ]


def _values(text: str) -> Iterator[Any]:
    if len(text) > TEXT_MAX:
        raise ValueError(f"is longer than {TEXT_MAX} characters: split it")
    if text.lstrip().startswith("{"):
        try:
            value = json.loads(text, object_pairs_hook=_once, parse_constant=_no_number)
        except json.JSONDecodeError:
            pass  # a mapping of YAML may begin like that
        else:
            _check_tree(value)
            yield value
            return
    _check_events(text)
    yield from yaml.load_all(text, Loader=_Loader)


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return f"is nested more than {DEPTH_MAX} levels deep"
    return " ".join(str(error).split()) if isinstance(error, yaml.YAMLError) else str(error)


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number of JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {shown(key)} stands twice in one mapping: remove one")
        found[key] = value
    return found


def _check_tree(value: Any) -> None:
    rest: list[tuple[Any, int]] = [(value, 1)]
    count = 0
    while rest:
        current, depth = rest.pop()
        count += 1
        _within(count, depth)
        if isinstance(current, dict | list):
            inner = current.values() if isinstance(current, dict) else current
            rest.extend((each, depth + 1) for each in inner)


def _within(count: int, depth: int) -> None:
    if depth > DEPTH_MAX:
        raise ValueError(f"is nested more than {DEPTH_MAX} levels deep")
    if count > NODES_MAX:
        raise ValueError(f"holds more than {NODES_MAX} values, its aliases written out: split it")


def _check_events(text: str) -> None:
    """Before anything is built: an alias counts as much as what its anchor stands for."""
    sizes: dict[str, tuple[int, int]] = {}
    total = 0
    open_: list[list[Any]] = []  # of each collection: anchor, values, depth below

    def closed(anchor: str | None, size: int, height: int) -> None:
        if anchor is not None:
            sizes[anchor] = (size, height)
        if open_:
            open_[-1][1] += size
            open_[-1][2] = max(open_[-1][2], height + 1)

    for event in yaml.parse(text, Loader=_Safe):
        if isinstance(event, yaml.DocumentStartEvent):
            sizes.clear()
        elif isinstance(event, yaml.CollectionStartEvent):
            open_.append([event.anchor, 1, 1])
            total += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            closed(*open_.pop())
        elif isinstance(event, yaml.ScalarEvent):
            total += 1
            closed(event.anchor, 1, 1)
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in sizes:
                raise ValueError(f"the alias *{event.anchor} stands for nothing, or for what holds it")
            size, height = sizes[event.anchor]
            total += size
            _within(total, len(open_) + height)
            closed(None, size, height)
        _within(total, len(open_))


# libyaml reads ten times faster; its composer recurses in C, which the bound on depth keeps shallow.
_Safe: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Safe):  # type: ignore[misc]
    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen and key.tag != "tag:yaml.org,2002:merge":
                    raise ValueError(
                        f"line {key.start_mark.line + 1}: the key {shown(key.value)} stands twice in one mapping: remove one"
                    )
                seen.add((key.tag, key.value))
        found: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return found
