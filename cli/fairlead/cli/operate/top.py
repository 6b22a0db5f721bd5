"""`fairlead top`: pictures of the cluster in the terminal, one after the other; or one, for a pipe.

With watches where the user may see the whole cluster, so that a picture costs the apiserver nothing; else with lists of the user's own
namespace. While the apiserver is away the last picture stays and says so. The terminal is as it was before, however the command ends.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from fairlead.cli.printer import GAP, Cell, Column, console, fit, say_coloured, shortened
from fairlead.cli.reading import OfCluster
from fairlead.cli.views import gangs as gang_table
from fairlead.cli.views import queues as queue_table
from fairlead.kube import timestamps
from fairlead.kube.client import Client
from fairlead.ui.model import queues as queue_model
from fairlead.ui.model.cluster import ClusterView, Memory, NodeView, State
from fairlead.ui.model.facts import Facts
from fairlead.ui.model.gang_list import Choice, LineMemory, Sort
from fairlead.ui.model.gangs import PHASES, Line
from fairlead.ui.reading.cluster import Cluster, NotReadError, Source
from fairlead.ui.reading.live import LiveSource
from fairlead.ui.reading.watched import WatchedSource

MARKS: Mapping[State, str] = {
    "held": "#", "idle": "i", "starting": "s", "nominated": "n", "free": ".", "fragmented": "x", "drained": "-", "broken": "!",
}  # fmt: skip
COLOURS: Mapping[State, str] = {"idle": "yellow", "broken": "red", "fragmented": "yellow", "held": "green"}
NODES = (
    Column(title="NODE", least=12, most=40),
    Column(title="GPUS", right=True),
    Column(title="HELD", right=True),
    Column(title="FREE", right=True),
    Column(title="EACH"),
    Column(title="QUEUES", least=8, most=40, dispensable=2),
    Column(title="PROBLEM", least=8, sentence=True, dispensable=1),
)
_LEAST = 4  # lines of a table, its title included, however low the terminal is
Row = Sequence[Cell]


@dataclass(kw_only=True)
class Drawing:
    """What is kept from one picture to the next, so that only what changed is worked out again. `namespace`: of which gangs are shown; "": of all."""

    sort: Sort = "line"
    namespace: str = ""
    _gangs: LineMemory = field(default_factory=LineMemory)
    _cluster: Memory = field(default_factory=Memory)

    def lines(self, facts: Facts, *, width: int | None = None, height: int | None = None) -> list[Row]:
        """Each line as cells with colours; at most `height` of them."""
        view = None if facts.hardware is None else self._cluster.draw(facts.hardware)
        known = self._gangs.of(facts)
        chosen = self._chosen(known.every)
        head = [_headline(facts, view, known.every), *_notes(facts)]
        queues = queue_model.tree(facts.queues)
        nodes = [] if view is None else sorted(view.nodes, key=lambda node: node.name)
        rooms = _rooms(height, len(head), len(queues), len(nodes))
        found: list[Row] = [*head]
        found += _table(
            "queues", queue_table.COLUMNS, queue_table.rows(queues[: rooms[0]]), len(queues) - rooms[0], width,
        )  # fmt: skip
        found += _table("nodes", NODES, [_node(each) for each in nodes[: rooms[1]]], len(nodes) - rooms[1], width)
        shown = [known.fresh(each, now=facts.at) for each in chosen[: rooms[2]]]
        rows = gang_table.rows(shown)
        found += _table("gangs", gang_table.COLUMNS, rows, len(chosen) - rooms[2], width)
        cut = found if height is None else found[:height]
        return cut if width is None else [_cut(row, width) for row in cut]

    def _chosen(self, lines: Sequence[Line]) -> Sequence[Line]:
        chosen = [each for each in lines if each.namespace == self.namespace] if self.namespace else lines
        key = Choice.key(self.sort)
        return chosen if key is None else sorted(chosen, key=key)


def _rooms(height: int | None, head: int, queues: int, nodes: int) -> tuple[int, int, int]:
    """Objects that each table may show."""
    if height is None:
        return queues, nodes, 1_000_000_000
    left = max(0, height - head)
    first = min(queues, max(_LEAST, left // 4))
    second = min(nodes, max(_LEAST, left // 4))
    return first, second, max(_LEAST, left - first - second - 9)  # titles, what is not shown, blank lines


def _table(name: str, columns: Sequence[Column], rows: Sequence[Row], more: int, width: int | None) -> list[Row]:
    """A blank line, the table, and how many it does not show."""
    if not rows:
        return [(), (Cell(f"no {name}"),)]
    fitted = fit(columns, rows, width)
    made: list[Row] = [(), *(_spaced(line) for line in fitted.lines)]
    if more > 0:
        made.append((Cell(f"… {more} more {name}", "bright_black"),))
    return made


def _spaced(line: Row) -> Row:
    found: list[Cell] = []
    for cell in line:
        found += [cell, Cell(" " * GAP)]
    return found[:-1]


def _cut(row: Row, width: int) -> Row:
    """No longer than the terminal is wide: a line that wraps would push others out."""
    found: list[Cell] = []
    for cell in row:
        found.append(
            Cell(shortened(cell.text, width, sentence=True) if len(cell.text) > width else cell.text, cell.colour)
        )
        width -= len(found[-1].text)
        if width <= 0:
            break
    return found


def _headline(facts: Facts, view: ClusterView | None, gangs: Sequence[Line]) -> Row:
    counts = {phase: sum(each.phase == phase for each in gangs) for phase in PHASES}
    said = ", ".join(f"{count} {phase.lower()}" for phase, count in counts.items() if count) or "none"
    row = [Cell(f"{timestamps.seconds(facts.at)}  gangs: {said}")]
    if view is not None:
        row.append(Cell("  GPUs: "))
        parts = [(state, count) for state, count in view.counts.items() if count]
        for number, (state, count) in enumerate(parts):
            row.append(Cell(f"{count} {state} [{MARKS[state]}]", COLOURS.get(state, "")))
            row += [Cell(", ")] if number + 1 < len(parts) else []
        row += [] if parts else [Cell("none")]
    return row


def _notes(facts: Facts) -> list[Row]:
    """What is not known, or not of now."""
    late = [(Cell(facts.late, "red"),)] if facts.late else []
    return [*late, *((Cell(f"no {kind}: {why}", "yellow"),) for kind, why in sorted(facts.refused.items()))]


def _node(node: NodeView) -> Row:
    held = sum(gpu.state in {"held", "idle", "starting"} for gpu in node.gpus)
    marks = "".join(MARKS[gpu.state] for gpu in node.gpus)
    colour = "red" if node.problem or "!" in marks else ""
    problem = node.problem or next((gpu.note for gpu in node.gpus if gpu.note), "")
    return (
        Cell(node.name, colour),
        Cell(str(len(node.gpus))),
        Cell(str(held)),
        Cell(str(node.free)),
        Cell(marks, "green" if held else ""),
        Cell(",".join(sorted(queue for queue in node.queues if queue)) or "-"),
        Cell(problem or "-"),
    )


Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, kw_only=True)
class Top(OfCluster):
    """Watch queues, nodes' GPUs and gangs in the terminal; Ctrl-C ends it. Each GPU is one letter, the first line says which."""

    progress: ClassVar[bool] = False
    sort: Annotated[
        Sort, typer.Option(help="Order of gangs; line: waiting ones first, in the order of their queues.")
    ] = "line"
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Gangs of this one only. Default: of all that you may see.")
    ] = None
    once: Annotated[bool, typer.Option("--once", help="Print one picture, in full; so it is into a pipe, too.")] = False
    interval_s: Annotated[
        float, typer.Option("--interval", min=0.5, max=3600, help="Seconds between two pictures.")
    ] = 2.0

    def run(self) -> int:
        namespace = self.namespace or self.own_namespace
        terminal = console(highlight=False)

        async def work(cluster: Cluster) -> None:
            drawing = Drawing(sort=self.sort, namespace=self.namespace or "")
            if self.once or not terminal.is_terminal:
                facts = await LiveSource(cluster.client, namespace=namespace).facts()
                for row in drawing.lines(facts, width=terminal.width if terminal.is_terminal else None):
                    say_coloured(row)
            else:
                await _show(cluster.client, drawing, terminal, self.interval_s, namespace)

        try:
            self.ask(work)
        except (KeyboardInterrupt, asyncio.CancelledError):
            pass  # this is how it is ended: Ctrl-C, or SIGTERM
        return 0


