"""Fields that a release does not store, because a feature gate is off: dropped when written, unless the stored object uses them.

In paths `[]` stands for the elements of a list, `{}` for the values of a map.
Example: where taints are guarded a new slice loses them, and an update of a slice with taints keeps them.
Source: dropDisabledFields in pkg/registry/resource/{resourceslice,resourceclaim,deviceclass}/strategy.go, dropDisabledPodStatusFields
in pkg/api/pod/util.go (1.34 to 1.36).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.release import Guarded


def drop(new: Json, old: Json | None, guarded: Iterable[Guarded]) -> None:
    """Drop disabled fields, in place. `old` is None for a new object."""
    for group in guarded:
        if old is not None and any(_used(old, path) for path in group.paths):
            continue
        for path in group.dropped:
            for holder, name in _holders(new, path.split(".")):
                holder.pop(name, None)


def _used(obj: Json, path: str) -> bool:
    return any(holder.get(name) not in (None, []) for holder, name in _holders(obj, path.split(".")))


def _holders(value: Any, steps: list[str]) -> Iterator[tuple[Json, str]]:
    """The objects that may have the path's last field, and its name."""
    if not isinstance(value, dict):
        return
    step, *rest = steps
    if not rest:
        yield value, step
        return
    inner = value.get(step.rstrip("[]{}"))
    for one in _elements(inner, step):
        yield from _holders(one, rest)


def _elements(value: Any, step: str) -> Iterable[Any]:
    if step.endswith("[]"):
        return value if isinstance(value, list) else ()
    if step.endswith("{}"):
        return value.values() if isinstance(value, dict) else ()
    return (value,)
