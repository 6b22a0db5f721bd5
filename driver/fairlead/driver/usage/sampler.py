"""Busy or idle: what the samples of each claim's devices add up to, and when that is written. Pure.

A device is busy from the first sample at or above the threshold, and idle once every sample of a whole window was below
it; idle then began with the first of those. Where the hardware reports no utilisation (MIG), or nothing for longer than a
window, the state is unknown: it is never guessed. Example with 5 % and 5 min: samples 80, 3, 0, 2 … 0 at 10:00, 10:01, …
10:06 make the device busy since 10:00, and at 10:06 idle since 10:01.
Keeps: the state depends on the samples alone, not on how they are divided among calls; of two samples of one moment the
first counts. A sample is of a moment: a program that works for less than the interval of the polls may be missed.

`Schedule` says when a claim's usage is written: what matters soon, the rest once an hour. What matters: a device became busy, idle or
unknown, its utilisation came below one of the driver's levels or above it, or its peak of memory grew by a tenth or a gibibyte. Keeps: a
claim is written at most once per `min_interval_s`, the first time that long after it was prepared, so that short jobs cost nothing; writes
that many nodes have reason for at once are spread over `spread_s`, each claim at a moment of its own.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping

from fairlead.api import names
from fairlead.driver.backend.types import Inventory, Telemetry
from fairlead.driver.prepare.records import Capacities, ClaimRecord, DeviceRecord, Limits, capacities, is_all, limits
from fairlead.kube.device_usage import DeviceId, DeviceUsage, State


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Below `idle_below_percent` for all of `window_s` is idle. `levels`: other percentages of which is said since when it is below."""

    idle_below_percent: float = 5.0
    window_s: float = 300.0
    levels: tuple[float, ...] = ()

    def all_levels(self) -> list[float]:
        return sorted({self.idle_below_percent, *self.levels})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """What is known of one device since it was prepared. Times are epoch seconds.

    `last_s` is the last sample, or the restart of the driver after which there was none; `sampled` tells which.
    `below` has (level, time) of each level that the last sample was below: the run of samples below it began then. `window` has
    (time, utilisation) of the samples of the last window.
    """

    state: State
    since_s: float
    last_s: float
    sampled: bool = True
    below: tuple[tuple[float, float], ...] = ()
    window: tuple[tuple[float, float], ...] = ()
    peak_bytes: int | None = None


def begun(at_s: float) -> Track:
    """Before the first sample."""
    return Track(state="Unknown", since_s=at_s, last_s=at_s, sampled=False)


def step(
    track: Track, at_s: float, utilization_percent: float | None, memory_bytes: int | None, settings: Settings
) -> Track:
    """The track after one more sample."""
    peak = max((each for each in (track.peak_bytes, memory_bytes) if each is not None), default=None)
    track = dataclasses.replace(aged(track, at_s, settings), last_s=at_s, sampled=True, peak_bytes=peak)
    if utilization_percent is None:
        since_s = track.since_s if track.state == "Unknown" else at_s
        return dataclasses.replace(track, state="Unknown", since_s=since_s, below=(), window=())
    kept = tuple(sample for sample in track.window if sample[0] > at_s - settings.window_s)
    runs = dict(track.below)
    below = {level: runs.get(level, at_s) for level in settings.all_levels() if utilization_percent < level}
    track = dataclasses.replace(track, window=(*kept, (at_s, utilization_percent)), below=tuple(below.items()))
    idle_since_s = below.get(settings.idle_below_percent)
    if idle_since_s is None:
        since_s = track.since_s if track.state == "Busy" else at_s
        return dataclasses.replace(track, state="Busy", since_s=since_s)
    if track.state != "Idle" and at_s - idle_since_s >= settings.window_s:
        return dataclasses.replace(track, state="Idle", since_s=idle_since_s)
    return track


def aged(track: Track, now_s: float, settings: Settings) -> Track:
    """The track without samples until now: unknown after a window without one. A clock that was set back begins a new window."""
    if now_s < track.last_s:
        return dataclasses.replace(track, since_s=min(track.since_s, now_s), last_s=now_s, below=(), window=())
    if now_s - track.last_s <= settings.window_s:
        return track
    since_s = track.since_s if track.state == "Unknown" else track.last_s
    return dataclasses.replace(track, state="Unknown", since_s=since_s, below=(), window=())


def resumed(track: Track | None, written: DeviceUsage, at_s: float, settings: Settings) -> Track:
    """The track of a driver that was restarted, continued from what the driver before it wrote.

    What happened in between is not known: the state is taken to have lasted, unless samples say otherwise.
    """
    peaks = (None if track is None else track.peak_bytes, written.memory_used_peak_bytes)
    since_s = min(written.since_s, at_s)
    if track is None:
        track = Track(state=written.state, since_s=since_s, last_s=at_s, sampled=False)
    elif track.state == written.state:
        track = dataclasses.replace(track, since_s=min(since_s, track.since_s))
    elif track.state == "Unknown" and track.window:
        track = dataclasses.replace(track, state=written.state, since_s=since_s)
    runs = {level: min(since_s, at_s) for level, since_s in written.below}
    if track.sampled:  # of what was written those levels last that no sample of this process was above
        lasting = {level: since_s for level, since_s in runs.items() if all(each < level for _, each in track.window)}
        runs = {level: min(since_s, lasting.get(level, since_s)) for level, since_s in track.below}
    if track.state == "Idle":
        runs[settings.idle_below_percent] = track.since_s
    track = dataclasses.replace(track, below=tuple(sorted(runs.items())))
    return dataclasses.replace(track, peak_bytes=max((each for each in peaks if each is not None), default=None))


