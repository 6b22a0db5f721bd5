"""`python -m benchmarks [NAME…] [--json FILE]`: run benchmarks, show a table, write the figures.

Exists so that CI, the README and a person read one list of `{"figure", "value", "unit", "bar"}`. A benchmark is a module of
this package with `figures()`; each runs in a process of its own, for one's heap and caches are another's noise.
A missed bar is shown, not an error; a benchmark that fails is.
"""

from __future__ import annotations

import argparse
import json
import os
import pkgutil
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

PACKAGE = Path(__file__).resolve().parent
_RUN = "import importlib, json, sys; print(json.dumps(importlib.import_module('benchmarks.' + sys.argv[1]).figures()))"


def names() -> list[str]:
    """The benchmarks there are."""
    return sorted(
        module.name
        for module in pkgutil.iter_modules([str(PACKAGE)])
        if "\ndef figures(" in (PACKAGE / f"{module.name}.py").read_text()
    )


def measure(name: str) -> list[dict[str, Any]]:
    """The figures of one benchmark. Raises CalledProcessError."""
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    done = subprocess.run([sys.executable, "-c", _RUN, name], stdout=subprocess.PIPE, check=True, env=environment)
    figures: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return figures


def met(figure: dict[str, Any]) -> bool | None:
    """Whether the bar is met; None without a bar. Rates (`…/s`) and shares (`%`) are better when higher."""
    bar, value = figure.get("bar"), figure["value"]
    if bar is None:
        return None
    return bool(value >= bar) if str(figure["unit"]).endswith(("/s", "%", "/s/core")) else bool(value <= bar)


def table(name: str, figures: Sequence[dict[str, Any]]) -> Table:
    shown = Table(title=name, title_justify="left")
    shown.add_column("figure")
    shown.add_column("value", justify="right")
    shown.add_column("unit")
    shown.add_column("bar", justify="right")
    shown.add_column("")
    for figure in figures:
        bar, verdict = figure.get("bar"), met(figure)
        mark = "" if verdict is None else "[green]met[/]" if verdict else "[red]missed[/]"
        shown.add_row(
            figure["figure"], f"{figure['value']:,.4g}", str(figure["unit"]), "" if bar is None else f"{bar:,g}", mark
        )
    return shown


def main(arguments: Sequence[str] | None = None) -> int:
    known = names()
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure, and show the figures.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(known)}; default: all")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.names) - set(known))
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(known)}")
    console = Console()
    console.print(
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    )
    figures: list[dict[str, Any]] = []
    failed = 0
    for name in options.names or known:
        try:
            measured = measure(name)
        except (subprocess.CalledProcessError, json.JSONDecodeError, IndexError) as error:
            console.print(f"[red]{name}: {error}[/]")
            failed = 1
            continue
        console.print(table(name, measured))
        figures += measured
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    return failed


if __name__ == "__main__":
    sys.exit(main())