async def _show(client: Client, drawing: Drawing, terminal: Console, interval_s: float, namespace: str) -> None:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None, "it runs in one"
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        with Live(
            console=terminal, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        ) as live:
            async for facts, problem in readings(client, interval_s, namespace):
                live.update(picture(drawing, facts, problem, *terminal.size), refresh=True)
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


async def readings(
    client: Client, interval_s: float, namespace: str, *, sleep: Sleep = asyncio.sleep
) -> AsyncGenerator[tuple[Facts | None, str], None]:
    """What there is, every `interval_s`; and why there is nothing, while nothing was ever read."""
    watched = WatchedSource(client)
    source: Source = watched
    watching = asyncio.create_task(watched.run())
    try:
        while True:
            try:
                facts = await source.facts()
                if source is watched and "gangs" in facts.refused:
                    watching.cancel()  # of all namespaces it is not allowed: of the user's own it may be
                    source = LiveSource(client, namespace=namespace)
                    facts = await source.facts()
                yield facts, ""
            except NotReadError as error:
                yield None, str(error)
            await sleep(interval_s)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


def picture(drawing: Drawing, facts: Facts | None, problem: str, width: int, height: int) -> Group:
    if facts is None:
        now = timestamps.seconds(time.time())
        return Group(Text(f"{now}  {problem}; tried again", style="red"))
    return Group(*_texts(drawing.lines(facts, width=width, height=height)))


def _texts(lines: Iterable[Row]) -> Iterable[Text]:
    for row in lines:
        text = Text(no_wrap=True, overflow="crop", end="\n")
        for cell in row:
            text.append(cell.text, style=cell.colour or None)
        yield text
