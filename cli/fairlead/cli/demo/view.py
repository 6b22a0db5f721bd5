"""Draws a running demo: gangs and the GPUs they hold. Reads a `History`; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fairlead.cli.demo.cases import NAMESPACES
from fairlead.cli.demo.history import GangKey, GangRecord, History
from fairlead.kube.resource import ResourceSlice

COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red", "bright_cyan", "bright_magenta", "bright_green")


def draw(history: History, slices: Sequence[ResourceSlice], *, now_s: float, title: str) -> RenderableType:
    """The live view: a table of gangs over one line of GPUs per node."""
    gangs = history.gangs(NAMESPACES)
    colours = {gang.key: COLOURS[index % len(COLOURS)] for index, gang in enumerate(gangs)}
    table = Table(title=title, title_justify="left", expand=False, box=None, pad_edge=False)
    for column in ("gang", "queue", "pods", "gated", "running", "done", "wait", "on"):
        table.add_column(column, justify="right" if column in {"pods", "gated", "running", "done", "wait"} else "left")
    table.add_column("why it waits", overflow="fold", max_width=60)
    for gang in gangs:
        wait = gang.wait_s
        since = now_s - min(pod.created_s for pod in gang.pods)
        table.add_row(
            Text(f"{gang.key.namespace}/{gang.key.name}", style=colours[gang.key]),
            gang.queue or "-",
            str(len(gang.pods)),
            str(sum(pod.gated for pod in gang.pods)),
            str(sum(pod.phase == "Running" for pod in gang.pods)),
            str(sum(pod.finished_s is not None for pod in gang.pods)),
            f"{since if wait is None else wait:.1f}s",
            ", ".join(_nodes(gang)),
            gang.reasons[-1] if wait is None and gang.reasons else "",
        )
    return Group(table, Text(), *(_nodes_line(history, slices, colours=colours)))


def _nodes_line(history: History, slices: Sequence[ResourceSlice], *, colours: dict[GangKey, str]) -> list[Text]:
    owner = {claim.uid: pod.gang for pod in history.pods.values() for claim in history.claims_of(pod)}
    held = history.held_now()
    pools: dict[str, list[str]] = {}
    for item in slices:
        pools.setdefault(item.spec.pool.name, []).extend(device.name for device in item.spec.devices)
    lines = []
    for pool, devices in sorted(pools.items()):
        line = Text(f"{pool:<12} ")
        for device in devices:
            gang = owner.get(held.get((pool, device), ""))
            cell = "▮" if device.count("-") == 1 else "▪"
            line.append(cell + " ", style=colours.get(gang, "white") if gang else "bright_black")
        lines.append(line)
    return lines


def _nodes(gang: GangRecord) -> list[str]:
    return sorted({pod.node for pod in gang.pods if pod.node})


def lines(history: History, shown: set[str], *, start_s: float) -> Iterable[str]:
    """What has happened since the last call, a line each: the view for logs and pipes. `shown` is updated."""
    for gang in history.gangs(NAMESPACES):
        name = f"{gang.key.namespace}/{gang.key.name}"
        facts: list[tuple[str, float | None]] = [(f"{name} waits: {reason}", None) for reason in gang.reasons]
        facts += [(f"{name} is {message}", None) for message in gang.evictions]
        if gang.wait_s is not None:
            bound = max(pod.bound_s for pod in gang.lasting if pod.bound_s is not None)
            facts.append(
                (
                    f"{name} placed whole, {len(gang.lasting)} pod{'s' * (len(gang.lasting) > 1)} on {', '.join(_nodes(gang))}",
                    bound,
                )
            )
        if gang.held is not None:
            facts.append((f"{name} ended", gang.held[1]))
        for fact, at_s in facts:
            if fact not in shown:
                shown.add(fact)
                yield f"{'' if at_s is None else f'{at_s - start_s:5.1f}s':>6} {fact}"
