"""The same run with atheris (libFuzzer for Python), where it can be imported: coverage of every input, in C++, instead of some traced ones.

Not a dependency: it is built for some Pythons and platforms only. `pip install atheris`, and `python -m tests.fuzz` uses it unless `--plain` is
given. libFuzzer keeps what reaches new branches and picks what is changed next; how it is changed, and what is a fault, stays ours. It never
returns, so the process ends in the input that is the last.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.run import Limits, Run
from tests.fuzz.target import Outcome, Target
from tests.fuzz.watchdog import Watchdog

GROWTH_MIB = 512.0
"""libFuzzer keeps inputs and what they reached in the same process: here only the interpreter's blocks tell of a leak."""


def available() -> bool:
    return importlib.util.find_spec("atheris") is not None


def instrumented() -> contextlib.AbstractContextManager[Any]:
    """Inside it the modules of the product are imported with counters in them."""
    import atheris

    manager: contextlib.AbstractContextManager[Any] = atheris.instrument_imports(include=["fairlead"])
    return manager


def fuzz(
    target: Target,
    *,
    seed: int,
    limits: Limits,
    corpus: Path,
    note: Callable[[bytes], None],
    done: Callable[[Outcome], None],
) -> None:
    """Calls `done` with the outcome, and ends the process with 0."""
    import atheris

    target = dataclasses.replace(target, growth_mib=GROWTH_MIB)
    run = Run(target, seed=seed, note=note, guided=False)
    for number, known in enumerate(target.seeds):
        (corpus / f"seed-{number}").write_bytes(known)
    watchdog = Watchdog()

    def mutate(data: bytes, most: int, number: int) -> bytes:
        random = Random(f"{seed} {number}")
        return target.mutate(random, data, random.choice(target.seeds))[: min(most, target.bytes_max)]

    def one(data: bytes) -> None:
        if run.goes_on(limits):
            run.take(data, watchdog)
            return
        watchdog.__exit__(None, None, None)
        done(run.outcome())
        os._exit(0)

    arguments = [
        "fuzz",
        f"-seed={seed % 2**31 or 1}",
        f"-max_len={target.bytes_max}",
        "-timeout=60",
        "-rss_limit_mb=0",
        "-verbosity=0",
        str(corpus),
    ]
    atheris.Setup(arguments, one, custom_mutator=mutate)
    watchdog.__enter__()
    atheris.Fuzz()
