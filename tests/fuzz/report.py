"""A line per target, then the sum, the seed, and how each fault can be seen again."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from tests.fuzz.run import play_command, saved
from tests.fuzz.target import Outcome

KEPT = Path(".fuzz")
_LINE = "{:<22} {:>10} {:>9} {:>10} {:>10} {:>6}  {}"


class Report:
    def __init__(self, seed: int, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False, soft_wrap=True)
        self._seed = seed
        self._outcomes: list[Outcome] = []
        self._say(_LINE.format("target", "inputs", "inputs/s", "slowest ms", "growth MiB", "lines", ""), "bold")

    def add(self, outcome: Outcome) -> None:
        self._outcomes.append(outcome)
        rate = outcome.inputs / outcome.elapsed_s if outcome.elapsed_s else 0.0
        faults = ", ".join(sorted({finding.kind for finding in outcome.findings})) or "ok"
        line = _LINE.format(
            outcome.target, f"{outcome.inputs:,}", f"{rate:,.0f}", f"{outcome.slowest_ms:.0f}", f"{outcome.growth_mib:.1f}",
            outcome.lines, faults,
        )  # fmt: skip
        self._say(line, "red" if outcome.findings else "")

    def end(self) -> int:
        """The exit status."""
        inputs = sum(outcome.inputs for outcome in self._outcomes)
        findings = [finding for outcome in self._outcomes for finding in outcome.findings]
        self._say(
            f"{inputs:,} inputs, seed {self._seed}: {f'{len(findings)} faults' if findings else 'no fault'}", "bold"
        )
        for finding in findings:
            self._say(f"\n{finding.target}: {finding.kind}: {finding.text}", "red")
            if finding.trace:
                self._say(finding.trace.rstrip())
            if finding.kind == "growth":
                self._say(f"again: python -m tests.fuzz --target {finding.target} --seed {self._seed} --minutes 1")
            else:
                self._say(f"again: {play_command(finding, saved(finding, KEPT))}")
        return 1 if findings else 0

    def _say(self, text: str, style: str = "") -> None:
        self._console.print(text, style=style, markup=False)
