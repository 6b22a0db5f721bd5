"""The table at the end of the demo: how long each gang waited, and which devices each container got."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table

from fairlead.api.texts import natural
from fairlead.cli.demo.cases import NAMESPACES
from fairlead.cli.demo.history import History, PodRecord

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
        total = sum(len(history.devices(pod)) for pod in gang.pods)
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
