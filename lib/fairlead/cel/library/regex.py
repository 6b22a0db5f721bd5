"""Regular expressions: RE2, so that every match takes linear time, as in cel-go.

Results of `matches` are cached for short texts: a cluster has few product names and few patterns, and a call into re2 costs
20 times a lookup. Source: k8s.io/apiserver/pkg/cel/library/regex.go for find and findAll.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import re2

from fairlead.cel.declare import Library
from fairlead.cel.errors import EvaluationError

REGEX: Final = Library("kubernetes.regex")
_CACHED_TEXT_MAX: Final = 128
PATTERN_BYTES_MAX: Final = 1024
CLASSES_MAX: Final = 32
"""Unicode classes (\\pL) of a pattern; without regard to case each takes half a millisecond."""
MEMORY_MAX: Final = 32 * 1024
"""Bytes of a compiled pattern with what its searches remember; RE2's own default, 8 MiB, is for a few patterns, not for thousands."""


def _options() -> Any:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MEMORY_MAX
    return options


@lru_cache(maxsize=64)
def compiled(pattern: str) -> Any:
    """The RE2 program. Raises EvaluationError."""
    if len(pattern) > PATTERN_BYTES_MAX or pattern.count("\\p") + pattern.count("\\P") > CLASSES_MAX:
        raise EvaluationError(
            f"error parsing regexp: pattern of {len(pattern)} characters is too large; at most {PATTERN_BYTES_MAX}, "
            f"with {CLASSES_MAX} Unicode classes, are allowed"
        )
    try:
        return re2.compile(pattern, options=_options())
    except (re2.error, UnicodeEncodeError) as error:
        raise EvaluationError(f"error parsing regexp: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    reason = error.args[0] if error.args else "invalid"
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)


def _search(text: str, pattern: str) -> bool:
    try:
        return compiled(pattern).search(text) is not None
    except UnicodeEncodeError:
        raise EvaluationError("string holds a lone surrogate") from None


_cached_search = lru_cache(maxsize=4096)(_search)


def matches(text: str, pattern: str) -> bool:
    """Whether the pattern occurs anywhere in the text."""
    short = len(text) <= _CACHED_TEXT_MAX and len(pattern) <= _CACHED_TEXT_MAX
    return _cached_search(text, pattern) if short else _search(text, pattern)


def matching_cost(text: str, pattern: str, *_: object) -> int:
    """Steps, of which compiling the pattern is the larger part."""
    return 1 + len(text) // 32 + len(pattern) // 4 + 100 * (pattern.count("\\p") + pattern.count("\\P"))


def _find(text: str, pattern: str) -> str:
    found = compiled(pattern).search(text)
    return str(found.group()) if found else ""


def _find_all(text: str, pattern: str, count: int = -1) -> list[object]:
    if count == 0:
        return []
    found: list[object] = []
    for match in compiled(pattern).finditer(text):
        if 0 <= count == len(found):
            break
        found.append(match.group())
    return found


REGEX.member("find", "string, string", "string", "string_find_string", _find, charge=matching_cost)
REGEX.member("findAll", "string, string", "list(string)", "string_find_all_string", _find_all, charge=matching_cost)
REGEX.member(
    "findAll", "string, string, int", "list(string)", "string_find_all_string_int", _find_all, charge=matching_cost
)
