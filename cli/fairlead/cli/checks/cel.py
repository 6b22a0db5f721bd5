"""`fairlead check cel 'EXPR' [--device FILE]`: what the apiserver would answer to a selector, and which devices it selects.

Shows without a DeviceClass that a selector is wrong, too expensive, or fails on some of the devices. Needs no cluster.
Exit status: 0 admitted, 1 refused, 2 the file cannot be read.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fairlead.bounded import files, yaml_text
from fairlead.cel import COST_MAX, CompileError, DeviceView, Outcome, Selector, admit_selector, compile_selector
from fairlead.cli.printer import console, say
from fairlead.kube import nulls
from fairlead.kube.resource import ResourceSlice

_COLORS = {Outcome.MATCH: "green", Outcome.NO_MATCH: "yellow", Outcome.ERROR: "red"}


@dataclass(frozen=True, kw_only=True)
class Cel:
    """Compile a device selector as the apiserver would; show its type, cost, and what it reads."""

    expression: Annotated[str, typer.Argument(help="A DRA device selector.")]
    device: Annotated[
        Path | None,
        typer.Option(help="A ResourceSlice (YAML or JSON): the verdict for each of its devices.", exists=True),
    ] = None

    def run(self) -> int:
        shown = console(highlight=False)
        try:
            selector = compile_selector(self.expression)
        except CompileError as error:
            shown.print(Text("refused: the expression does not compile", style="red"))
            shown.print(Text(str(error)))
            return 1
        refusal = _refusal(self.expression)
        shown.print(Text(f"refused: {refusal}", style="red") if refusal else Text("admitted", style="green"))
        _describe(selector, shown)
        if self.device is not None:
            try:
                slices = list(_slices(self.device))
            except (OSError, msgspec.ValidationError, ValueError) as error:
                say(f"{self.device}: {error}", file=sys.stderr)
                return 2
            _judge(selector, slices, shown)
        return int(refusal is not None)


def _refusal(expression: str) -> str | None:
    """Why a selector that compiles is not admitted, or None."""
    try:
        admit_selector(expression)
    except CompileError as error:
        return f"{error.message} ({error.hint})" if error.hint else error.message
    return None


def _describe(selector: Selector, console: Console) -> None:
    shown = Table.grid(padding=(0, 2))
    shown.add_row("type", _type(selector))
    shown.add_row("cost", f"{selector.estimated_cost:,} of at most {COST_MAX:,} (worst case)")
    reads = sorted(map(str, selector.reads))
    shown.add_row("reads", Text("\n".join(reads) if reads else "nothing of the device"))
    console.print(shown)


def _type(selector: Selector) -> str:
    if selector.type.is_dyn:
        return f"{selector.type}: known only when it runs; fails on a device where it is no bool"
    return str(selector.type)


def _slices(path: Path) -> list[ResourceSlice]:
    """The ResourceSlices of a file: YAML documents or JSON, or a List of them."""
    found: list[ResourceSlice] = []
    documents: list[Any] = [document for document in yaml_text.documents(files.read(path)) if document]
    for document in documents:
        if not isinstance(document, dict):
            raise ValueError("must hold ResourceSlices, not " + type(document).__name__)  # noqa: TRY004 - the file is wrong
        for item in document["items"] if str(document.get("kind", "")).endswith("List") else [document]:
            if item.get("kind", "ResourceSlice") != "ResourceSlice":
                raise ValueError(f"must hold ResourceSlices, not a {item.get('kind')}")
            found.append(nulls.convert(item, ResourceSlice))
    if not found:
        raise ValueError("holds no ResourceSlice")
    return found


def _judge(selector: Selector, slices: list[ResourceSlice], console: Console) -> None:
    shown = Table(show_edge=False)
    for title in ("driver", "pool", "device", "verdict", "reason"):
        shown.add_column(title)
    counts = dict.fromkeys(Outcome, 0)
    for slice_ in slices:
        for device in slice_.spec.devices:
            verdict = selector.verdict(DeviceView.of(slice_.spec.driver, device))
            counts[verdict.outcome] += 1
            outcome = Text(verdict.outcome.value, style=_COLORS[verdict.outcome])
            shown.add_row(slice_.spec.driver, slice_.spec.pool.name, device.name, outcome, Text(verdict.reason or ""))
    console.print(shown)
    console.print(", ".join(f"{count} {outcome.value}" for outcome, count in counts.items()))
