"""What a simulated container does: how long it runs, and with which exit code it ends.

Nothing is executed. A container runs as long as the `sleep N` in its command or args (seconds, or with s, m, h; several add
up); `exit N` after it is the exit code; a command that is just `false` fails at once. Without a sleep and without an exit
it runs until it is deleted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

_SLEEP: Final = re.compile(r"(?:^|[\s;&|(/])sleep\s+(infinity|inf|[0-9]+(?:\.[0-9]+)?)([smhd]?)(?=$|[\s;&|)])")
_EXIT: Final = re.compile(r"(?:^|[\s;&|(])exit\s+([0-9]+)")
_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True)
class Program:
    """`run_s` None: until it is deleted."""

    run_s: float | None
    exit_code: int = 0


def program_of(container: Mapping[str, Any]) -> Program:
    words = [str(each) for each in (*(container.get("command") or ()), *(container.get("args") or ()))]
    text = " ".join(words)
    if words and words[0].rpartition("/")[2] == "false":
        return Program(0.0, 1)
    if words and words[0].rpartition("/")[2] == "true":
        return Program(0.0)
    exits = _EXIT.search(text)
    exit_code = int(exits[1]) % 256 if exits else 0
    sleeps = _SLEEP.findall(text)
    if not sleeps:
        return Program(0.0 if exits else None, exit_code)
    if any(amount.startswith("inf") for amount, _ in sleeps):
        return Program(None)
    return Program(sum(float(amount) * _UNITS[unit] for amount, unit in sleeps), exit_code)
