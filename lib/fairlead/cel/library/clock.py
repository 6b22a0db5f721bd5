"""Timestamps and durations: Go's text forms, arithmetic, and getters in a time zone.

Both count nanoseconds; Python's datetime has only microseconds. Reads no clock; a getter with a zone's name reads the time
zone database. Source: cel-go common/types/timestamp.go, duration.go; Go time.
"""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Final

from fairlead.cel.declare import Library
from fairlead.cel.errors import EvaluationError
from fairlead.cel.library.standard import check_int
from fairlead.cel.values import Duration, Timestamp

CLOCK: Final = Library("time")

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND: Final = 10**9
_MIN_NS: Final = -62135596800 * _SECOND  # 0001-01-01T00:00:00Z
_MAX_NS: Final = 253402300800 * _SECOND - 1  # 9999-12-31T23:59:59.999999999Z
_RFC3339: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]+))?(Z|[+-][0-9]{2}:[0-9]{2})",
    re.ASCII,
)
_UNITS: Final = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_PART: Final = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_OFFSET: Final = re.compile(r"([+-]?)([0-9]{1,2}):([0-9]{1,2})", re.ASCII)


def in_range(value: Timestamp) -> Timestamp:
    if not _MIN_NS <= value.ns <= _MAX_NS:
        raise EvaluationError("timestamp overflow")
    return value


def parse_timestamp(text: str) -> Timestamp:
    """RFC 3339 with up to nanoseconds. Raises EvaluationError."""
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise EvaluationError(f"type conversion error from 'string' to 'google.protobuf.Timestamp': {text[:40]!r}")
    year, month, day, hour, minute, second = (int(match[index]) for index in range(1, 7))
    fraction = int((match[7] or "0")[:9].ljust(9, "0"))
    zone = match[8]
    offset = timedelta(0)
    try:
        if zone != "Z":
            offset = timedelta(hours=int(zone[1:3]), minutes=int(zone[4:6])) * (-1 if zone[0] == "-" else 1)
            if int(zone[1:3]) > 24 or int(zone[4:6]) > 59:
                raise ValueError("offset")
        moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        raise EvaluationError(f"type conversion error from 'string' to 'google.protobuf.Timestamp': {text!r}") from None
    return in_range(Timestamp(_ns(moment - _EPOCH - offset) + fraction))


def _ns(delta: timedelta) -> int:
    return (delta.days * 86400 + delta.seconds) * _SECOND + delta.microseconds * 1000


def format_timestamp(value: Timestamp) -> str:
    seconds, fraction = divmod(value.ns, _SECOND)
    moment = _EPOCH + timedelta(seconds=seconds)
    tail = f".{fraction:09d}".rstrip("0") if fraction else ""
    return f"{moment.year:04d}-{moment:%m-%dT%H:%M:%S}{tail}Z"


