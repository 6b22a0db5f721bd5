"""How a list of objects is shown: by names, -l, -w and the forms of -o, as kubectl does it; shared by every command that lists.

A command gives columns, rows, and the kinds whose changes lead to another look. A path of `-o custom-columns` leads through what `-o json`
prints of a row.
Example: `fairlead gangs bert -o custom-columns=NAME:.name,NODE:.nodes[0]`.
"""

from __future__ import annotations

import asyncio
import difflib
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final

import typer

from fairlead.cli import printer
from fairlead.cli.printer import Cell, Column, say
from fairlead.cli.reading import OfCluster
from fairlead.kube import errors, labels
from fairlead.kube.client import Client
from fairlead.kube.flags import Form
from fairlead.kube.labels import Selector
from fairlead.kube.resources import Resource, raw
from fairlead.kube.watching import Bookmark
from fairlead.ui.reading.cluster import Cluster, NotReadError

NEAR_MAX = 3
RETRY_S = 2.0
PAUSE_S = 0.2
"""Least pause between two looks of a watch; they take at most a fifth of the time."""
_KINDS = ("table", "wide", "name", "json", "yaml")
_COLUMNS = "custom-columns="
_STEP = re.compile(r"\.?([A-Za-z_][\w-]*)|\[(\d+|\*)\]")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One object. `reference` is what `-o name` prints, `value` what `-o json` does; `lines` are those of the table, `labels` of all objects that are shown as one."""

    name: str
    reference: str
    lines: Sequence[Sequence[Cell]]
    value: Mapping[str, Any]
    labels: Sequence[Mapping[str, str]] = ()

    def steady(self) -> dict[str, Any]:
        """Without what changes with time alone: seconds since something, and forecasts."""
        return {key: found for key, found in self.value.items() if not key.endswith("_s") and key != "forecast"}


@dataclass(frozen=True)
class Output:
    """A form of -o; `columns` are headers and paths of custom-columns."""

    kind: str
    columns: tuple[tuple[str, tuple[str | int, ...]], ...] = ()


def _output(text: str) -> Output:
    if text in _KINDS:
        return Output(text)
    if not text.startswith(_COLUMNS):
        raise ValueError(f"{text!r} is none of {', '.join(_KINDS)}, {_COLUMNS}HEADER:PATH,…")
    return Output("custom-columns", tuple(_column(each) for each in text.removeprefix(_COLUMNS).split(",")))


def _column(text: str) -> tuple[str, tuple[str | int, ...]]:
    header, _, path = text.partition(":")
    found = path.removeprefix("{").removesuffix("}")
    steps = list(_STEP.finditer(found))
    if not header or not steps or "".join(step[0] for step in steps) != found:
        raise ValueError(f"{text!r} is no HEADER:PATH: write {_COLUMNS}NAME:.name,NODE:.nodes[0]")
    return header, tuple(step[1] or (step[2] if step[2] == "*" else int(step[2])) for step in steps)


def _written(output: Output) -> str:
    return output.kind


ALL: Final = Selector()
OUTPUT = Form(_output, _written)
SELECTOR = Form(labels.parse, lambda _: "")


@dataclass(frozen=True, kw_only=True)
class Listing(OfCluster):
    """A command that lists. `kind` is the word for one object, `watches` are the kinds whose changes may change the list."""

    kind: ClassVar[str]
    watches: ClassVar[tuple[Resource[Any], ...]]

    names: Annotated[tuple[str, ...], typer.Argument(metavar="[NAME]...", help="Only these.")] = ()
    selector: Annotated[
        Selector,
        SELECTOR,
        typer.Option("--selector", "-l", metavar="LABELS", help="Only what has these labels: a=b,c!=d."),
    ] = ALL
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Then show what changes, until Ctrl-C.")] = False
    output: Annotated[
        Output,
        OUTPUT,
        typer.Option(
            "--output",
            "-o",
            metavar="FORM",
            help="table, wide (in full), name, json, yaml, or custom-columns=HEADER:PATH,… of json's fields.",
        ),
    ] = Output("table")

    def columns(self) -> Sequence[Column]:
        raise NotImplementedError

    async def rows(self, cluster: Cluster) -> list[Row]:
        """All, in their order. Raises NotReadError."""
        raise NotImplementedError

    def none(self) -> str:
        """What is said where there is nothing."""
        raise NotImplementedError

    def notes(self, rows: Sequence[Row]) -> Iterator[str]:
        """Paragraphs below the table."""
        yield from ()

    @property
    def where(self) -> str | None:
        """The one namespace that is listed."""
        return None

    def run(self) -> int:
        if self.watch:
            self.ask(self._follow)
        every = self.ask(self.rows)
        rows = self._chosen(every)
        if rows or self.output.kind in {"json", "yaml"}:
            self._show(rows)
        elif not self.names:
            say(f"no {self.kind} has these labels" if every else self.none(), file=sys.stderr)
        return self._missing(every)

    def _chosen(self, rows: Sequence[Row]) -> list[Row]:
        return [
            row
            for row in rows
            if (not self.names or row.name in self.names)
            and (not self.selector.requirements or any(map(self.selector.matches, row.labels)))
        ]

    def _missing(self, every: Sequence[Row]) -> int:
        """The exit code: 1 where a name is of no object."""
        known = {row.name for row in every}
        missing = [name for name in dict.fromkeys(self.names) if name not in known]
        for name in missing:
            near = difflib.get_close_matches(name, sorted(known), NEAR_MAX)
            within = f" in namespace {self.where}" if self.where else ""
            say(
                f"no {self.kind} is called {name}{within}" + (f"; did you mean {', '.join(near)}?" if near else ""),
                file=sys.stderr,
            )
        return 1 if missing else 0

    # -- forms -----------------------------------------------------------------------------------------------------------

    def _show(self, rows: Sequence[Row]) -> None:
        if self.output.kind in {"json", "yaml"}:
            printer.structured([dict(row.value) for row in rows], self.output.kind)
            return
        self._lines(rows, frozenset(range(len(rows))), title=True)
        if self.output.kind in {"table", "wide"}:
            for each in self.notes(rows):
                printer.paragraph(each)

    def _lines(self, rows: Sequence[Row], only: frozenset[int], *, title: bool) -> None:
        """Prints these rows, each column as wide as all rows need it."""
        if self.output.kind == "name":
            for number in sorted(only):
                say(rows[number].reference)
            return
        columns, table = self.columns(), [list(row.lines) for row in rows]
        if self.output.columns:
            columns = [Column(title=header) for header, _ in self.output.columns]
            self._check_fields(rows)
            table = [[[Cell(_at(row.value, path)) for _, path in self.output.columns]] for row in rows]
        full = self.output.kind != "table"
        printer.table(
            columns,
            [line for lines in table for line in lines],
            full=full,
            title=title,
            only=[number in only for number, lines in enumerate(table) for _ in lines],
        )

    def _check_fields(self, rows: Sequence[Row]) -> None:
        known = {key for row in rows for key in row.value}
        for header, (first, *_) in self.output.columns:
            if known and first not in known:
                message = f"{header}: there is no field {first!r}; there are {', '.join(sorted(known))}"
                raise typer.BadParameter(message, param_hint="--output")

    # -- watch -------------------------------------------------------------------------------------------------------------

    async def _follow(self, cluster: Cluster) -> None:
        """Never returns. Raises NotReadError where the first look fails, typer.Exit where that misses a name."""
        changed, first, title, problem = asyncio.Event(), True, True, ""
        known: dict[str, dict[str, Any]] = {}
        async with asyncio.TaskGroup() as tasks:
            for each in self.watches:
                namespace = self.where if each.namespaced else None
                tasks.create_task(_watch(cluster.client, each, namespace, changed))
            while True:
                changed.clear()
                begun_s = time.monotonic()
                try:
                    every = await self.rows(cluster)
                    if first and (missing := self._missing(every)):
                        raise typer.Exit(missing)
                    rows, first, problem = self._chosen(every), False, ""
                except NotReadError as error:
                    if first:
                        raise
                    if str(error) != problem:
                        problem = str(error)
                        say(problem, file=sys.stderr)
                    await asyncio.sleep(RETRY_S)
                    continue
                fresh = frozenset(number for number, row in enumerate(rows) if known.get(_key(row)) != row.steady())
                if fresh:
                    self._changed(rows, fresh, title=title)
                    title = False
                known = {_key(row): row.steady() for row in rows}
                await asyncio.sleep(max(PAUSE_S, 4 * (time.monotonic() - begun_s)))
                await changed.wait()

    def _changed(self, rows: Sequence[Row], fresh: frozenset[int], *, title: bool) -> None:
        if self.output.kind not in {"json", "yaml"}:
            self._lines(rows, fresh, title=title)
        for number in sorted(fresh) if self.output.kind in {"json", "yaml"} else ():
            if self.output.kind == "yaml" and not (title and number == min(fresh)):
                say("---")
            printer.structured(dict(rows[number].value), self.output.kind)
        sys.stdout.flush()


def _key(row: Row) -> str:
    return f"{row.value.get('namespace', '')}/{row.reference}"


def _at(value: Any, path: Sequence[str | int]) -> str:
    """What is at the path, several values with commas between them; `<none>` for nothing."""
    found = [value]
    for step in path:
        if step == "*":
            found = [inner for each in found if isinstance(each, list | tuple) for inner in each]
        elif isinstance(step, int):
            found = [each[step] for each in found if isinstance(each, list | tuple) and step < len(each)]
        else:
            found = [each[step] for each in found if isinstance(each, Mapping) and step in each]
    told = [
        ",".join(map(str, each)) if isinstance(each, list | tuple) else str(each) for each in found if each is not None
    ]
    return ",".join(each for each in told if each) or "<none>"


async def _watch(client: Client, resource: Resource[Any], namespace: str | None, changed: asyncio.Event) -> None:
    """Sets the event at every change, and when the watch begins anew; ends for a kind that may not be watched, or that is not served."""
    while True:
        try:
            async for event in client.watch(raw(resource), namespace, resource_version=""):
                if not isinstance(event, Bookmark):
                    changed.set()
        except (errors.Forbidden, errors.NotFound):
            return
        except errors.ApiError:
            await asyncio.sleep(RETRY_S)
        changed.set()