@dataclasses.dataclass(slots=True, kw_only=True)
class _Held:
    """A device of a prepared claim. It stays `shared` once it was: the peak may be another claim's."""

    track: Track
    memory_used_bytes: int | None = None
    limits: Limits = dataclasses.field(default_factory=Limits)
    shared: bool = False


class Sampler:
    """The devices of this node's prepared claims. `observe` takes one poll, or a part of one; admin access counts for none."""

    def __init__(self, settings: Settings | None = None) -> None:
        self._settings = settings or Settings()
        self._claims: dict[str, dict[DeviceId, _Held]] = {}

    def observe(
        self, at_s: float, readings: Iterable[Telemetry], records: Iterable[ClaimRecord], inventory: Inventory
    ) -> None:
        """Take the readings of one moment. `records` are all there are: claims without one are forgotten."""
        by_uuid = {reading.uuid: reading for reading in readings}
        records = [record for record in records if record.state == "prepared"]
        self._claims = {record.uid: self._claims.get(record.uid, {}) for record in records}
        known = capacities(inventory.gpus)
        users = Counter(uuid for record in records for uuid in {each.uuid for each in record.devices if not each.admin})
        for record in records:
            held = self._claims[record.uid]
            for device in record.devices:
                reading = _reading(by_uuid, device)
                if device.admin or reading is None:
                    continue
                key = DeviceId(names.DRIVER, device.pool, device.device, device.share_id)
                found = held.setdefault(key, _Held(track=begun(at_s)))
                found.shared = found.shared or device.share_id is not None or users[device.uuid] > 1
                if found.track.sampled and found.track.last_s == at_s:
                    continue
                found.memory_used_bytes = _used(reading, record, device, known)
                found.track = step(
                    found.track, at_s, reading.utilization_percent, found.memory_used_bytes, self._settings
                )
                found.limits = _limits(inventory, record, device, known)

    def resume(self, uid: str, written: Mapping[DeviceId, DeviceUsage], at_s: float) -> None:
        """Continue the claim's devices from what was written of them before this process started."""
        held = self._claims.setdefault(uid, {})
        for device, usage in written.items():
            found = held.get(device)
            track = resumed(None if found is None else found.track, usage, at_s, self._settings)
            held[device] = _Held(
                track=track,
                memory_used_bytes=found.memory_used_bytes if found else None,
                limits=found.limits if found else Limits(memory_bytes=usage.memory_bytes),
                shared=usage.shared or (found is not None and found.shared),
            )

    def usages(self, uid: str, now_s: float) -> dict[DeviceId, DeviceUsage]:
        """The usage of those of the claim's devices of which there was a sample, in the order of the claim's results."""
        return {
            device: _usage(held, now_s, self._settings)
            for device, held in self._claims.get(uid, {}).items()
            if held.track.sampled
        }


def _usage(held: _Held, now_s: float, settings: Settings) -> DeviceUsage:
    seen = aged(held.track, now_s, settings) if now_s > held.track.last_s else held.track
    values = [utilization for _, utilization in seen.window]
    return DeviceUsage(
        state=seen.state,
        since_s=seen.since_s,
        sampled_at_s=seen.last_s,
        utilization_percent=min(100, max(0, round(sum(values) / len(values)))) if values else None,
        memory_used_bytes=held.memory_used_bytes,
        memory_used_peak_bytes=seen.peak_bytes,
        memory_bytes=held.limits.memory_bytes,
        memory_limit_bytes=held.limits.program_memory_bytes,
        multiprocessors_limit=held.limits.program_multiprocessors,
        shared=held.shared,
        below=tuple(
            (level, since_s)
            for level, since_s in seen.below
            if seen.last_s - since_s >= settings.window_s
            or (level, seen.state) == (settings.idle_below_percent, "Idle")
        ),
    )


def _reading(by_uuid: Mapping[str, Telemetry], device: DeviceRecord) -> Telemetry | None:
    """The device's own reading. A MIG device without one is there as long as its GPU answers; nothing is known of it."""
    found = by_uuid.get(device.uuid)
    if found is None and device.mig is not None and device.gpu_uuid in by_uuid:
        return Telemetry(uuid=device.uuid)
    return found


def _used(reading: Telemetry, record: ClaimRecord, device: DeviceRecord, known: Capacities) -> int | None:
    """Of a share what the claim's own programs use, or nothing known; of a device that the claim has alone all of it."""
    if device.share_id and not is_all(device, known):
        return reading.memory_by_claim.get(record.uid)
    return reading.memory_used_bytes


def _limits(inventory: Inventory, record: ClaimRecord, device: DeviceRecord, known: Capacities) -> Limits:
    """A MIG device that was made for the claim is in the next inventory; until then its size is that of its profile."""
    found, gpu = limits(record, device, known), inventory.gpu(device.gpu_uuid)
    if found.memory_bytes is not None or gpu is None or device.mig is None:
        return found
    profiles = (each.memory_bytes for each in gpu.mig_profiles if each.id == device.mig.profile_id)
    return dataclasses.replace(found, memory_bytes=next(profiles, None))


# -- when it is written ------------------------------------------------------------------------------------------------

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
