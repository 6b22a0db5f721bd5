"""The hold of a Gang or Queue object, for the engine. Pure.

A hold that is written but cannot be read holds all the same, with what of it can be read: no typing error starts a gang.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairlead.api.gang import REASON_MAX, USER_MAX, Hold
from fairlead.engine.queues.limits import Found
from fairlead.engine.types import gangs as engine

__all__ = ["Found", "of_object", "of_spec"]

TIME_MAX = 40


def of_spec(hold: Hold | None) -> engine.Hold | None:
    if hold is None:
        return None
    return engine.Hold(by=hold.by, since=hold.since or "", reason=hold.reason, evict=hold.evict)


def of_object(raw: Mapping[str, Any] | None) -> engine.Hold | None:
    """The hold of a Gang object; None without one, or where it says nothing of a hold."""
    said = ((raw or {}).get("spec") or {}).get("hold")
    if said is None:
        return None
    fields: Mapping[str, Any] = said if isinstance(said, dict) else {}
    return engine.Hold(
        by=_line(fields.get("by"), USER_MAX),
        since=_line(fields.get("since"), TIME_MAX),
        reason=_line(fields.get("reason"), REASON_MAX),
        evict=fields.get("evict") is True,
    )


def protected_hold(raw: Mapping[str, Any] | None) -> engine.Hold | None:
    """The hold of a Gang object that only users with the verb `hold` take away; None where there is none."""
    said = ((raw or {}).get("spec") or {}).get("hold")
    return of_object(raw) if isinstance(said, dict) and said.get("protected") is True else None


def _line(value: object, most: int) -> str:
    """Printed in terminals: nothing that moves a cursor."""
    if not isinstance(value, str):
        return ""
    return "".join(letter if letter.isprintable() else "?" for letter in value[:most])
