"""A list of gangs: one line each, and their order; pure.

From Gang status, which the controller writes; gangs of one that never waited are read from their pods (`plain_pods`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import get_args

from fairlead.api.phases import Phase
from fairlead.kube import timestamps
from fairlead.kube.containment import computed, described
from fairlead.kube.resources import Raw

PHASES: tuple[str, ...] = get_args(Phase)
PENDING = frozenset({"Waiting", "Gathering", "Evicted"})


def line(raw: Raw, *, now: float) -> Line:
    """The line of a gang that cannot be read: its name, and why."""
    return line_of(partial(_line, raw, now=now), raw)


def _line(raw: Raw, *, now: float) -> Line:
    meta, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    phase = status.get("phase") or "Gathering"
    evicting, why = _why(status)
    since = status.get("queuedTime") or meta.get("creationTimestamp")
    age_s = max(0.0, now - timestamps.parse(since)) if since else 0.0
    return Line(
        namespace=meta.get("namespace", ""),
        name=meta["name"],
        phase=phase,
        queue=status.get("queue") or "",
        position=status.get("position"),
        size=int(spec.get("size") or 1),
        members=int(status.get("members") or 0),
        ready=int(status.get("ready") or 0),
        nodes=tuple(status.get("nodes") or ()),
        without_devices=tuple(status.get("withoutDevices") or ()),
        age_s=age_s,
        reason=status.get("reason") or "",
        evicting=evicting,
        why=why,
        forecast=forecast(status, now=now),
        waited_s=_waited_s(phase, status, age_s, now=now),
        evicts_at=None if (eviction := eviction_of(status)) is None else str(eviction["at"]),
        models=tuple((status.get("models") or {}).get("held") or ()),
        asks=tuple(status.get("asks") or ()),
    )


def eviction_of(status: Raw) -> Raw | None:
    """The eviction that is set of a gang that holds devices, the first of several. The record of one that is over may still be there."""
    found = status.get("evictions") or () if status.get("phase") in {"Admitted", "Running"} else ()
    return min(found, key=lambda each: str(each["at"]), default=None)


def evicted_at(status: Raw) -> float | None:
    """When it was evicted, unix seconds, while it has not started again since."""
    conditions = status.get("conditions") or ()
    found = (each for each in conditions if (each.get("type"), each.get("status")) == ("Evicted", "True"))
    return next((timestamps.parsed(each.get("lastTransitionTime")) for each in found), None)


def _waited_s(phase: str, status: Raw, age_s: float, *, now: float) -> float | None:
    if phase in PENDING:
        evicted = evicted_at(status)
        return age_s if evicted is None else max(0.0, now - evicted)
    waited: float | None = status.get("waitSeconds")
    return waited


def forecast(status: Raw, *, now: float) -> str:
    """`in 12m (p90 40m)`; what of it is over is not shown; "never" for a gang that cannot start; "" where nothing is forecast."""
    found = status.get("forecast") or {}
    if status.get("phase") != "Waiting" or not found:
        return ""
    if found.get("never"):
        return "never"
    if not found.get("p50"):
        return ""
    p50, p90 = (timestamps.parse(at) - now if (at := found.get(part)) else None for part in ("p50", "p90"))
    assert p50 is not None
    if p50 <= 0:
        return "overdue" if p90 is not None and p90 < 0 else f"by now{'' if p90 is None else f' (p90 {age(p90)})'}"
    return f"in {age(p50)}" + ("" if p90 is None else f" (p90 {age(p90)})")


def evicts(each: Line, *, now: float) -> str:
    """`evicting in 4m`, or "" where no eviction of it is set."""
    at = timestamps.parsed(each.evicts_at)
    return "" if at is None else f"evicting in {age(at - now)}" if at > now else "evicting"


def _why(status: Raw) -> tuple[str, str]:
    """The type and message of an eviction in progress or just done, else "" and why the gang waits, or the hold on one that runs."""
    holding = {each["type"]: each for each in status.get("conditions") or () if each.get("status") == "True"}
    eviction = holding.get("Evicting") or (
        holding.get("Evicted") if status.get("phase") in {"Evicted", "Gathering"} else None
    )
    if eviction is not None:
        return str(eviction["type"]), str(eviction.get("message") or "")
    if status.get("phase") == "Running" and "OnHold" in holding:
        return "", str(holding["OnHold"].get("message") or "")
    if status.get("phase") in {"Running", "Finished"} and status.get("reason") in {"MembersRun", "PodsSucceeded"}:
        return "", ""
    return "", str((status.get("why") or {}).get("message") or status.get("message") or "")


def order(lines: Sequence[Line]) -> list[Line]:
    """The lines by phase, waiting gangs first; then by position in their queues, namespace and name."""
    return sorted(lines, key=order_key)


def order_key(each: Line) -> tuple[int, int, str, str]:
    phase = PHASES.index(each.phase) if each.phase in PHASES else len(PHASES)
    return phase, each.position or sys.maxsize, each.namespace, each.name


def age(seconds: float) -> str:
    """The age as kubectl prints it: 45s, 12m, 3h, 2d."""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s"


def clock(at: float, *, now: float) -> str:
    """The time with how far away it is: `00:47:39 UTC (in 3m)`, with its date where that is another than today's."""
    moment, today = datetime.fromtimestamp(at, UTC), datetime.fromtimestamp(now, UTC).date()
    form = "%H:%M:%S UTC" if moment.date() == today else "%Y-%m-%d %H:%M UTC"
    return f"{moment.strftime(form)} ({f'in {age(at - now)}' if at > now else f'{age(now - at)} ago'})"


@dataclass(frozen=True, kw_only=True)
class Line:
    namespace: str
    name: str
    phase: str
    queue: str
    position: int | None
    size: int
    members: int
    ready: int
    nodes: tuple[str, ...]
    age_s: float
    reason: str
    evicting: str  # Evicting or Evicted, where `why` is that condition's message
    why: str  # one sentence
    forecast: str = ""  # of the start: times, or that there is none
    waited_s: float | None = None  # since it is queued or was evicted; of one that has devices, until it got them
    evicts_at: str | None = None  # when its pods go, RFC 3339, where an eviction of it is set
    without_devices: tuple[str, ...] = ()  # pods that ask for none and wait with the others
    models: tuple[str, ...] = ()  # its devices by model, such as `16 × NVIDIA H100 80GB HBM3`
    asks: tuple[str, ...] = ()  # the devices that it waits for, by device class, such as `16 × gpu.nvidia.com`


UNKNOWN = "Unknown"  # the phase of a gang whose line cannot be made


def line_of(make: Callable[[], Line], raw: Raw) -> Line:
    """What `make` gives, or where that raises a line that names the gang and says so: a list of all shows the others."""
    return computed(make, partial(_unreadable, raw))


def _unreadable(raw: Raw, error: Exception) -> Line:
    meta = raw["metadata"]
    why = f"it cannot be shown ({described(error)}); the others are"
    return Line(
        namespace=meta.get("namespace", ""), name=meta["name"], phase=UNKNOWN, queue="", position=None, size=0, members=0, ready=0,
        nodes=(), age_s=0.0, reason="CannotBeShown", evicting="", why=why,
    )  # fmt: skip
