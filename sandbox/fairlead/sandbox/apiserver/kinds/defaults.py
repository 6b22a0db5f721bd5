"""The defaults that defaults.yaml has, put where an object has nothing.

What depends on more than that (a Job's counts, an image's pull policy) is in the kinds' modules.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.files import table

_Fill = Callable[[Json], None]


@cache
def _of_kinds() -> dict[str, _Fill]:
    return {kind: _map(fields) for kind, fields in table(__file__, "defaults.yaml").items()}


def fill(obj: Json, kind: str) -> None:
    """Put a kind's defaults into an object of it."""
    known = _of_kinds().get(kind)
    if known is not None:
        known(obj)


def _map(fields: Mapping[str, Any]) -> _Fill:
    steps = [_step(key, value) for key, value in fields.items()]

    def run(obj: Json) -> None:
        for step in steps:
            step(obj)

    return run


def _step(written: str, value: Any) -> _Fill:
    spelled, _, condition = written.partition(" if ")
    key = spelled.strip().rstrip("?![]")
    if spelled.strip().endswith("[]"):
        return _within(key, _map(value))
    if spelled.strip().endswith("?"):
        return _if_there(key, _map(value))
    if isinstance(value, dict) and value:
        step = _made(key, _map(value))
    else:
        step = _given(key, value, empty=spelled.strip().endswith("!"))
    if not condition:
        return step
    other, _, wanted = condition.partition("=")
    return lambda obj: step(obj) if obj.get(other) == wanted else None


def _within(key: str, inner: _Fill) -> _Fill:
    def step(obj: Json) -> None:
        for one in obj.get(key) or ():
            inner(one)

    return step


def _if_there(key: str, inner: _Fill) -> _Fill:
    def step(obj: Json) -> None:
        if isinstance(obj.get(key), dict):
            inner(obj[key])

    return step


def _made(key: str, inner: _Fill) -> _Fill:
    return lambda obj: inner(obj.setdefault(key, {}))


def _given(key: str, value: Any, *, empty: bool) -> _Fill:
    def step(obj: Json) -> None:
        found = obj.get(key)
        if found is None or (empty and not found):
            obj[key] = copy.copy(value)

    return step
