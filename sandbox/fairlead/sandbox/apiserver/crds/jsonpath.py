"""The JSON paths of printer columns and scale subresources: steps, indices, [*] and one kind of filter.

`.status.conditions[?(@.type=="Ready")].status` and the like. Anything else is refused when the CRD is written.
Source: k8s.io/client-go/util/jsonpath, as far as apiextensions admits it (1.36).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

_STEP = re.compile(
    r"""\.(?P<name>(?:\\.|[^.\[\]\\])+)|\[(?P<index>-?\d+)\]|\[(?P<star>\*)\]|\['(?P<quoted>[^']*)'\]"""
    r"""|\[\?\(@\.(?P<key>[^=!<>\s]+)\s*(?P<op>==|!=)\s*(?P<value>"[^"]*"|'[^']*'|[^)\s]+)\s*\)\]"""
)
Step = tuple[str, Any]


class PathError(ValueError):
    """Not a supported path."""


@lru_cache(maxsize=1024)
def parse(text: str) -> tuple[Step, ...]:
    """Raises PathError.

    >>> parse(".spec.weight")
    (('name', 'spec'), ('name', 'weight'))
    """
    rest = text.strip().removeprefix("{").removesuffix("}").removeprefix("$")
    if not rest.startswith((".", "[")):
        raise PathError(f"json path {text!r}: must start with a dot")
    steps: list[Step] = []
    position = 0
    while position < len(rest):
        match = _STEP.match(rest, position)
        if match is None:
            raise PathError(f"json path {text!r}: cannot follow {rest[position:]!r}")
        if match["name"] is not None:
            steps.append(("name", re.sub(r"\\(.)", r"\1", match["name"])))
        elif match["quoted"] is not None:
            steps.append(("name", match["quoted"]))
        elif match["index"] is not None:
            steps.append(("index", int(match["index"])))
        elif match["star"]:
            steps.append(("star", None))
        else:
            steps.append(("filter", (match["key"], match["op"], match["value"].strip("\"'"))))
        position = match.end()
    return tuple(steps)


def find(obj: Any, text: str) -> list[Any]:
    """All values at the path."""
    found = [obj]
    for kind, argument in parse(text):
        found = [inner for one in found for inner in _follow(one, kind, argument)]
    return found


def _follow(value: Any, kind: str, argument: Any) -> list[Any]:
    if kind == "name":
        return [value[argument]] if isinstance(value, dict) and argument in value else []
    if kind == "star":
        return list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    if not isinstance(value, list):
        return []
    if kind == "index":
        return [value[argument]] if -len(value) <= argument < len(value) else []
    key, operator, wanted = argument
    return [one for one in value if isinstance(one, dict) and (str(one.get(key)) == wanted) == (operator == "==")]
