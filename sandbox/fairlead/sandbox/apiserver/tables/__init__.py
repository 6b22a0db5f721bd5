"""Tables for kubectl: a kind's columns and what each object shows in them, as `kubectl get` prints on a real cluster.

Enters: objects and the time. Leaves: cells. A Table is columns plus one function from an object to cells; the kinds'
modules choose one. The HTTP Table object is built in rendering.py.
Source: pkg/printers/internalversion/printers.go (1.36), apimachinery duration.HumanDuration.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from fairlead.sandbox.apiserver.kinds.base import Column
from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.apiserver.kinds.schema import schema_of

Cells = Callable[[Json, datetime], list[Any]]
NONE = "<none>"
UNKNOWN = "<unknown>"


@dataclass(frozen=True)
class Col:
    """A column before its description is looked up: `doc` is a text, or "Model.field" in the client's models."""

    name: str
    doc: str = ""
    type: str = "string"
    format: str = ""
    wide: bool = False

    def column(self) -> Column:
        text = self.doc
        model, dot, field = self.doc.partition(".")
        if dot and field.isidentifier() and model[:1].isupper() and " " not in model:
            text = schema_of(model).fields[field].description
        return Column(self.name, self.type, self.format, text, 1 if self.wide else 0)


NAME = Col("Name", "V1ObjectMeta.name", format="name")
AGE = Col("Age", "V1ObjectMeta.creationTimestamp")


class Table:
    """Columns, and the function that computes their cells. The descriptions are looked up at first use."""

    def __init__(self, cols: Sequence[Col], cells: Cells) -> None:
        self._cols = tuple(cols)
        self.cells = cells

    @cached_property
    def columns(self) -> list[Column]:
        return [col.column() for col in self._cols]


def named(*cols: Col, age: bool = True) -> Callable[[Callable[[Json, datetime], list[Any]]], Table]:
    """A table of Name, these columns, Age and then the wide ones; the decorated function returns the cells in between."""
    narrow = [col for col in cols if not col.wide]
    wide = [col for col in cols if col.wide]
    every = [NAME, *narrow, *([AGE] if age else []), *wide]

    def wrap(middle: Callable[[Json, datetime], list[Any]]) -> Table:
        def cells(obj: Json, now: datetime) -> list[Any]:
            values = middle(obj, now)
            head, tail = values[: len(narrow)], values[len(narrow) :]
            return [name_of(obj), *head, *([age_of(obj, now)] if age else []), *tail]

        return Table(every, cells)

    return wrap


def name_of(obj: Json) -> str:
    return str(obj.get("metadata", {}).get("name", ""))


def age_of(obj: Json, now: datetime) -> str:
    return since(obj.get("metadata", {}).get("creationTimestamp"), now)


def parse_time(text: str) -> datetime:
    """RFC 3339, with or without a fraction."""
    return datetime.fromisoformat(text).astimezone(UTC)


def since(text: str | None, now: datetime) -> str:
    return human((now - parse_time(text)).total_seconds()) if text else UNKNOWN


def human(seconds_float: float) -> str:
    """A duration as kubectl shows it.

    >>> [human(s) for s in (-5, 0, 119, 120, 605, 3 * 3600 + 60, 30 * 3600, 3 * 86400 + 3600, 400 * 86400)]
    ['<invalid>', '0s', '119s', '2m', '10m', '3h1m', '30h', '3d1h', '400d']
    """
    if seconds_float < -1:
        return "<invalid>"
    seconds = max(0, int(seconds_float))
    if seconds < 120:
        return f"{seconds}s"
    minutes = seconds // 60
    if minutes < 10:
        rest = seconds % 60
        return f"{minutes}m{rest}s" if rest else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    hours = seconds // 3600
    if hours < 8:
        rest = minutes % 60
        return f"{hours}h{rest}m" if rest else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    days = hours // 24
    if hours < 192:
        rest = hours % 24
        return f"{days}d{rest}h" if rest else f"{days}d"
    if hours < 24 * 365 * 2:
        return f"{days}d"
    years = days // 365
    if hours < 24 * 365 * 8:
        rest = days % 365
        return f"{years}y{rest}d" if rest else f"{years}y"
    return f"{years}y"


def label_selector(selector: Json | None) -> str:
    """A LabelSelector as `a=b,c in (d,e)`."""
    if selector is None:
        return NONE
    parts = [f"{key}={value}" for key, value in sorted(selector.get("matchLabels", {}).items())]
    for one in selector.get("matchExpressions", []):
        values = ",".join(one.get("values", []))
        operator = one.get("operator")
        parts.append(
            {
                "In": f"{one.get('key')} in ({values})",
                "NotIn": f"{one.get('key')} notin ({values})",
                "Exists": str(one.get("key")),
                "DoesNotExist": f"!{one.get('key')}",
            }.get(str(operator), "<error>")
        )
    return ",".join(parts) or NONE


def labels(given: Json | None) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted((given or {}).items())) or NONE


def containers(pod_spec: Json) -> tuple[str, str]:
    """Names and images of the containers, for the wide columns of workloads."""
    found = pod_spec.get("containers") or []
    return ",".join(c.get("name", "") for c in found), ",".join(c.get("image", "") for c in found)


GENERIC = Table(
    (NAME, Col("Created At", "V1ObjectMeta.creationTimestamp", type="date")),
    lambda obj, _now: [name_of(obj), obj.get("metadata", {}).get("creationTimestamp")],
)
CONTAINERS_DOC = "Names of each container in the template."
IMAGES_DOC = "Images referenced by each container in the template."
