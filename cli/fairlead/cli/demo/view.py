"""What a demo shows: while it runs, gangs and the GPUs they hold; at its end, how long each gang waited, and which devices each container got.

Reads a `History`; pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fairlead.api.texts import natural
from fairlead.cli.demo.cases import NAMESPACES
from fairlead.cli.demo.history import GangKey, GangRecord, History, PodRecord
from fairlead.cli.printer import shortened
from fairlead.kube.resource import ResourceSlice

COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red", "bright_cyan", "bright_magenta", "bright_green")


def draw(history: History, slices: Sequence[ResourceSlice], *, now_s: float, title: str, width: int) -> RenderableType:
    """The live view: a table of gangs over one line of GPUs per node, and one for each gang that waits."""
    gangs = history.gangs(NAMESPACES)
    colours = {gang.key: COLOURS[index % len(COLOURS)] for index, gang in enumerate(gangs)}
    table = Table(title=title, title_justify="left", expand=False, box=None, pad_edge=False)
    for column in ("gang", "queue", "pods", "gated", "running", "done", "wait", "on"):
        table.add_column(column, justify="right" if column in {"pods", "gated", "running", "done", "wait"} else "left")
    waiting = []
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
        )
        if wait is None and gang.reasons:
            waiting.append(Text(brief(_waits(gang, gang.reasons[-1]), width), style=colours[gang.key], no_wrap=True))
    return Group(table, Text(), *_nodes_line(history, slices, colours=colours), Text(), *waiting)


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


def _waits(gang: GangRecord, reason: str) -> str:
    return f"{gang.key.namespace}/{gang.key.name} waits: {reason}"


def brief(text: str, size: int) -> str:
    """In at most `size` characters: the first clauses that fit, or the beginning of the first one."""
    if len(text) <= size:
        return text
    end = max(text.rfind(mark, 0, size - 1) for mark in (". ", "; "))
    return f"{text[: end + 1]} …" if end > 0 else shortened(text, size, sentence=True)


def _nodes(gang: GangRecord) -> list[str]:
    return sorted({pod.node for pod in gang.pods if pod.node})


def lines(history: History, shown: set[str], *, start_s: float, width: int) -> Iterable[str]:
    """What has happened since the last call, a line each: the view for logs and pipes. `shown` is updated."""
    room = width - len("00.0s ") - 1
    for gang in history.gangs(NAMESPACES):
        name = f"{gang.key.namespace}/{gang.key.name}"
        facts: list[tuple[str, float | None]] = [(brief(_waits(gang, reason), room), None) for reason in gang.reasons]
        facts += [(brief(f"{name} is {message}", room), None) for message in gang.evictions]
        placed = f"{name} placed whole"
        if gang.wait_s is not None and placed not in shown:  # pods that are evicted later go one by one
            shown.add(placed)
            bound = max(pod.bound_s for pod in gang.lasting if pod.bound_s is not None)
            facts.append(
                (
                    f"{placed}, {len(gang.lasting)} pod{'s' * (len(gang.lasting) > 1)} on {', '.join(_nodes(gang))}",
                    bound,
                )
            )
        if gang.held is not None:
            facts.append((f"{name} ended", gang.held[1]))
        for fact, at_s in facts:
            if fact not in shown:
                shown.add(fact)
                yield f"{'' if at_s is None else f'{at_s - start_s:5.1f}s':>6} {fact}"


# (namespace, pod, container) → the device nodes that the container's CDI edits give it.
Injected = Mapping[tuple[str, str, str], Sequence[str]]


def table(history: History, injected: Injected) -> Table:
    """One row per gang, then one per container. Device nodes that every container gets are in the caption."""
    common = set.intersection(*(set(given) for given in injected.values())) if injected else set()
    result = Table(title="What ran where", title_justify="left", header_style="bold", pad_edge=False)
    result.caption = f"and in every container: {' '.join(sorted(common))}" if common else None
    result.caption_justify = "left"
    result.add_column("gang / container", no_wrap=True)
    result.add_column("queue", no_wrap=True)
    result.add_column("wait", justify="right", no_wrap=True)
    result.add_column("node", overflow="fold")
    result.add_column("devices", overflow="fold")
    result.add_column("its CDI edits give", overflow="fold")
    for gang in history.gangs(NAMESPACES):
        nodes = sorted({pod.node for pod in gang.pods})
        wait = "-" if gang.wait_s is None else f"{gang.wait_s:.1f}s"
        total = len({(use.pool, use.device) for pod in gang.pods for use in history.devices(pod)})
        name = f"[bold]{gang.key.namespace}/{gang.key.name}[/bold]"
        result.add_row(name, gang.queue or "-", wait, " ".join(nodes), f"{total} device{'s' * (total != 1)}", "")
        for pod in sorted(gang.pods, key=lambda pod: natural(pod.name)):
            for container, given in _containers(pod, injected):
                devices = " ".join(use.device for use in history.devices(pod))
                own = " ".join(node for node in given if node not in common)
                result.add_row(f"  {pod.name}/{container}", "", "", pod.node, devices, own)
        result.add_section()
    return result


def forecast_line(history: History) -> str:
    """The forecast of the gang that waited longest for devices, against what came of it."""
    found = [(gang.wait_s, gang) for gang in history.gangs(NAMESPACES) if gang.forecasts and gang.held and gang.wait_s]
    if not found:
        return "forecast: no gang waited long enough to have one"
    _, gang = max(found, key=lambda pair: pair[0])
    assert gang.held is not None
    heard_s, wait_s = gang.forecasts[-1]
    waited_s = max(0.0, gang.held[0] - heard_s)
    return (
        f"forecast: {gang.key.namespace}/{gang.key.name} was to start in {wait_s:.0f}s with 50 % probability; "
        f"it started after {waited_s:.0f}s"
    )


def _containers(pod: PodRecord, injected: Injected) -> list[tuple[str, Sequence[str]]]:
    found = [
        (container, given)
        for (namespace, name, container), given in injected.items()
        if (namespace, name) == (pod.namespace, pod.name)
    ]
    return sorted(found) or [("?", ())]
