"""The table of trust: what our programs read in order to decide, who may write it, and what keeps all others from it.

The rows are in trust.yaml. `written_by` gives the webhook the keys that it takes off and refuses; docs/security.md shows the table
(`tools/doc_tables.py`); tests/api/test_trust.py compares it with the names that the code uses, and with the policies of manifests/base. A UID
that an object names is a key only in that object's namespace, a pool only with its driver and node: that is a row's scope.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.resources import files
from typing import Final, Literal

import msgspec

from fairlead.api import names
from fairlead.bounded import yaml_text

Writer = Literal[
    "users", "workload", "webhook", "controller", "driver", "administrators", "Kubernetes", "other controllers"
]
Form = Literal["field", "annotation", "label", "annotation or label", "condition", "gate", "finalizer", "name", "taint"]

WEBHOOK_MARKS: Final = "webhook: taken off new pods, refused in templates"
WEBHOOK_SIGNED: Final = "webhook: signed when the pod is created"


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    on: tuple[str, ...] = msgspec.field(name="kinds")
    keys: tuple[str, ...]
    form: Form = "field"
    writers: tuple[Writer, ...]
    guards: tuple[str, ...] = ()
    absurd: str
    scope: str = "its namespace"


TABLE: Final = msgspec.convert(
    yaml_text.document(files("fairlead.api").joinpath("trust.yaml").read_bytes()), tuple[Row, ...]
)


def keys(rows: Iterable[Row] = TABLE) -> frozenset[str]:
    return frozenset(key for row in rows for key in row.keys)


def written_by(writer: Writer, *, on: str, form: Form, guard: str) -> tuple[str, ...]:
    """The keys that this program alone writes on objects of the kind, as the guard keeps them; in the order of the table."""
    return tuple(
        key
        for row in TABLE
        if row.writers == (writer,) and on in row.on and row.form == form and guard in row.guards
        for key in row.keys
    )


def markdown(rows: Iterable[Row] = TABLE) -> str:
    """The table of docs/security.md: what users do not write; rows of the same writers and guards are one."""
    found: dict[tuple[str, str], dict[str, list[str]]] = {}
    for row in rows:
        if row.guards and not {"users", "workload"} & set(row.writers):
            kinds = found.setdefault((", ".join(row.writers), "; ".join(row.guards)), {})
            kinds.setdefault(", ".join(row.on), []).extend(
                f"`{key.removeprefix(names.ANNOTATION_PREFIX)}`" for key in row.keys
            )
    lines = ["| written by | kept from others by | what |", "|---|---|---|"]
    for (writers, guards), kinds in found.items():
        what = "; ".join(f"{on} {', '.join(keys_)}" for on, keys_ in kinds.items())
        lines.append(f"| {writers} | {guards} | {what} |")
    return "\n".join(lines) + "\n"
