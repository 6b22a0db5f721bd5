"""API conditions (metav1.Condition and pod conditions) as JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fairlead.api.texts import plain
from fairlead.kube import timestamps

MESSAGE_MAX = 4096


def condition(
    kind: str, holds: bool, reason: str, message: str, *, now: float, before: Iterable[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """`before`: the conditions so far; the one of this type keeps its transition time while its status is the same."""
    status = "True" if holds else "False"
    old = next((each for each in before if each.get("type") == kind), {})
    same = old.get("status") == status
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": plain(message[:MESSAGE_MAX]),
        "lastTransitionTime": old["lastTransitionTime"] if same else timestamps.seconds(now),
    }


def holding(status: Mapping[str, Any] | None, kind: str) -> Mapping[str, Any] | None:
    """The condition of this type, while it holds."""
    found: Iterable[Mapping[str, Any]] = (status or {}).get("conditions") or ()
    return next((each for each in found if each.get("type") == kind and each.get("status") == "True"), None)


def holds_since(raw: Mapping[str, Any] | None, kind: str) -> float | None:
    """Unix seconds, of an object as the API shows it; None where the condition does not hold, or does not say since when."""
    found = holding((raw or {}).get("status"), kind)
    return None if found is None else timestamps.parsed(found.get("lastTransitionTime"))
