"""The command line of the campaign."""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import signal
import sys
from collections.abc import AsyncIterator, Sequence

from fairlead.sandbox.release import NEWEST
from tests.chaos import virtual
from tests.chaos.campaign import Plan, Result, Worker, in_worker, shrunk
from tests.chaos.mutations import MUTATIONS
from tests.support.kubernetes import VARIABLE, of_this_run

SEEDS = 2**31


def main(arguments: Sequence[str]) -> None:
    options = _parsed(arguments)
    # What is logged must not depend on whether it is shown: errors are judged.
    logging.getLogger().setLevel(logging.INFO if options.verbose else logging.ERROR)
    shown = logging.StreamHandler(sys.stdout) if options.verbose else logging.NullHandler()
    logging.basicConfig(format="%(name)s: %(message)s", handlers=[shown])
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(SEEDS)
    seeds = list(range(seed, seed + options.runs))
    workers = max(1, min(options.workers, len(seeds)))
    began_s = virtual.machine_s()
    signal.signal(signal.SIGTERM, _ended)
    on = of_this_run()
    print(f"seeds {seeds[0]} to {seeds[-1]}, {options.steps} steps each, on Kubernetes {on.name}", flush=True)
    if workers == 1:
        failures: list[int] = []

        async def alone(worker: Worker) -> None:
            async for text, broken in _run_all(worker, seeds, options):
                print(text, flush=True)
                failures.append(broken)

        in_worker(alone)
        _summary(len(failures), sum(failures), began_s, 1)
        sys.stdout.flush()
        os._exit(1 if any(failures) else 0)  # a started cluster is many objects, which nobody needs collected
    readers = [_worker(seeds[number::workers], options) for number in range(workers)]
    failed = runs = 0
    for reader in readers:
        with os.fdopen(reader) as pipe:
            for line in pipe:
                told = json.loads(line)
                print(told["text"], flush=True)
                failed += told["failed"]
                runs += told["runs"]
    # Those of a process that ended failed too; after a run that failed the others may just not have been tried.
    missing = 0 if failed and options.until_failed else len(seeds) - runs
    _summary(runs, failed + missing, began_s, workers)
    sys.exit(1 if failed or missing else 0)


def _ended(number: int, _: object) -> None:
    """So that folders of a campaign that is cut off go with it, as after Ctrl-C."""
    sys.exit(128 + number)


def _worker(seeds: Sequence[int], options: argparse.Namespace) -> int:
    """Runs these seeds in a process of its own; returns where its results are read."""
    reader, writer = os.pipe()
    if os.fork() != 0:
        os.close(writer)
        return reader
    os.close(reader)
    with os.fdopen(writer, "w") as pipe:

        async def work(worker: Worker) -> None:
            async for text, failed in _run_all(worker, seeds, options):
                pipe.write(json.dumps({"text": text, "failed": failed, "runs": 1}) + "\n")
                pipe.flush()

        in_worker(work)
    os._exit(0)


async def _run_all(worker: Worker, seeds: Sequence[int], options: argparse.Namespace) -> AsyncIterator[tuple[str, int]]:
    only = frozenset(int(each) for each in options.only.split(",")) if options.only else None
    for seed in seeds:
        plan = Plan(seed=seed, steps=options.steps, only=only, mutation=options.mutation, log_file=options.log)
        result = await worker.forked(plan)
        text = _told(result)
        if result.broken and options.shrink:
            steps = await shrunk(worker, plan, lambda each: print(f"  {each}", flush=True))
            text += f"\n  repeat with: {_environment()}--seed {seed} --steps {options.steps} --only {','.join(map(str, sorted(steps)))}"
        yield text, int(bool(result.broken))
        if result.broken and options.until_failed:
            return


def _environment() -> str:
    return "" if of_this_run() == NEWEST else f"{VARIABLE}={of_this_run().name} "


def _told(result: Result) -> str:
    head = (
        f"seed {result.seed}: {'FAILED' if result.broken else 'ok'} {result.digest[:16]} {result.virtual_s:.0f} s of the cluster in "
        f"{result.machine_s:.1f} s, {result.jobs} jobs, {result.changes} changes, {result.messages} messages"
    )
    return "\n".join((head, *(f"  {each}" for each in result.broken)))


def _summary(runs: int, failed: int, began_s: float, workers: int) -> None:
    took_s = virtual.machine_s() - began_s
    print(f"{runs} runs, {failed} failed, {took_s:.0f} s: {runs / took_s * 3600:.0f} runs an hour on {workers} cores")


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m tests.chaos", description="faults against all of Fairlead, in virtual time"
    )
    parser.add_argument("--seed", type=int, help="of the first run; a fresh one without it")
    parser.add_argument("--steps", type=int, default=300, help="of each run (300)")
    parser.add_argument("--runs", type=int, default=1, help="this many seeds, one after the other")
    parser.add_argument("--workers", type=int, default=1, help="side by side (1)")
    parser.add_argument("--only", default="", help="numbers of the steps that are done, with commas")
    parser.add_argument("--shrink", action="store_true", help="find fewer steps with which a run still fails")
    parser.add_argument("--mutation", default="", choices=["", *sorted(MUTATIONS)], help="a defect to put in")
    parser.add_argument("--until-failed", action="store_true", help="end with the first run that fails")
    parser.add_argument(
        "--log",
        default="",
        help="a file for the log of the (last) run; the recording of one that fails is kept beside it",
    )
    parser.add_argument("--verbose", action="store_true", help="what the programs log")
    options = parser.parse_args(arguments)
    try:
        of_this_run()
    except ValueError as error:
        parser.error(f"{VARIABLE}={error}")
    if options.steps < 1 or options.runs < 1 or options.workers < 1:
        parser.error("--steps, --runs and --workers are 1 or more")
    return options
