"""What all traps share: the finding itself, and how objects that nobody has validated are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fairlead.api import names

Json = dict[str, Any]
Finder = Callable[[Json, Sequence[Json]], Iterator["Trap"]]
"""(object, all objects that were given) → its traps."""

LEGACY = ("nvidia.com/gpu", "nvidia.com/mig-")


@dataclass(frozen=True, kw_only=True)
class Trap:
    """`fails`: pods will not run, or not with their devices. `warning`: they may wait, or not run as one thinks."""

    field: str
    text: str
    level: Literal["fails", "warning"] = "fails"

    def __str__(self) -> str:
        return f"{self.field}: {self.text}"


def at(value: Any, *path: str | int) -> Any:
    """The value at a path; None where something on the way is missing or of another type."""
    for step in path:
        if isinstance(step, int):
            value = value[step] if isinstance(value, list) and step < len(value) else None
        else:
            value = value.get(step) if isinstance(value, dict) else None
    return value


def mapping(value: Any, *path: str | int) -> Json:
    found = at(value, *path)
    return found if isinstance(found, dict) else {}


def mappings(value: Any, *path: str | int) -> list[Json]:
    """The entries of a list that are maps. The index of one is its index in the list only where all are."""
    found = at(value, *path)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def containers(spec: Json) -> list[Json]:
    return [*mappings(spec, "containers"), *mappings(spec, "initContainers")]


def has_claims(spec: Json) -> bool:
    """Whether a pod spec asks for devices by claims."""
    return bool(at(spec, "resourceClaims")) or any(at(each, "resources", "claims") for each in containers(spec))


def has_limits(resources: Any) -> bool:
    """Whether container resources ask for GPUs as for the device plugin."""
    sides = (mapping(resources, side) for side in ("limits", "requests"))
    return any(str(key).startswith(LEGACY) and str(count) != "0" for side in sides for key, count in side.items())


def has_devices(spec: Json) -> bool:
    return has_claims(spec) or any(has_limits(each.get("resources")) for each in containers(spec))


def annotations_of(value: Any, *path: str | int) -> dict[str, str]:
    return {str(key): str(text) for key, text in mapping(value, *path, "metadata", "annotations").items()}


def ours(said: dict[str, str]) -> list[str]:
    """The keys that mean something to Fairlead, but for those that its webhook writes."""
    return sorted(key for key in said if key.startswith(names.ANNOTATION_PREFIX) and key != names.USER)


def number(value: Any, default: float) -> float:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else default
