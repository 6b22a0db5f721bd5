"""A run of one target: inputs in a series that the seed determines, each judged, and the memory at the end of all.

Keeps: the same target, seed and number of inputs give the same inputs (a limit of time changes only how many there are); a fault is
reported once for each place in the code; the known inputs are bounded in number and bytes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.fuzz import memory
from tests.fuzz.guide import Guide
from tests.fuzz.target import Finding, Outcome, Target
from tests.fuzz.watchdog import HangError, Watchdog

KNOWN_MAX = 400
FINDINGS_MAX = 5
SETTLED = 0.6
"""Of the run: caches, lazy imports and known inputs are there by then, and the allocators have what they need."""
SHRINK_TRIES = 400
SHRINK_S = 5.0
BLOCKS_AT_LEAST, BLOCKS_AN_INPUT = 5_000, 0.2
"""Of what the interpreter allocates: what may be kept of inputs that reach new lines, and once and for all."""
NOT_JUDGED = 500
"""Inputs below which memory is not judged."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """A run ends with whichever comes first."""

    inputs: int | None = None
    seconds: float | None = None

    @property
    def judge_memory(self) -> bool:
        """Else no object of the process is counted for it."""
        return self.inputs is None or self.inputs > NOT_JUDGED

    def part(self, done: int, elapsed_s: float) -> float:
        """How much of the run is over; 1.0 at its end."""
        by_count = done / self.inputs if self.inputs else 0.0
        by_time = elapsed_s / self.seconds if self.seconds else 0.0
        return max(by_count, by_time)


class Run:
    """`note` is given each input before it runs, so that what kills the process is known."""

    def __init__(
        self, target: Target, *, seed: int, note: Callable[[bytes], None] = lambda _: None, guided: bool = True
    ) -> None:
        """guided: whether lines are traced; else another engine says which inputs are worth keeping."""
        self._target, self._seed, self._note = target, seed, note
        self._random = Random(f"{seed} {target.name}")
        self._known = list(target.seeds)
        self._guide = Guide(target.traced if guided else ())
        self._findings: dict[str, Finding] = {}
        self._slowest_s = 0.0
        self._began = time.monotonic()
        self._number = 0
        self._settled: tuple[int, float, int] | None = None
        """How many inputs there were, MiB and blocks, when the memory was looked at first."""

    def run(self, limits: Limits) -> Outcome:
        with Watchdog() as watchdog:
            while self.goes_on(limits):
                self.take(self._input(self._number), watchdog)
        return self.outcome()

    def goes_on(self, limits: Limits) -> bool:
        """To be asked before each input: whether the run is not over."""
        part = limits.part(self._number, time.monotonic() - self._began)
        if limits.judge_memory and self._settled is None and part >= SETTLED:
            memory.collect()
            self._settled = (self._number, memory.used_mib(), memory.blocks())
        return part < 1.0 and len(self._findings) < FINDINGS_MAX

    def outcome(self) -> Outcome:
        elapsed_s = time.monotonic() - self._began
        growth, more, later = 0.0, 0, 0
        if self._settled is not None:
            memory.collect()
            since, mib, blocks = self._settled
            growth, more, later = memory.used_mib() - mib, memory.blocks() - blocks, self._number - since
        if later >= NOT_JUDGED and (
            growth > self._target.growth_mib or more > BLOCKS_AT_LEAST + later * BLOCKS_AN_INPUT
        ):
            allowed = f"{self._target.growth_mib:g} MiB and {BLOCKS_AN_INPUT:g} blocks an input are allowed"
            text = f"{growth:.1f} MiB and {more} blocks more after {later} inputs; {allowed}"
            self._findings["growth"] = Finding(target=self._target.name, kind="growth", text=text)
        return Outcome(
            target=self._target.name,
            seed=self._seed,
            inputs=self._number,
            elapsed_s=elapsed_s,
            slowest_ms=self._slowest_s * 1000,
            growth_mib=max(0.0, growth),
            lines=len(self._guide),
            findings=tuple(self._findings.values()),
        )

    def take(self, data: bytes, watchdog: Watchdog) -> None:
        """One input, judged."""
        number, self._number = self._number, self._number + 1
        self._note(data)
        if self._guide.looks_at(number):
            with self._guide.tracing() as new_lines:
                fault, _ = judged(self._target, data, watchdog)
            if new_lines() and fault is None:
                self._keep(data)
        else:
            fault, took_s = judged(self._target, data, watchdog)
            self._slowest_s = max(self._slowest_s, took_s)
        if fault is not None and (place := _place(fault)) not in self._findings:
            self._findings[place] = self._finding(fault, data, watchdog)

    def _input(self, number: int) -> bytes:
        if number < len(self._target.seeds):
            return self._target.seeds[number]
        known = self._known
        recent = known[-16:] if self._random.randrange(3) == 0 else known
        made = self._target.mutate(self._random, self._random.choice(recent), self._random.choice(known))
        return made[: self._target.bytes_max]

    def _keep(self, data: bytes) -> None:
        if len(self._known) < KNOWN_MAX:
            self._known.append(data)
        else:  # the seeds stay
            at = (
                self._random.randrange(len(self._target.seeds), KNOWN_MAX)
                if len(self._target.seeds) < KNOWN_MAX
                else -1
            )
            self._known[at] = data

    def _finding(self, fault: BaseException, data: bytes, watchdog: Watchdog) -> Finding:
        hang = isinstance(fault, HangError)
        shortest = data if hang else self._shrunk(data, _place(fault), watchdog)
        return Finding(
            target=self._target.name,
            kind="hang" if hang else "exception",
            text=str(fault) if hang else f"{type(fault).__name__}: {str(fault)[:300]}",
            trace="".join(traceback.format_exception(fault, limit=-12)),
            input=shortest,
        )

    def _shrunk(self, data: bytes, place: str, watchdog: Watchdog) -> bytes:
        """A shorter input with a fault in the same place: pieces are left out, smaller and smaller ones."""
        until = time.monotonic() + SHRINK_S
        size, tries = max(1, len(data) // 2), 0
        while size >= 1 and tries < SHRINK_TRIES and time.monotonic() < until:
            at, before = 0, len(data)
            while at < len(data) and tries < SHRINK_TRIES and time.monotonic() < until:
                tries += 1
                less = data[:at] + data[at + size :]
                fault, _ = judged(self._target, less, watchdog)
                if fault is not None and _place(fault) == place:
                    data = less
                else:
                    at += size
            size = size // 2 if len(data) == before or size > len(data) else size
        return data


def judged(target: Target, data: bytes, watchdog: Watchdog) -> tuple[BaseException | None, float]:
    """What is wrong with how the target takes the input, and its seconds of CPU."""
    fault: BaseException | None = None
    took_s = 0.0
    try:
        watchdog.begin()
        try:
            target.run(data)
        except target.allowed:
            pass
        took_s = watchdog.end()
    except (KeyboardInterrupt, pytest.fail.Exception):  # the latter: the timeout of the test that runs this
        raise
    except BaseException as error:
        fault = error
        with contextlib.suppress(HangError):
            took_s = watchdog.end()
    return fault, took_s


def _place(fault: BaseException) -> str:
    """Where in the product it was raised; elsewhere where it has no part in it."""
    frames = traceback.extract_tb(fault.__traceback__)
    ours = [frame for frame in frames if "/fairlead/" in frame.filename] or frames
    where = f"{ours[-1].filename}:{ours[-1].lineno}" if ours else ""
    return f"{type(fault).__name__} {'' if isinstance(fault, RecursionError) else where}"


def saved(finding: Finding, directory: Path) -> Path:
    """The file that the finding's input was written to."""
    directory.mkdir(exist_ok=True)
    path = directory / f"{finding.target}-{hashlib.sha256(finding.input).hexdigest()[:10]}.bin"
    path.write_bytes(finding.input)
    return path


def play_command(finding: Finding, path: Path) -> str:
    return f"{Path(sys.executable)} -m tests.fuzz --target {finding.target} --play {path}"
