"""Flags of the subcommands for a GPU node: `devices`, `record`, `fault`. Modules are imported when called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.options import DynamicMig

PANEL = "On a GPU node"


def register(app: typer.Typer) -> None:
    for command in (devices, record, fault):
        app.command(rich_help_panel=PANEL)(command)


def devices(
    backend: Annotated[str, typer.Option(help="nvml, or simulated:PROFILE.")] = "nvml",
    dynamic_mig: DynamicMig = False,
    output: Annotated[str, typer.Option("--output", "-o", help="table, yaml or json.")] = "table",
) -> None:
    """Show the devices that a driver on this node would publish."""
    from fairlead.cli.node.devices import devices as show

    if output not in {"table", "yaml", "json"}:
        raise typer.BadParameter(f"{output!r}: write table, yaml or json", param_hint="--output")
    raise typer.Exit(show(backend, dynamic_mig=dynamic_mig, output=output))


def record(
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write. Default: print it.")] = None,
    backend: Annotated[str, typer.Option(help="nvml, or simulated:PROFILE.")] = "nvml",
    uuids: Annotated[bool, typer.Option("--uuids", help="Keep the GPUs' UUIDs.")] = False,
) -> None:
    """Write this node as a profile, to simulate it elsewhere."""
    from fairlead.cli.node.devices import record as write

    raise typer.Exit(write(backend, output=output, uuids=uuids))


def fault(
    device: Annotated[str, typer.Argument(help="A whole GPU, such as gpu-3; with --mend also `all`.")],
    plugins_dir: Annotated[Path, typer.Option(help="The --plugins-dir of the driver on simulated hardware.")],
    xid: Annotated[int | None, typer.Option(help="Report this Xid.")] = None,
    lost: Annotated[bool, typer.Option("--lost", help="Let it fall off the bus.")] = False,
    mend: Annotated[bool, typer.Option("--mend", help="Make it well again.")] = False,
) -> None:
    """Break a simulated GPU, or make it well again."""
    from fairlead.cli.node.devices import fault as inject

    raise typer.Exit(inject(device, plugins_dir=plugins_dir, xid=xid, lost=lost, mend=mend))
