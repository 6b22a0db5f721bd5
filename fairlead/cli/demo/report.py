"""The table at the end of the demo: who waited how long, and which devices each container was given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table

from fairlead.cli.demo.cases import NAMESPACES
from fairlead.cli.demo.history import History, PodRecord

# (namespace, pod, container) → the device nodes that the container's CDI edits give it.
Injected = Mapping[tuple[str, str, str], Sequence[str]]


def table(history: History, injected: Injected) -> Table:
    """One row per gang, and below it one per container."""
    result = Table(title="What ran where", title_justify="left", show_lines=False, header_style="bold")
    result.add_column("gang / container", no_wrap=True)
    result.add_column("queue")
    result.add_column("wait", justify="right")
    result.add_column("node", no_wrap=True)
    result.add_column("devices", overflow="fold")
    result.add_column("its CDI edits give", overflow="fold")
    for gang in history.gangs(NAMESPACES):
        nodes = sorted({pod.node for pod in gang.pods})
        wait = "-" if gang.wait_s is None else f"{gang.wait_s:.1f}s"
        total = sum(len(history.devices(pod)) for pod in gang.pods)
        result.add_row(
            f"[bold]{gang.key.namespace}/{gang.key.name}[/bold]",
            gang.queue or "-",
            wait,
            ", ".join(nodes),
            f"{total} devices",
            "",
        )
        for pod in sorted(gang.pods, key=lambda pod: pod.name):
            for container, nodes_given in _containers(pod, injected):
                devices = " ".join(use.device for use in history.devices(pod))
                result.add_row(f"  {pod.name}/{container}", "", "", pod.node, devices, " ".join(nodes_given))
        result.add_section()
    return result


def _containers(pod: PodRecord, injected: Injected) -> list[tuple[str, Sequence[str]]]:
    found = [
        (container, given)
        for (namespace, name, container), given in injected.items()
        if (namespace, name) == (pod.namespace, pod.name)
    ]
    return sorted(found) or [("?", ())]
