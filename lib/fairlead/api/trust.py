"""The table of trust: what our programs read in order to decide, who may write it, and what keeps all others from it.

A row is for a set of keys that are alike in all of that. It says, too, what an absurd value becomes, since a writer who may write one may
write any, and within what a key means something: a UID that an object names is a key only in that object's namespace, a pool only with
its driver and node. `written_by` gives the webhook the keys that it takes off and refuses; docs/security.md shows the table
(`tools/doc_tables.py`); tests/api/trust compares it with the names that the code uses, and with the policies of manifests/base.
Rows: `trust_rows` (annotations, labels and the like) and `trust_fields` (fields). Constants only, nothing is read or decided here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from fairlead.api import names
from fairlead.api.trust_fields import FIELDS
from fairlead.api.trust_kinds import Form, Guard, Row, Writer
from fairlead.api.trust_rows import MARKS

TABLE: Final[tuple[Row, ...]] = (*MARKS, *FIELDS)


def keys(rows: Iterable[Row] = TABLE) -> frozenset[str]:
    return frozenset(key for row in rows for key in row.keys)


def written_by(writer: Writer, *, on: str, form: Form, guard: Guard) -> tuple[str, ...]:
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
