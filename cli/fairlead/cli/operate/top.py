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

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from fairlead.cli.console import console as console_of
from fairlead.cli.operate.commands import Top
from fairlead.cli.operate.frame import Drawing, Row, Wish
from fairlead.cli.printer import say_coloured
from fairlead.cli.views import reading
from fairlead.kube import timestamps
from fairlead.kube.client import Client
from fairlead.ui.model.facts import Facts
from fairlead.ui.reading.cluster import Cluster, NotReadError, Source
from fairlead.ui.reading.live import LiveSource
from fairlead.ui.reading.watched import WatchedSource

Sleep = Callable[[float], Awaitable[None]]


def top(asked: Top) -> int:
    """Returns the exit code."""
    wish = Wish(gangs=asked.sort, queues=asked.sort_queues, nodes=asked.sort_nodes, namespace=asked.namespace or "")
    namespace = asked.namespace or reading.own_namespace(asked.kubeconfig, asked.context)
    console = console_of(highlight=False)

    async def work(cluster: Cluster) -> bool:
        drawing = Drawing(wish=wish)
        if asked.once or not console.is_terminal:
            facts = await LiveSource(cluster.client, namespace=namespace).facts()
            _print(drawing.lines(facts, width=console.width if console.is_terminal else None))
        else:
            await _show(cluster.client, drawing, console, asked.interval_s, namespace)
        return True

    try:
        status, _ = reading.run(work, kubeconfig=asked.kubeconfig, context=asked.context)
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 0  # this is how it is ended: Ctrl-C, or SIGTERM
    except BrokenPipeError:
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return status


async def _show(client: Client, drawing: Drawing, console: Console, interval_s: float, namespace: str) -> None:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None, "it runs in one"
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        with Live(
            console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        ) as live:
            async for facts, problem in readings(client, interval_s, namespace):
                live.update(picture(drawing, facts, problem, *console.size), refresh=True)
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


def _print(lines: Iterable[Row]) -> None:
    for row in lines:
        say_coloured(row)
