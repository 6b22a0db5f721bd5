"""`fairlead top`: the pictures of `frame` in the terminal, one after the other; or one, for a pipe.

With watches where the user may see the whole cluster, so that a picture costs the apiserver nothing; else with lists of the user's own
namespace. While the apiserver is away the last picture stays and says so. The terminal is as it was before, however the command ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from fairlead.cli.operate.frame import Drawing, Row
from fairlead.cli.printer import console, say_coloured
from fairlead.cli.reading import OfCluster
from fairlead.kube import timestamps
from fairlead.kube.client import Client
from fairlead.ui.model.facts import Facts
from fairlead.ui.model.gang_list import Sort
from fairlead.ui.reading.cluster import Cluster, NotReadError, Source
from fairlead.ui.reading.live import LiveSource
from fairlead.ui.reading.watched import WatchedSource

Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, kw_only=True)
class Top(OfCluster):
    """Watch queues, nodes' GPUs and gangs in the terminal; Ctrl-C ends it. Each GPU is one letter, the first line says which."""

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
        except BrokenPipeError:
            with contextlib.suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
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
