"""What a gang does now and what comes next, in one or two sentences with one time; pure.

Every text and time is of Gang status; nothing is concluded here.
Example: `Waits 2m. Starts about 00:47:39 UTC (in 3m), when ml/sweep is evicted for it.`
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fairlead.api.texts import counted
from fairlead.kube import timestamps
from fairlead.kube.resources import Raw
from fairlead.ui.model.facts import gang_text
from fairlead.ui.model.gangs import Line, age, clock

_VICTIMS = "being evicted for it: "  # of the condition Preempting
_ENDS = re.compile(r"starts when (.+?) ends in \d+ of them")  # of a forecast
_GOES: Mapping[str, str] = {
    "Idle": "It is stopped as idle",
    "Move": "It moves",
    "Hold": "It is stopped by a hold",
}  # an eviction of any other kind is one


def summary(raw: Raw, seen: Line, *, now: float) -> str:
    """`now`: unix seconds. "" for a gang whose phase is not known."""
    status = raw.get("status") or {}
    conditions = {
        str(each.get("type")): each for each in status.get("conditions") or () if each.get("status") == "True"
    }
    return " ".join(filter(None, (_now(status, seen, now=now), _next(status, conditions, seen, now=now))))


def _now(status: Raw, seen: Line, *, now: float) -> str:
    pending = age(seen.waited_s or 0.0)
    if seen.phase == "Waiting":
        return f"Waits {pending}."
    if seen.phase == "Gathering":
        return f"Gathers its pods for {pending}: {seen.members} of {seen.size} exist."
    if seen.phase == "Evicted":
        what = (status.get("lastEviction") or {}).get("what")
        return f"Was evicted {pending} ago{f', {what}' if what else ''}; its pods are to be made again."
    since = timestamps.parsed(status.get("admittedTime"))
    waited = "" if seen.waited_s is None else f", after {age(seen.waited_s)} of waiting"
    if seen.phase == "Running":
        return f"Runs{'' if since is None else f' {age(max(0.0, now - since))}'}{waited}."
    if seen.phase == "Admitted":
        given = "" if since is None else f" {age(max(0.0, now - since))} ago"
        return f"Got its devices{given}{waited}; {seen.ready} of {counted(seen.size, 'pod')} run."
    return {"Finished": "Has ended: its pods have succeeded.", "Failed": "Has failed."}.get(seen.phase, "")


def _next(status: Raw, conditions: Mapping[str, Any], seen: Line, *, now: float) -> str:
    eviction = min(status.get("evictions") or (), key=lambda each: str(each.get("at")), default=None)
    at = None if eviction is None else timestamps.parsed(eviction.get("at"))
    if eviction is not None and at is not None:
        beneficiary = f", for {gang_text(eviction['beneficiary'])}" if eviction.get("beneficiary") else ""
        return f"{_GOES.get(eviction.get('kind', ''), 'It is evicted')} at {clock(at, now=now)}{beneficiary}."
    if seen.phase != "Waiting":
        return ""
    forecast = status.get("forecast") or {}
    if forecast.get("never"):
        return "It cannot start on this cluster as it is."
    if "OnHold" in conditions:
        return "It does not start before its hold is removed."
    start, cause = timestamps.parsed(forecast.get("p50")), _cause(conditions, str(forecast.get("because") or ""))
    if start is not None:
        when = f"Starts about {clock(start, now=now)}" if start > now else "Starts about now"
        return f"{when}, {cause}." if cause else f"{when}."
    nodes = timestamps.parsed((status.get("nodesAwaited") or {}).get("expected"))
    if nodes is not None:
        return f"Nodes for it are expected about {clock(nodes, now=now)}."
    return f"Starts {cause}." if cause else "When it starts is not forecast."


def _cause(conditions: Mapping[str, Any], because: str) -> str:
    """What its start follows: the evictions for it, or the end of the gang that the forecast names; "" where neither is known."""
    victims = str(conditions.get("Preempting", {}).get("message") or "").partition(_VICTIMS)[2]
    if victims:
        several = "," in victims or " and " in victims
        return f"when {victims} {'are' if several else 'is'} evicted for it"
    found = _ENDS.search(because)
    return f"when {found[1]} ends" if found else ""
