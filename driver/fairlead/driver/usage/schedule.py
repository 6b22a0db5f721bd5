"""When a claim's usage is written: what matters soon, the rest once an hour. Pure.

What matters: a device became busy, idle or unknown, its utilisation came below one of the driver's levels or above it, or its peak of memory grew by a tenth or a gibibyte. Keeps: a claim is
written at most once per `min_interval_s`, the first time that long after it was prepared, so that short jobs cost nothing;
writes that many nodes have reason for at once are spread over `spread_s`, each claim at a moment of its own.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Iterable, Mapping

from fairlead.kube.device_usage import DeviceId, DeviceUsage

Usages = Mapping[DeviceId, DeviceUsage]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """`refresh_s` is the least time between writes of what does not matter, to which a claim adds up to a tenth."""

    min_interval_s: float = 300.0
    refresh_s: float = 3600.0
    spread_s: float = 60.0
    growth: float = 0.1
    growth_bytes: int = 2**30


@dataclasses.dataclass(slots=True, kw_only=True)
class _Entry:
    """`last_s` is the last write, or when the claim was first seen; `reason_s` since when there is a reason to write."""

    last_s: float
    written: Usages | None = None
    reason_s: float | None = None
    not_before_s: float = 0.0


class Schedule:
    """By claim (UID): what was written when, and whether a write is due."""

    def __init__(self, rates: Rates | None = None) -> None:
        self._rates = rates or Rates()
        self._entries: dict[str, _Entry] = {}

    def seen(self, uids: Iterable[str], now_s: float) -> None:
        """These are all claims there are. The others are forgotten; a new one begins its first interval."""
        self._entries = {uid: self._entries.get(uid) or _Entry(last_s=now_s) for uid in uids}

    def due(self, uid: str, usages: Usages, now_s: float) -> bool:
        """Whether this is to be written now."""
        entry = self._entries.get(uid)
        if entry is None or not usages or now_s < entry.not_before_s:
            return False
        entry.last_s = min(entry.last_s, now_s)  # the clock was set back
        share = phase(uid)
        if entry.written is not None and not matters(entry.written, usages, self._rates):
            entry.reason_s = None
            return now_s - entry.last_s >= self._rates.refresh_s * (1 + share / 10)
        if entry.reason_s is None or entry.reason_s > now_s:
            entry.reason_s = now_s
        return now_s >= max(entry.reason_s, entry.last_s + self._rates.min_interval_s) + share * self._rates.spread_s

    def wrote(self, uid: str, usages: Usages, at_s: float) -> None:
        """It is written: now, or by the process before this one."""
        self._entries[uid] = _Entry(last_s=at_s, written=dict(usages))

    def postpone(self, uid: str, until_s: float) -> None:
        """Nothing of this claim is due before."""
        if uid in self._entries:
            self._entries[uid].not_before_s = until_s


def phase(uid: str) -> float:
    """The claim's own moment, from 0 to 1."""
    return zlib.crc32(uid.encode()) / 2**32


def matters(written: Usages, usages: Usages, rates: Rates) -> bool:
    """Whether a reader would decide otherwise with these than with what is written."""
    if written.keys() != usages.keys():
        return True
    return any(
        written[device].state != now.state
        or written[device].shared != now.shared
        or [level for level, _ in written[device].below] != [level for level, _ in now.below]
        or _grew(written[device].memory_used_peak_bytes, now.memory_used_peak_bytes, rates)
        for device, now in usages.items()
    )


def _grew(before: int | None, now: int | None, rates: Rates) -> bool:
    if before is None or now is None:
        return before is None and now is not None
    return now > before and (now - before >= rates.growth_bytes or now - before >= rates.growth * before)
