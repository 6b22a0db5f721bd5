"""What a simulated container does: how long it runs, with which exit code it ends, and how it stops at SIGTERM.

Nothing is executed. A container runs as long as the `sleep N` in its command or args (seconds, or with s, m, h; several add
up); `exit N` after it is the exit code; a command that is just `false` fails at once. Without a sleep and without an exit
it runs until it is deleted.

At SIGTERM it ends at once with exit code 143, unless a shell's trap says otherwise: `trap '' TERM` ignores the signal;
`trap 'sleep 5; exit 3' TERM` ends after what the trap sleeps, with its exit code (143 without one). A preStop hook takes what
it sleeps, before the signal. A real `sleep` that is process 1 of its container has no handler, and so ignores SIGTERM; here
only a trap says so, since most programs that train or serve end at the signal.

`env | grep ^PREFIX >> /dev/termination-log` leaves what its CDI devices set of these variables as its termination message.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

SIGTERM_EXIT: Final = 143
_SLEEP: Final = re.compile(r"(?:^|[\s;&|(/])sleep\s+(infinity|inf|[0-9]+(?:\.[0-9]+)?)([smhd]?)(?=$|[\s;&|)])")
_EXIT: Final = re.compile(r"(?:^|[\s;&|(])exit\s+([0-9]+)")
_TRAP: Final = re.compile(r"""(?:^|[\s;&|(])trap\s+(?:'([^']*)'|"([^"]*)"|(\S+))((?:\s+[A-Z0-9]+)+)""")
_REPORT: Final = re.compile(r"""(?:^|[\s;&|(])env\s*\|\s*grep\s+['"]?\^(\w+)['"]?\s*>>?\s*/dev/termination-log""")
_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True)
class Program:
    """`run_s` None: until it is deleted. `stop_s` from SIGTERM to its end; None: it ignores the signal. `pre_stop_s`: its hook."""

    run_s: float | None
    exit_code: int = 0
    stop_s: float | None = 0.0
    stop_exit_code: int = SIGTERM_EXIT
    pre_stop_s: float = 0.0
    reports: str = ""  # how the variables begin that are its termination message
    command: tuple[str, ...] = field(default=(), compare=False)  # for a runtime that executes it


def program_of(container: Mapping[str, Any]) -> Program:
    words = [str(each) for each in (*(container.get("command") or ()), *(container.get("args") or ()))]
    text = " ".join(words)
    made = _running(words, _TRAP.sub(" ", text))
    for quoted, double, bare, signals in _TRAP.findall(text):
        if {"TERM", "SIGTERM", "15"} & set(signals.split()):
            made = _trapped(made, quoted or double or ("" if bare in {"''", '""'} else bare))
    report = _REPORT.search(text)
    return replace(made, pre_stop_s=_pre_stop_s(container), reports=report[1] if report else "", command=tuple(words))


def _running(words: list[str], text: str) -> Program:
    if words and words[0].rpartition("/")[2] == "false":
        return Program(0.0, 1)
    if words and words[0].rpartition("/")[2] == "true":
        return Program(0.0)
    exits = _EXIT.search(text)
    exit_code = int(exits[1]) % 256 if exits else 0
    sleeps = _SLEEP.findall(text)
    if not sleeps:
        return Program(0.0 if exits else None, exit_code)
    return Program(_slept_s(text), 0 if _slept_s(text) is None else exit_code)


def _trapped(program: Program, handler: str) -> Program:
    if handler == "-":
        return replace(program, stop_s=0.0, stop_exit_code=SIGTERM_EXIT)
    if not handler.strip():
        return replace(program, stop_s=None)
    exits = _EXIT.search(handler)
    return replace(program, stop_s=_slept_s(handler), stop_exit_code=int(exits[1]) % 256 if exits else SIGTERM_EXIT)


def _pre_stop_s(container: Mapping[str, Any]) -> float:
    """Seconds that the preStop hook takes; infinite where it never ends."""
    hook = (container.get("lifecycle") or {}).get("preStop") or {}
    if hook.get("sleep"):
        return float(hook["sleep"].get("seconds") or 0)
    slept_s = _slept_s(" ".join(str(each) for each in (hook.get("exec") or {}).get("command") or ()))
    return float("inf") if slept_s is None else slept_s


def _slept_s(text: str) -> float | None:
    """All sleeps of a text together; None where one never ends."""
    sleeps = _SLEEP.findall(text)
    if any(amount.startswith("inf") for amount, _ in sleeps):
        return None
    return sum((float(amount) * _UNITS[unit] for amount, unit in sleeps), 0.0)
