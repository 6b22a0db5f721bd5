"""Semantic versions as Kubernetes' CEL and DeviceAttribute define them.

Versions are ordered by precedence: a pre-release comes before its release, and build metadata does not count, in `==`
either (`1.0.0+a == 1.0.0+b`). Two readings: `parse` is strict as blang/semver v4 is, `normalize` takes what Kubernetes'
tolerant form takes (`v1.0` is 1.0.0). Immutable.

Source: github.com/blang/semver/v4, k8s.io/apiserver/pkg/cel/library/semverlib.go.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache, total_ordering
from typing import Final

_PART: Final = re.compile(r"[0-9A-Za-z-]+", re.ASCII)
_NUMBER: Final = re.compile(r"[0-9]+", re.ASCII)
_UINT64_MAX: Final = 2**64 - 1


class VersionError(ValueError):
    """The text is no semantic version."""


@total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class Version:
    major: int
    minor: int
    patch: int
    pre: tuple[int | str, ...] = ()
    build: tuple[str, ...] = ()

    @staticmethod
    def parse(text: str) -> Version:
        """The version that the text means. Raises VersionError."""
        return parse(text)

    def compare(self, other: Version) -> int:
        """-1, 0 or 1, by precedence."""
        left, right = self._key(), other._key()
        return (left > right) - (left < right)

    def _key(self) -> tuple[object, ...]:
        # No pre-release sorts after any; numbers before words; fewer fields before more.
        fields = tuple((0, part, "") if isinstance(part, int) else (1, 0, part) for part in self.pre)
        return (self.major, self.minor, self.patch, not self.pre, fields)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self._key() == other._key()

    def __lt__(self, other: Version) -> bool:
        return self.compare(other) < 0

    def __hash__(self) -> int:
        return hash(self._key())

    def __str__(self) -> str:
        text = f"{self.major}.{self.minor}.{self.patch}"
        if self.pre:
            text += "-" + ".".join(map(str, self.pre))
        if self.build:
            text += "+" + ".".join(self.build)
        return text


def _number(name: str, text: str, whole: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise VersionError(f"version {whole!r}: {name} {text!r} is not a number")
    if len(text) > 1 and text[0] == "0":
        raise VersionError(f"version {whole!r}: {name} {text!r} must not have a leading zero")
    if len(text) > 20 or int(text) > _UINT64_MAX:
        raise VersionError(f"version {whole!r}: {name} {text!r} is too large")
    return int(text)


TEXT_MAX: Final = 1024
"""Characters of a version; the API stores at most 64."""
_REMEMBERED_MAX: Final = 128


def parse(text: str) -> Version:
    """The version, read strictly: exactly major.minor.patch without leading zeros. Raises VersionError."""
    return _remembered(text) if len(text) <= _REMEMBERED_MAX else _parse(text)


def _parse(text: str) -> Version:
    if len(text) > TEXT_MAX:
        raise VersionError(f"version {text[:64]!r}…: has {len(text)} characters, at most {TEXT_MAX} are understood")
    parts = text.split(".", 2)
    if len(parts) != 3:
        raise VersionError(f"version {text!r}: must be major.minor.patch")
    major = _number("major", parts[0], text)
    minor = _number("minor", parts[1], text)
    rest, plus, build_text = parts[2].partition("+")
    patch_text, dash, pre_text = rest.partition("-")
    patch = _number("patch", patch_text, text)
    pre: list[int | str] = []
    for part in pre_text.split(".") if dash else ():
        if not _PART.fullmatch(part):
            raise VersionError(f"version {text!r}: pre-release {part!r} must be letters, digits or hyphens")
        if _NUMBER.fullmatch(part):
            pre.append(_number("pre-release", part, text))
        else:
            pre.append(part)
    build = build_text.split(".") if plus else []
    for part in build:
        if not _PART.fullmatch(part):
            raise VersionError(f"version {text!r}: build metadata {part!r} must be letters, digits or hyphens")
    return Version(major, minor, patch, tuple(pre), tuple(build))


_remembered = lru_cache(maxsize=4096)(_parse)


def normalize(text: str) -> Version:
    """The version, read tolerantly: drops a `v`, fills in missing parts, strips leading zeros. Raises VersionError."""
    parts = text.removeprefix("v").split(".", 2)
    for index, part in enumerate(parts):
        if len(part) > 1:
            stripped = part.lstrip("0")
            parts[index] = stripped if stripped and stripped[0] in "0123456789" else "0" + stripped
    if len(parts) < 3:
        if "+" in parts[-1] or "-" in parts[-1]:
            raise VersionError(f"version {text!r}: a short version cannot have a pre-release or build metadata")
        parts += ["0"] * (3 - len(parts))
    return parse(".".join(parts))
