"""By what a bill is grouped and which part of it is shown: what users write, read into groups of the ledger. Pure.

Gangs and claims are named within a namespace, so grouping by one of them groups by its namespace, too: two teams' `train` are two lines.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Final

from fairlead.api.object_names import is_label_key
from fairlead.history.cost.errors import CostError

LABEL: Final = "label="
BY: Final = ("queue", "namespace", "user", "flavor", "gang", "claim", "node", "device", "unit", "day")
WITHIN_NAMESPACE: Final = frozenset({"gang", "claim"})
# What time has that no claim holds; all other groups are of a claim.
OF_DEVICES: Final = frozenset({"flavor", "node", "unit", "day"})


def parse_by(texts: Iterable[str]) -> tuple[str, ...]:
    """Each text is a group or several, after commas. In the order given, each once. Raises CostError."""
    found = dict[str, None]()
    for name in (part.strip() for text in texts for part in text.split(",")):
        group = _group(name, f"--by {name[:80]}")
        if group in WITHIN_NAMESPACE:
            found["namespace"] = None
        found[group] = None
    return tuple(found)


def parse_where(texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """`queue=ml`, `label=team=vision`. Raises CostError."""
    found: list[tuple[str, str]] = []
    for text in texts:
        if text.startswith(LABEL):
            name, equals, value = text.removeprefix(LABEL).partition("=")
            name = LABEL + name
        else:
            name, equals, value = text.partition("=")
        if not equals:
            raise CostError(f"--where {text[:80]}: write KEY=VALUE, such as queue=ml, gang=train or label=team=vision")
        found.append((_group(name, f"--where {text[:80]}"), value))
    return tuple(found)


def _group(name: str, where: str) -> str:
    if name.startswith(LABEL):
        if not is_label_key(name.removeprefix(LABEL)):
            raise CostError(f"{where}: {name.removeprefix(LABEL)[:80]!r} is no label's name: write label=[prefix/]name")
        return name
    if name in BY:
        return name
    near = difflib.get_close_matches(name, BY, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise CostError(f"{where}: no such group; {hint}there are {', '.join(BY)} and label=NAME")
