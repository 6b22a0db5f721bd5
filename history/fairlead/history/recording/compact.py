"""A plan as a recording has it, short enough to keep for weeks: a digest of all of it, and what changed since the plan before.

The digest covers every field of the canonical form, the sentences included: equal digests are equal plans. The compact plan has
admissions, evictions, reservations and problems whole; queues and flavors where they changed; of the gangs that wait the first
`FIRST` in order, and the reason of each whose code is new. A thousand waiting gangs whose figures change with every
decision would else be a gigabyte a day. Who holds the recording can decide again, and has all of it. `PlanView` puts a plan together
again from the compact plans up to it, for people to read and compare.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from fairlead.history.recording import canonical

if TYPE_CHECKING:
    from fairlead.engine.types.plan import Plan
    from fairlead.engine.types.reasons import Reason

FIRST = 16
REASONS_MAX = 64  # written with one decision
DIGEST_BYTES = 16
Json = dict[str, Any]


class PlanWriter:
    """Remembers the plan before, and each waiting gang's reason: encoded again only where it differs."""

    def __init__(self) -> None:
        self._before: Plan | None = None
        self._digest = ""
        self._reasons: dict[str, tuple[Reason, bytes]] = {}
        self._written: Json = {}

    def write(self, plan: Plan, *, whole: bool = False) -> tuple[str, Json | None]:
        """The digest, and the compact plan; None for the plan that was written last. `whole`: nothing counts as written before."""
        if whole:
            self._before, self._written = None, {}
        if plan is self._before:
            return self._digest, None
        rest = self._rest(plan)
        self._digest = self._digest_of(plan, rest)
        compact = {**rest, **self._waiting(plan)}
        changed = {key: value for key, value in compact.items() if value != self._written.get(key)}
        changed["queues"] = _changed(self._written.get("queues", {}), compact["queues"])
        changed |= {key: compact[key] for key in ("admissions", "evictions")}
        self._written = compact
        reasons = self._new_reasons(plan)
        self._before = plan
        return self._digest, {
            key: value
            for key, value in {**changed, "reasons": reasons}.items()
            if value not in ({}, []) or (key in changed and key in _KEPT)
        }

    @staticmethod
    def _rest(plan: Plan) -> Json:
        """All but the gangs that wait."""
        found = canonical.decision(plan, waiting=False)
        found["queues"] = {queue.pop("queue"): queue for queue in found["queues"]}
        for entry, eviction in zip(found["evictions"], plan.evictions, strict=True):
            entry["text"] = canonical.text(eviction.reason)
            entry["refusable"] = eviction.refusable_s
        for entry, problem in zip(found["problems"], plan.problems, strict=True):
            entry["text"] = problem.message
        return found

    def _digest_of(self, plan: Plan, rest: Json) -> str:
        sum_ = sha256(canonical.encode(rest))
        reasons: dict[str, tuple[Reason, bytes]] = {}
        for entry in plan.waiting:
            gang = entry.id
            known = self._reasons.get(gang)
            if known is None or (known[0] is not entry.reason and known[0] != entry.reason):
                told = {"facts": canonical.reason(entry.reason), "text": canonical.text(entry.reason)}
                known = (entry.reason, canonical.encode(told))
            reasons[gang] = known
            sum_.update(f"\n{gang}\0{entry.uid}\0{entry.queue}\0{entry.position}\0".encode())
            sum_.update(known[1])
        self._reasons = reasons
        return sum_.hexdigest()[: 2 * DIGEST_BYTES]

    @staticmethod
    def _waiting(plan: Plan) -> Json:
        first = [[entry.id, entry.position, str(entry.reason.code)] for entry in plan.waiting[:FIRST]]
        return {"waiting": len(plan.waiting), "first": first}

    def _new_reasons(self, plan: Plan) -> Json:
        """By gang, those whose code is not that of the plan before."""
        before = {} if self._before is None else {entry.id: entry.reason.code for entry in self._before.waiting}
        found: Json = {}
        for entry in plan.waiting:
            if before.get(entry.id) is not entry.reason.code:
                found[entry.id] = {"queue": entry.queue, "code": str(entry.reason.code), "text": str(entry.reason)}
                if len(found) == REASONS_MAX:
                    break
        return found


_KEPT = frozenset({"reservations", "problems", "flavors", "first"})  # an empty list is what they changed to


def _changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> Json:
    """By name; None for what is gone."""
    gone: Iterable[str] = before.keys() - now.keys()
    return {name: value for name, value in now.items() if before.get(name) != value} | dict.fromkeys(gone)


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
