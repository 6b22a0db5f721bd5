"""A reason as Gang status keeps it: in parts, with bounded lengths. `fairlead explain` needs nothing but the Gang."""

from __future__ import annotations

from typing import Any

from fairlead.engine.types.reasons import Reason

PARTS_MAX = 16
LINE_MAX = 1024
MESSAGE_MAX = 4096


def explanation(reason: Reason) -> dict[str, Any]:
    """The parts that say something; `status.why` of a Gang."""
    near = reason.near_miss if reason.near_miss is not None and reason.near_miss.informative else None
    details = [str(part) for part in (reason.limit, near) if part is not None]
    details += [str(level) for level in reason.levels]
    details += [str(request) for request in reason.requests]
    details += [f"ruled out {node}" for node in reason.nodes]
    holders = [
        {"gang": holder.gang[:512], "queue": holder.queue[:253], "devices": holder.devices}
        for holder in reason.holders[:PARTS_MAX]
    ]
    parts: dict[str, Any] = {
        "message": reason.message[:MESSAGE_MAX],
        "advice": reason.advice[:LINE_MAX],
        "couldEverFit": reason.could_ever_fit,
        "details": _lines(details),
        "holders": holders,
        "blockers": _lines([blocker.explained for blocker in reason.blockers]),
    }
    return {key: value for key, value in parts.items() if value not in ("", None, [])}


def _lines(texts: list[str]) -> list[str]:
    kept = texts if len(texts) <= PARTS_MAX else [*texts[: PARTS_MAX - 1], f"and {len(texts) - PARTS_MAX + 1} more"]
    return [text[:LINE_MAX] for text in kept]
