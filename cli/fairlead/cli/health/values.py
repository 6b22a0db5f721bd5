"""Values of objects that others wrote: reading them never fails. What has another type than expected is as if it were not there.

The kinds of other systems may have any content, and a command that looks for faults must not end at one.
Texts lose control characters, so that a message cannot steer the terminal, and are cut at `TEXT_MAX`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

from fairlead.kube import timestamps
from fairlead.kube.quantity import Quantity, QuantityError
from fairlead.kube.resources import Raw

TEXT_MAX = 300
SHOWN_MAX = 3


def value(obj: Any, *path: str) -> Any:
    """What is at the path through objects; None where there is none."""
    for key in path:
        obj = obj.get(key) if isinstance(obj, dict) else None
    return obj


def mapping(obj: Any, *path: str) -> dict[str, Any]:
    found = value(obj, *path)
    return found if isinstance(found, dict) else {}


def sequence(obj: Any, *path: str) -> list[Any]:
    found = value(obj, *path)
    return found if isinstance(found, list) else []


def objects(obj: Any, *path: str) -> list[dict[str, Any]]:
    """Those of a list that are objects."""
    return [each for each in sequence(obj, *path) if isinstance(each, dict)]


def text(obj: Any, *path: str) -> str:
    """Empty for what is no text."""
    found = value(obj, *path)
    return clean(found) if isinstance(found, str) else ""


def integer(obj: Any, *path: str) -> int:
    """0 for what is no whole number."""
    found = value(obj, *path)
    return found if isinstance(found, int) and not isinstance(found, bool) else 0


def amount(obj: Any, *path: str) -> float:
    """A quantity as a number; 0 for what is none."""
    found = value(obj, *path)
    if isinstance(found, bool) or not isinstance(found, str | int):
        return 0.0
    try:
        parsed = float(Quantity.parse(str(found)[:64]))
    except (QuantityError, OverflowError, ValueError):
        return 0.0
    return parsed if math.isfinite(parsed) else 0.0


def time_s(obj: Any, *path: str) -> float | None:
    """Epoch seconds of a timestamp; None for what is none."""
    try:
        return timestamps.parse(text(obj, *path))
    except (ValueError, OverflowError):
        return None


def clean(found: str) -> str:
    line = "".join(char if char.isprintable() else " " for char in found[: TEXT_MAX + 1])
    return line if len(line) <= TEXT_MAX else line[: TEXT_MAX - 1] + "…"


def name(obj: Any) -> str:
    return text(obj, "metadata", "name")


def namespace(obj: Any) -> str:
    return text(obj, "metadata", "namespace")


def key(obj: Any) -> str:
    """namespace/name, or name."""
    where = namespace(obj)
    return f"{where}/{name(obj)}" if where else name(obj)


def labels_of(obj: Any) -> dict[str, Any]:
    return mapping(obj, "metadata", "labels")


def annotations_of(obj: Any) -> dict[str, Any]:
    return mapping(obj, "metadata", "annotations")


def condition(obj: Any, kind: str) -> dict[str, Any]:
    return next((each for each in objects(obj, "status", "conditions") if each.get("type") == kind), {})


def some(names: Iterable[str], most: int = SHOWN_MAX) -> str:
    """`a, b, c and 4 more`, in order."""
    found = sorted(set(names))
    return ", ".join(found[:most]) + (f" and {len(found) - most} more" if len(found) > most else "")


def version(found: str) -> tuple[int, ...]:
    """The numbers at the beginning of a version or of an image's tag, three at most: `v24.9.2-rc1` is (24, 9, 2). () for none."""
    match = re.match(r"v?(\d{1,9})(?:\.(\d{1,9}))?(?:\.(\d{1,9}))?", found)
    return tuple(int(part) for part in match.groups() if part is not None) if match else ()


def tag(image: str) -> str:
    """The tag in an image's name: `v1.2` of `registry:5000/a/b:v1.2@sha256:…`."""
    last = image.partition("@")[0].rpartition("/")[2]
    return last.partition(":")[2]


def containers(workload: Raw) -> list[dict[str, Any]]:
    """The containers of a Deployment or DaemonSet."""
    return objects(workload, "spec", "template", "spec", "containers")


def arguments(workload: Raw) -> list[str]:
    """Commands and arguments of all its containers."""
    return [
        clean(word)
        for each in containers(workload)
        for word in (*sequence(each, "command"), *sequence(each, "args"))
        if isinstance(word, str)
    ]
