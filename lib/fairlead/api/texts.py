"""Texts of others where people read them: without characters that steer a terminal, reorder what stands beside them, or are not seen.

One alphabet for terminals, statuses, events, logs, pages and warnings: C0 but line feeds and tabs, DEL, C1, marks and overrides of direction, spaces of
no width, halves of characters. Each becomes U+FFFD, so that columns stay as wide as they were. Whoever writes such a text writes it by one of these;
`tests/test_contracts.py` finds a print beside them.
"""

from __future__ import annotations

import re
from typing import Any, Final

MARK: Final = "\N{REPLACEMENT CHARACTER}"
HIDDEN: Final = re.compile(
    "\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)
_BREAKS: Final = re.compile("[\r\n\t]+")
_NUMBER: Final = re.compile(r"[0-9]+|[^0-9]+")


def plain(text: str) -> str:
    """The text without characters that steer a terminal, with its line feeds and tabs."""
    return text if text.isprintable() else HIDDEN.sub(MARK, text)


def line(text: str) -> str:
    """The text in one line, without characters that steer a terminal."""
    return text if text.isprintable() else HIDDEN.sub(MARK, _BREAKS.sub(" ", text))


def counted(number: int, thing: str) -> str:
    """`1 waiting pod`, `3 waiting pods`."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def natural(text: str) -> list[tuple[int, str]]:
    """A key by which `gpu-2` comes before `gpu-10`."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in _NUMBER.findall(text)]


def tree(value: Any) -> Any:
    """JSON in which every text, keys too, is `plain`. The same object where nothing changes."""
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, dict):
        made = {plain(key): tree(each) for key, each in value.items()}
        return made if any(made.get(key) is not each for key, each in value.items()) else value
    if isinstance(value, list | tuple):
        entries = [tree(each) for each in value]
        return entries if any(one is not other for one, other in zip(entries, value, strict=True)) else value
    return value
