"""Typed reading of one mapping of the input: each fault with its path and value, and which fields nothing read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any

from fairlead.api.durations import DURATION_MAX_S
from fairlead.cli.imports.model import Fault, Source, plain, shown
from fairlead.kube import quantity

DEVICES_MAX = 10**9
_GO_DURATION = re.compile(r"(?:[0-9]{1,12}(?:\.[0-9]{1,12})?(?:ns|us|µs|ms|s|m|h))+")
_GO_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ns|us|µs|ms|s|m|h)")
_SECONDS = {
    "ns": Fraction(1, 10**9),
    "us": Fraction(1, 10**6),
    "µs": Fraction(1, 10**6),
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "m": Fraction(60),
    "h": Fraction(3600),
}


class Fields:
    """A mapping at `path` of the source. What cannot be read is appended to `faults`, and counts as absent, as null does."""

    def __init__(self, value: Any, path: str, source: Source, faults: list[Fault]) -> None:
        self.path = path
        self.source = source
        self.faults = faults
        self._read: set[str] = set()
        if value is not None and not isinstance(value, dict):
            self.fault("", f"{shown(value)} is no mapping: write fields with values")
        self._value: dict[Any, Any] = value if isinstance(value, dict) else {}

    def __bool__(self) -> bool:
        return bool(self._value)

    def at(self, key: str) -> str:
        if not re.fullmatch(r"\w+", key, re.ASCII):
            return f"{self.path}[{plain(key)}]"
        return f"{self.path}.{key}" if self.path else key

    def fault(self, key: str, text: str) -> None:
        self.faults.append(Fault(self.source, self.at(key) if key else self.path, text))

    def raw(self, key: str) -> Any:
        self._read.add(key)
        return self._value.get(key)

    def ignore(self, *keys: str) -> None:
        self._read.update(keys)

    def unread(self) -> list[tuple[str, Any]]:
        """Path and value of each field that was not asked for, and says something."""
        rest = sorted((str(key), key) for key in self._value if key not in self._read)
        return [(self.at(text), self._value[key]) for text, key in rest if self._value[key] not in (None, "", [], {})]

    def names(self) -> list[str]:
        for key in self._value:
            if not isinstance(key, str):
                self.fault("", f"the key {shown(key)} is no text: write it in quotes")
        return sorted(key for key in self._value if isinstance(key, str))

    def text(self, key: str) -> str | None:
        value = self.raw(key)
        if value is None or (isinstance(value, str) and value):
            return value
        if value != "":
            self.fault(key, f"{shown(value)} is no text: write it in quotes")
        return None

    def needed(self, key: str) -> str | None:
        found = self.text(key)
        if found is None and self._value.get(key) in (None, ""):
            self.fault(key, "is required: write it")
        return found

    def choice(self, key: str, allowed: Iterable[str], default: str) -> str:
        found = self.text(key)
        if found is None or found in allowed:
            return found or default
        self.fault(key, f"{shown(found)} is none of {', '.join(allowed)}: write one of these")
        return default

    def flag(self, key: str) -> bool | None:
        value = self.raw(key)
        if value is None or isinstance(value, bool):
            return value
        self.fault(key, f"{shown(value)} is neither true nor false: write one of them, without quotes")
        return None

    def whole(self, key: str) -> int | None:
        value = self.raw(key)
        if value is None or (isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63):
            return value
        self.fault(key, f"{shown(value)} is no whole number: write one, without quotes")
        return None

    def amount(self, key: str, *, most: int | None = DEVICES_MAX, unlimited: bool = False) -> Fraction | None:
        """A quantity, 0 or more; with `unlimited` also -1, as it is. None: absent, or at fault."""
        value = self.raw(key)
        if value is None:
            return None
        found = _fraction(value)
        if found is None:
            self.fault(
                key, f"{shown(value)} is no quantity: write a number with an optional suffix, such as 8 or '500m'"
            )
        elif found < 0 and not (unlimited and found == -1):
            self.fault(key, f"{shown(value)} is negative: write 0 or more{', or -1 for no bound' if unlimited else ''}")
        elif most is not None and found > most:
            self.fault(key, f"{shown(value)} is more than {most}: write what the cluster has at most")
        elif most is not None and found.denominator != 1 and 10**9 % found.denominator:
            self.fault(key, f"{shown(value)} has more than nine digits after the point: write fewer")
        else:
            return found
        return None

    def duration(self, key: str) -> str | None:
        """A duration of Go (`1h30m0s`) as we write it, in whole milliseconds; None: absent, none at all, or at fault."""
        text = self.text(key)
        if text is None:
            return None
        if text == "0":
            return None
        if len(text) > 64 or not _GO_DURATION.fullmatch(text):
            self.fault(key, f"{shown(text)} is no duration: write a number with a unit, such as 90s or 1h30m")
            return None
        seconds = sum((Fraction(number) * _SECONDS[unit] for number, unit in _GO_PART.findall(text)), Fraction(0))
        return duration_text(min(seconds, Fraction(int(DURATION_MAX_S))))

    def mapping(self, key: str) -> Fields:
        """Empty where it is absent."""
        return Fields(self.raw(key), self.at(key), self.source, self.faults)

    def has(self, key: str) -> bool:
        return self._value.get(key) is not None

    def mappings(self, key: str) -> list[Fields]:
        return [
            Fields(each if each is not None else {}, f"{self.at(key)}[{index}]", self.source, self.faults)
            for index, each in self._list(key)
        ]

    def texts(self, key: str) -> list[str]:
        found: list[str] = []
        for index, each in self._list(key):
            if isinstance(each, str):
                found.append(each)
            else:
                self.fault(f"{key}", f"[{index}]: {shown(each)} is no text: write it in quotes")
        return found

    def strings(self, key: str) -> dict[str, str]:
        """The entries in order of their keys."""
        fields = self.mapping(key)
        found = {name: fields.raw(name) for name in fields.names()}
        for name, value in found.items():
            if not isinstance(value, str):
                fields.fault(name, f"{shown(value)} is no text: write it in quotes")
        return {name: value for name, value in found.items() if isinstance(value, str)}

    def _list(self, key: str) -> Iterator[tuple[int, Any]]:
        value = self.raw(key)
        if value is not None and not isinstance(value, list):
            self.fault(key, f"{shown(value)} is no list: write entries that begin with a dash")
            return
        yield from enumerate(value or ())


def duration_text(seconds: Fraction) -> str | None:
    """`1h30m`; None for no time at all."""
    rest = int(seconds * 1000)
    parts = []
    for unit, size in (("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, rest = divmod(rest, size)
        parts += [f"{count}{unit}"] if count else []
    return "".join(parts) or None


def _fraction(value: Any) -> Fraction | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return Fraction(value) if abs(value) < 2**63 else None
    try:
        if isinstance(value, float):
            return Fraction(str(value))
        if isinstance(value, str):
            read = quantity.parse(value)
            return Fraction(read.digits) * Fraction(10) ** read.scale if abs(read.scale) <= 64 else None
    except (ValueError, quantity.QuantityError):
        pass
    return None
