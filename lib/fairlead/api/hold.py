"""A hold: nothing of a gang, or of a queue and those below it, is admitted until it is taken away.

One form for both kinds. `by` and `since` are for people; which user may write and take away a hold is the apiserver's to say
(RBAC, and the admission policy `fairlead-holds`), not this module's.
"""

from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, Field, JsonValue

from fairlead.api.base import Part

REASON_MAX = 512
USER_MAX = 256
VERB = "hold"
"""RBAC verb on gangs, in all namespaces: its bearers may write protected holds, and take away those of others."""


_LINE: dict[str, JsonValue] = {"pattern": "^[^\\x00-\\x1f\\x7f]*$"}


def _one_line(text: str) -> str:
    """Both are printed in terminals and messages: what moves a cursor or breaks a line is refused."""
    if not text.isprintable():
        raise ValueError(f"{text[:40]!r} has a line break or control character: write one line of plain text")
    return text


def _time(text: str) -> str:
    try:
        known = datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        known = False
    if not known:
        raise ValueError(f"{text[:40]!r} is no time: write RFC 3339, such as 2026-11-24T08:00:00Z")
    return text


class Hold(Part):
    """Nothing is admitted until this is removed; what runs goes on, unless `evict` says otherwise."""

    reason: Annotated[str, AfterValidator(_one_line)] = Field(
        default="", max_length=REASON_MAX, json_schema_extra=_LINE
    )
    """Why, in one line for users."""
    by: Annotated[str, AfterValidator(_one_line)] = Field(default="", max_length=USER_MAX, json_schema_extra=_LINE)
    """The user who wrote it."""
    since: Annotated[str, AfterValidator(_time)] | None = Field(default=None, max_length=40)
    """When it was written, RFC 3339."""
    evict: bool = False
    """Whether what runs is evicted, too: with its checkpoint-grace, and as PodDisruptionBudgets allow."""
    protected: bool = False
    """Whether only users with the verb `hold` on gangs in all namespaces may change or remove it. Means something on gangs only."""
