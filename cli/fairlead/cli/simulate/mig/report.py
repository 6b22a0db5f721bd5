"""The MIG trace's figures as tables and JSON: allocated compute slices and refused requests, by load, policies beside one another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from fairlead.cli.simulate.mig.run import LOADS, Figures
from fairlead.cli.simulate.protocol import mean_and_sd

REFUSED = {
    "all": "all requests",
    "large": "profiles of 3 compute slices and more",
    "whole": "whole GPUs, one or several",
}
Results = Mapping[str, Mapping[int, Sequence[Figures]]]
"""By policy and load, one for each seed."""


def tables(results: Results, seeds: int) -> list[tuple[str, Table]]:
    """One of what is allocated, and one of each kind of request that was refused, with their titles."""
    over = f"{seeds} seeds" if seeds > 1 else "1 seed"
    allocated = {policy: {load: _allocated(runs) for load, runs in loads.items()} for policy, loads in results.items()}
    found = [(f"compute slices allocated, % of the cluster, by load ({over})", _table(allocated, most=True))]
    for kind, title in REFUSED.items():
        if any(each.came.get(kind) for loads in results.values() for runs in loads.values() for each in runs):
            refused = {
                policy: {load: _refused(runs, kind) for load, runs in loads.items()}
                for policy, loads in results.items()
            }
            found.append((f"refused, % of those that arrived: {title}", _table(refused, most=False)))
    return found


def as_json(results: Results) -> dict[str, Any]:
    """Everything that was measured."""
    return {
        policy: {
            str(load): {
                "allocated": [round(each.allocated, 4) for each in runs],
                "came": [each.came for each in runs],
                "refused": [each.refused for each in runs],
            }
            for load, runs in loads.items()
        }
        for policy, loads in results.items()
    }


def _allocated(runs: Sequence[Figures]) -> float:
    return mean_and_sd([each.allocated for each in runs])[0]


def _refused(runs: Sequence[Figures], kind: str) -> float:
    """Of all seeds together, percent."""
    came = sum(each.came.get(kind, 0) for each in runs)
    return 100 * sum(each.refused.get(kind, 0) for each in runs) / came if came else 0.0


def _table(values: Mapping[str, Mapping[int, float]], *, most: bool) -> Table:
    """The best of each column in bold: the highest, or the lowest."""
    table = Table()
    table.add_column("policy", no_wrap=True)
    for load in LOADS:
        table.add_column(f"{load} %", justify="right")
    for policy, line in values.items():
        cells = []
        for load in LOADS:
            column = [round(other[load], 2) for other in values.values() if load in other]
            if load not in line:
                cells.append("–")
            elif round(line[load], 2) == (max(column) if most else min(column)):
                cells.append(f"[bold]{line[load]:.2f}[/]")
            else:
                cells.append(f"{line[load]:.2f}")
        table.add_row(policy, *cells)
    return table