def parse_duration(text: str) -> Duration:
    """Go's time.ParseDuration: `1h30m`, `-1.5s`, `0`. Raises EvaluationError."""
    body = text[1:] if text[:1] in {"+", "-"} else text
    if body == "0":
        return Duration(0)
    total, pos = 0, 0
    while pos < len(body):
        match = _PART.match(body, pos)
        if match is None or not (match[1] or match[2]) or len(match.group()) > 100:
            break
        unit = _UNITS[match[3]]
        fraction = match[2] or ""
        total += int(match[1] or 0) * unit + (int(fraction) * unit // 10 ** len(fraction) if fraction else 0)
        pos = match.end()
    if not body or pos != len(body) or total > 2**63:
        raise EvaluationError(f"type conversion error from 'string' to 'google.protobuf.Duration': {text[:40]!r}")
    return Duration(check_int(-total if text[0] == "-" else total))


def format_duration(value: Duration) -> str:
    """Seconds: `5400s`, `1.5s`."""
    seconds, fraction = divmod(abs(value.ns), _SECOND)
    tail = f".{fraction:09d}".rstrip("0") if fraction else ""
    return f"{'-' if value.ns < 0 else ''}{seconds}{tail}s"


def zone_of(name: str) -> tzinfo:
    """A zone by name or by offset (`+01:30`, `-8:00`). Raises EvaluationError."""
    match = _OFFSET.fullmatch(name)
    if match:
        minutes = int(match[2]) * 60 + int(match[3])
        if minutes < 24 * 60:
            return timezone(timedelta(minutes=-minutes if match[1] == "-" else minutes))
    elif name in {"", "UTC"}:
        return UTC
    else:
        try:
            return zoneinfo.ZoneInfo(name)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            pass
    raise EvaluationError(f"unknown time zone {name[:64]}")


def _in_zone(value: Timestamp, zone: str) -> datetime:
    try:
        return (_EPOCH + timedelta(seconds=value.ns // _SECOND)).astimezone(zone_of(zone))
    except OverflowError:
        raise EvaluationError("timestamp overflow") from None


_GETTERS: Final[dict[str, Callable[[datetime, int], int]]] = {
    "getFullYear": lambda moment, _: moment.year,
    "getMonth": lambda moment, _: moment.month - 1,
    "getDayOfYear": lambda moment, _: moment.timetuple().tm_yday - 1,
    "getDayOfMonth": lambda moment, _: moment.day - 1,
    "getDate": lambda moment, _: moment.day,
    "getDayOfWeek": lambda moment, _: moment.isoweekday() % 7,
    "getHours": lambda moment, _: moment.hour,
    "getMinutes": lambda moment, _: moment.minute,
    "getSeconds": lambda moment, _: moment.second,
    "getMilliseconds": lambda _, ns: ns % _SECOND // 10**6,
}


def _truncate(ns: int, unit: int) -> int:
    return ns // unit if ns >= 0 else -(-ns // unit)


def _getter(get: Callable[[datetime, int], int]) -> Callable[..., int]:
    return lambda value, zone="UTC": get(_in_zone(value, zone), value.ns)


def _duration_getter(unit: int) -> Callable[[Duration], int]:
    return lambda value: _truncate(value.ns, unit)


def _declare() -> None:
    for name, get in _GETTERS.items():
        word = name[3:].lower()
        CLOCK.member(name, "timestamp", "int", f"timestamp_to_{word}", _getter(get))
        CLOCK.member(name, "timestamp, string", "int", f"timestamp_to_{word}_with_tz", _getter(get))
    for name, unit in (
        ("getHours", 3600 * _SECOND),
        ("getMinutes", 60 * _SECOND),
        ("getSeconds", _SECOND),
        ("getMilliseconds", 10**6),
    ):
        CLOCK.member(name, "duration", "int", f"duration_to_{name[3:].lower()}", _duration_getter(unit))
    add, subtract = CLOCK.function, CLOCK.function
    add("_+_", "duration, duration", "duration", "add_duration_duration", lambda a, b: Duration(check_int(a.ns + b.ns)))
    add(
        "_+_",
        "duration, timestamp",
        "timestamp",
        "add_duration_timestamp",
        lambda a, b: in_range(Timestamp(a.ns + b.ns)),
    )
    add(
        "_+_",
        "timestamp, duration",
        "timestamp",
        "add_timestamp_duration",
        lambda a, b: in_range(Timestamp(a.ns + b.ns)),
    )
    subtract(
        "_-_",
        "duration, duration",
        "duration",
        "subtract_duration_duration",
        lambda a, b: Duration(check_int(a.ns - b.ns)),
    )
    subtract(
        "_-_",
        "timestamp, duration",
        "timestamp",
        "subtract_timestamp_duration",
        lambda a, b: in_range(Timestamp(a.ns - b.ns)),
    )
    subtract(
        "_-_",
        "timestamp, timestamp",
        "duration",
        "subtract_timestamp_timestamp",
        lambda a, b: Duration(check_int(a.ns - b.ns)),
    )


_declare()
