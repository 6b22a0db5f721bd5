"""`python -m benchmarks [NAME…] [--json FILE] [-- OPTIONS]`: run benchmarks, show a table, write the figures.

Exists so that CI, the README and a person read one list of `{"figure", "value", "unit", "bar"}`. A benchmark is a module or
package in this one with `figures()`; each runs in a process of its own, for one's heap and caches are another's noise. OPTIONS go to
the one benchmark that is named, if it takes any (`figures(*words)`).
Beside its figures each shows how long a fixed loop takes in the same run, and bars are judged at one speed (calibration.py).
A missed bar is shown, once more at the end, and is no error; a benchmark that fails is.
"""

from __future__ import annotations

import argparse
import json
import os
import pkgutil
import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import calibration

WIDTH = 120  # of tables that go to a file
MODERATE = {
    "protocol": (
        "--parts=writes,gang8,bare,admission,churn,failover",
        "--qps=0",
        "--churn-seconds=20",
        "--failover-nodes=1000",
    )
}
"""Options of a benchmark whose whole size takes long, where none is named; named, it runs whole."""
PACKAGE = Path(__file__).resolve().parent
_RUN = (
    "import importlib, json, sys; "
    "print(json.dumps(importlib.import_module('benchmarks.' + sys.argv[1]).figures(*sys.argv[2:])))"
)


def names() -> list[str]:
    """The benchmarks there are."""
    return sorted(each.name for each in pkgutil.iter_modules([str(PACKAGE)]) if "\ndef figures(" in _source(each))


def _source(module: pkgutil.ModuleInfo) -> str:
    return (PACKAGE / (f"{module.name}/__init__.py" if module.ispkg else f"{module.name}.py")).read_text()


def measure(name: str, options: Sequence[str] = ()) -> list[dict[str, Any]]:
    """The figures of one benchmark. Raises CalledProcessError."""
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    command = [sys.executable, "-c", _RUN, name, *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, env=environment)
    figures: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return figures


def calibrated(name: str, options: Sequence[str] = ()) -> tuple[list[dict[str, Any]], calibration.Loop]:
    """The figures of one benchmark as judged, and the loop of their run."""
    before_s = calibration.loop_s()
    figures = measure(name, options)
    loop = calibration.Loop(before_s, calibration.loop_s())
    return [calibration.calibrated(figure, loop) for figure in figures], loop


def met(figure: dict[str, Any]) -> bool | None:
    """Whether the bar is met; None without a bar. Rates (`…/s`) and shares (`%`) are better when higher."""
    bar, value = figure.get("bar"), figure.get("judged", figure["value"])
    if bar is None:
        return None
    return bool(value >= bar) if str(figure["unit"]).endswith(("%", *calibration.RATES)) else bool(value <= bar)


def table(name: str, figures: Sequence[dict[str, Any]], loop: calibration.Loop) -> Table:
    shown = Table(title=f"{name} · {loop}; bars at {calibration.REFERENCE_S:.2f} s", title_justify="left")
    shown.add_column("figure", overflow="fold")
    shown.add_column("value", justify="right")
    shown.add_column("unit")
    shown.add_column("judged", justify="right")
    shown.add_column("bar", justify="right")
    shown.add_column("")
    for figure in figures:
        bar, verdict = figure.get("bar"), met(figure)
        mark = "" if verdict is None else "[green]met[/]" if verdict else "[red]missed[/]"
        shown.add_row(
            figure["figure"],
            f"{figure['value']:,.4g}",
            str(figure["unit"]),
            "" if bar is None else f"{figure['judged']:,.4g}",
            "" if bar is None else f"{bar:,g}",
            mark,
        )
    return shown


def breakdowns(figures: Sequence[dict[str, Any]]) -> Iterator[Table]:
    """One table for each figure that says what it consists of (`by_kind`)."""
    for figure in figures:
        if figure.get("by_kind"):
            shown = Table(title=f"{figure['figure']}: {figure['value']:,.4g} {figure['unit']}", title_justify="left")
            shown.add_column(str(figure["unit"]), justify="right")
            shown.add_column("kind")
            for kind, value in figure["by_kind"].items():
                shown.add_row(f"{value:,.3f}", kind)
            yield shown


def main(arguments: Sequence[str] | None = None) -> int:
    known = names()
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure, and show the figures.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(known)}; default: all")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    given = list(sys.argv[1:] if arguments is None else arguments)
    given, more = (given[: given.index("--")], given[given.index("--") + 1 :]) if "--" in given else (given, [])
    options = parser.parse_args(given)
    unknown = sorted(set(options.names) - set(known))
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(known)}")
    if more and len(options.names) != 1:
        parser.error("options after -- go to one benchmark; name it")
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    console.print(
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    )
    figures: list[dict[str, Any]] = []
    failed = 0
    for name in options.names or known:
        try:
            measured, loop = calibrated(name, more if options.names else MODERATE.get(name, ()))
        except (subprocess.CalledProcessError, json.JSONDecodeError, IndexError) as error:
            console.print(f"[red]{name}: {error}[/]")
            failed = 1
            continue
        console.print(table(name, measured, loop))
        for each in breakdowns(measured):
            console.print(each)
        figures += measured
    for figure in figures:
        if met(figure) is False:
            console.print(f"missed: {figure['figure']} {figure['judged']:,.4g} of {figure['bar']:,g} {figure['unit']}")
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    return failed


if __name__ == "__main__":
    sys.exit(main())
