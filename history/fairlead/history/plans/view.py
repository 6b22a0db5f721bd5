"""A recorded plan put together again from the compact plans up to it, and two of them as lines to compare."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

Json = dict[str, Any]
TIMES = ("due",)


class PlanView:
    """What the compact plans so far say."""

    def __init__(self) -> None:
        self._plan: Json = {"admissions": [], "evictions": [], "queues": {}, "reasons": {}, "waiting": 0, "first": []}

    def apply(self, compact: Json | None) -> None:
        """None: the plan is as before."""
        if compact is None:
            return
        plan = {**self._plan, "admissions": [], "evictions": []}
        plan |= {key: value for key, value in compact.items() if key not in {"queues", "reasons"}}
        queues = {**plan["queues"], **compact.get("queues", {})}
        plan["queues"] = {name: value for name, value in queues.items() if value is not None}
        plan["reasons"] = {**plan["reasons"], **compact.get("reasons", {})}
        self._plan = plan

    def shown(self) -> Json:
        """With the reasons of those gangs alone that wait at the head."""
        plan = dict(self._plan)
        heads = [entry[0] for entry in plan["first"]]
        plan["reasons"] = {gang: plan["reasons"][gang] for gang in heads if gang in plan["reasons"]}
        return plan


def lines(plan: Json) -> list[str]:
    """The plan for people, one fact a line."""
    return list(_lines(plan))


def _lines(plan: Json) -> Iterator[str]:
    for entry in plan["admissions"]:
        devices = {}
        for claim in entry["claims"]:
            devices[claim["claim"]] = ", ".join(
                f"{each['pool']}/{each['device']}" for each in claim["allocation"]["results"]
            )
        yield f"admit {entry['gang']} (queue {entry['queue'] or '-'})"
        for pod in entry["pods"]:
            yield f"  pod {pod['pod'].rpartition('/')[0]} on {pod['node']}"
        for claim, given in devices.items():
            yield f"  claim {claim}: {given}"
    for entry in plan["evictions"]:
        what = "all of it" if entry["whole"] else f"{len(entry['pods'])} pods"
        yield f"evict {entry['gang']} ({entry['kind']}, {what}) for {entry['beneficiary'] or 'itself'}: {entry['text'][0]}"
    for entry in plan.get("reservations", ()):
        yield f"reserve {', '.join(entry['nodes'])} for {entry['gang']} ({entry['kind']})"
    yield f"{plan['waiting']} gangs wait"
    for gang, position, code in plan["first"]:
        told = plan["reasons"].get(gang)
        yield f"  {position}. {gang}: {code}" + (f": {told['text']}" if told and told["code"] == code else "")
    for name, queue in sorted(plan["queues"].items()):
        for use in queue["flavors"]:
            yield (
                f"queue {name}: flavor {use['flavor']}: used {use['used']}, demand {use['demand']}, fair share {use['fairShare']}, "
                f"deserved {use['deserved']}, limit {use['limit'] or 'none'}"
            )
        yield f"queue {name}: {queue['waiting']} wait, {queue['admitted']} admitted"
    for flavor in plan.get("flavors", ()):
        yield f"flavor {flavor['flavor']}: {flavor['allocated']} of {flavor['total']} allocated, {flavor['devices']} devices"
    for problem in plan.get("problems", ()):
        yield f"{problem['kind']} {problem['name']}: {problem['text']}"
    due = plan.get("due")
    yield "due: never" if due is None else f"due: {moment(due)}"


def moment(seconds: float) -> str:
    """RFC 3339 with milliseconds, UTC; seconds themselves where no calendar has them."""
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return f"{seconds} s"


def side_by_side(recorded: list[str], now: list[str], *, around: int = 1) -> list[tuple[str, str, str]]:
    """(mark, recorded, now) for what differs, with `around` lines that do not; "…" where lines are left out."""
    rows: list[tuple[str, str, str]] = []
    blocks = difflib.SequenceMatcher(None, recorded, now, autojunk=False).get_opcodes()
    for place, (kind, a, b, c, d) in enumerate(blocks):
        left, right = recorded[a:b], now[c:d]
        if kind == "equal":
            head = left[:around] if place else []
            tail = left[-around:] if place + 1 < len(blocks) else []
            if len(head) + len(tail) >= len(left):
                head, tail = left, []
            rows += [(" ", line, line) for line in head]
            rows += [("…", "", "")] if len(head) + len(tail) < len(left) else []
            rows += [(" ", line, line) for line in tail]
            continue
        size = max(len(left), len(right))
        left, right = left + [""] * (size - len(left)), right + [""] * (size - len(right))
        rows += [("≠", one, other) for one, other in zip(left, right, strict=True)]
    return rows
