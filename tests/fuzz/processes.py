"""Runs targets in processes of their own, some at once, and reports also those that die or never answer.

Each process writes the input that it is about to run into a file that is mapped into memory: it outlives whatever happens to it.
"""

from __future__ import annotations

import dataclasses
import mmap
import os
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from tests.fuzz.run import Limits
from tests.fuzz.target import Finding, Outcome

_INPUT_MAX = 8 * 2**20
_LATE_S = 90.0
"""Beyond a run's own time, until its process is taken to hang: importing, measuring and shrinking take some, too."""


class LastInput:
    """The input that a process works on, in a file."""

    def __init__(self, path: Path) -> None:
        with path.open("w+b") as file:
            file.truncate(_INPUT_MAX)
            self._map = mmap.mmap(file.fileno(), _INPUT_MAX)

    def note(self, data: bytes) -> None:
        data = data[: _INPUT_MAX - 4]
        self._map[: 4 + len(data)] = struct.pack("<I", len(data)) + data

    @staticmethod
    def read(path: Path) -> bytes:
        content = path.read_bytes() if path.exists() else b""
        return content[4 : 4 + struct.unpack_from("<I", content)[0]] if len(content) >= 4 else b""


@dataclasses.dataclass(kw_only=True)
class _Running:
    target: str
    process: subprocess.Popen[bytes]
    until: float
    last_input: Path
    outcome: Path
    errors: Path


def run_all(
    targets: Sequence[str], *, seed: int, limits: Limits, workers: int, guided: bool = False
) -> Iterator[Outcome]:
    """The outcome of each target as it ends, at most `workers` at once. guided: by atheris, which has to be installed."""
    waiting = list(targets)
    running: list[_Running] = []
    with tempfile.TemporaryDirectory(prefix="fairlead-fuzz-") as scratch:
        try:
            while waiting or running:
                while waiting and len(running) < workers:
                    running.append(_start(waiting.pop(0), seed, limits, Path(scratch), guided=guided))
                time.sleep(0.05)
                for one in [one for one in running if one.process.poll() is not None or time.monotonic() > one.until]:
                    running.remove(one)
                    yield _outcome(one, seed)
        finally:
            for one in running:
                one.process.kill()
                one.process.wait()


def _start(target: str, seed: int, limits: Limits, scratch: Path, *, guided: bool) -> _Running:
    last_input, outcome, errors = (scratch / f"{target}.{kind}" for kind in ("input", "json", "errors"))
    command = [sys.executable, "-m", "tests.fuzz", "--target", target, "--seed", str(seed), "--one", str(outcome)]
    command += ["--guided"] if guided else []
    command += [] if limits.inputs is None else ["--inputs", str(limits.inputs)]
    command += [] if limits.seconds is None else ["--seconds", str(limits.seconds)]
    seconds = limits.seconds if limits.seconds is not None else 3600.0
    return _Running(
        target=target,
        process=_process(command, errors, os.environ | {"FUZZ_INPUT": str(last_input), "TMPDIR": str(scratch)}),
        until=time.monotonic() + seconds * 1.5 + _LATE_S,
        last_input=last_input,
        outcome=outcome,
        errors=errors,
    )


def _process(command: list[str], errors: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    with errors.open("wb") as file:
        return subprocess.Popen(command, stderr=file, env=environment)


def _outcome(one: _Running, seed: int) -> Outcome:
    code = one.process.poll()
    if code is None:
        one.process.kill()
        one.process.wait()
    if code == 0:
        return msgspec.json.decode(one.outcome.read_bytes(), type=Outcome)
    kind, text = ("hang", "never came back") if code is None else ("crash", f"ended with status {code}")
    said = one.errors.read_text(errors="replace")[-4_000:]
    found = LastInput.read(one.last_input)
    fault = Finding(target=one.target, kind=kind, text=f"the process {text}", trace=said, input=found)
    return Outcome(
        target=one.target,
        seed=seed,
        inputs=0,
        elapsed_s=0.0,
        slowest_ms=0.0,
        growth_mib=0.0,
        lines=0,
        findings=(fault,),
    )
