"""`python -m tests.fuzz`: fuzz every target for some minutes, one for some inputs, or play one input again.

Prints a line per target and the seed; exits with 1 where there was a fault, whose input is kept in a file of .fuzz/.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import secrets
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from tests.fuzz import guided
from tests.fuzz.processes import LastInput, run_all
from tests.fuzz.report import Report
from tests.fuzz.run import Limits, Run, judged
from tests.fuzz.target import Outcome
from tests.fuzz.targets import TARGETS, made
from tests.fuzz.watchdog import Watchdog


def main(arguments: list[str] | None = None) -> int:
    given = _parsed(arguments)
    if given.play is not None:
        return _play(given.target[0], given.play)
    if given.one is not None:
        logging.disable(logging.CRITICAL)  # what parsers say of bad inputs, a million times
        return _one(given)
    seed = secrets.randbelow(2**32) if given.seed is None else given.seed
    chosen = given.target or list(TARGETS)
    seconds = None
    if given.inputs is None or given.minutes is not None:
        seconds = (given.minutes or 1.0) * 60 * given.workers / len(chosen)
    report = Report(seed)
    for outcome in run_all(
        chosen,
        seed=seed,
        limits=Limits(inputs=given.inputs, seconds=seconds),
        workers=given.workers,
        guided=guided.available() and not given.plain,
    ):
        report.add(outcome)
    return report.end()


def _one(given: argparse.Namespace) -> int:
    """In a process of its own: the outcome goes to a file."""

    def keep(outcome: Outcome) -> None:
        given.one.write_bytes(msgspec.json.encode(outcome))

    with tempfile.TemporaryDirectory(prefix="fairlead-fuzz-") as scratch:
        with guided.instrumented() if given.guided else contextlib.nullcontext():
            target = made(given.target[0], Path(scratch))
        note = _noting()
        limits = Limits(inputs=given.inputs, seconds=given.seconds)
        if given.guided:
            corpus = Path(scratch) / "corpus"
            corpus.mkdir()
            guided.fuzz(target, seed=given.seed or 0, limits=limits, corpus=corpus, note=note, done=keep)
        outcome = Run(target, seed=given.seed or 0, note=note).run(limits)
        target.close()
    keep(outcome)
    return 0


def _noting() -> Callable[[bytes], None]:
    """What takes each input before it runs. FUZZ_DIE_AT, of the tests: the number of the input at which the process dies."""
    last = LastInput(Path(os.environ["FUZZ_INPUT"])) if "FUZZ_INPUT" in os.environ else None
    left = [int(os.environ.get("FUZZ_DIE_AT", "0"))]

    def note(data: bytes) -> None:
        if last is not None:
            last.note(data)
        left[0] -= 1
        if left[0] == 0:
            os.abort()

    return note


def _play(name: str, path: Path) -> int:
    with tempfile.TemporaryDirectory(prefix="fairlead-fuzz-") as scratch, Watchdog() as watchdog:
        target = made(name, Path(scratch))
        fault, took_s = judged(target, path.read_bytes(), watchdog)
        target.close()
        if fault is None:
            print(f"{name}: {path} is taken as it should be, in {took_s * 1000:.1f} ms")
            return 0
        raise fault


def _parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Fuzz the parsers of others' bytes.")
    parser.add_argument("--minutes", type=float, help="of all targets together (default: 1)")
    parser.add_argument("--inputs", type=int, help="of each target; without --minutes there is no other limit")
    parser.add_argument("--target", action="append", choices=list(TARGETS), help="may be given more than once")
    parser.add_argument("--seed", type=int, help="of a run that is to be repeated (default: a fresh one, printed)")
    parser.add_argument("--workers", type=int, default=2, help="targets at once (default: 2)")
    parser.add_argument("--plain", action="store_true", help="without atheris, also where it is installed")
    parser.add_argument("--guided", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--play", type=Path, metavar="FILE", help="run one target on the input in this file")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.play is not None and len(given.target or ()) != 1:
        parser.error("--play needs the one --target that the input is for")
    return given


if __name__ == "__main__":
    sys.exit(main())
