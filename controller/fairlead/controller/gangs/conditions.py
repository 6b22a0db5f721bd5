"""API conditions (metav1.Condition and pod conditions) as JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fairlead.api.texts import plain
from fairlead.kube import timestamps

MESSAGE_MAX = 4096


def condition(kind: str, holds: bool, reason: str, message: str, *, now: float) -> dict[str, Any]:
    return {
        "type": kind,
        "status": "True" if holds else "False",
        "reason": reason,
        "message": plain(message[:MESSAGE_MAX]),
        "lastTransitionTime": timestamps.seconds(now),
    }


def with_transition_time(new: dict[str, Any], before: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """`new`, with the transition time of the condition of its type in `before` if the status is the same."""
    old = next((each for each in before if each.get("type") == new["type"]), None)
    if old is not None and old.get("status") == new["status"]:
        return {**new, "lastTransitionTime": old["lastTransitionTime"]}
    return new
