"""Flags of `fairlead what-if`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.options import ManagedDrivers, drivers
from fairlead.cli.views.commands import Context, Kubeconfig, Output, Snapshot


def register(app: typer.Typer) -> None:
    app.command("what-if", rich_help_panel="Ask a cluster")(what_if)


def what_if(
    add_nodes: Annotated[
        list[str] | None,
        typer.Option(metavar="NxNAME", help="Add N nodes like the node NAME, or of the simulated profile NAME."),
    ] = None,
    remove: Annotated[list[str] | None, typer.Option(metavar="NODE", help="Remove this node.")] = None,
    queue: Annotated[
        list[str] | None,
        typer.Option(
            metavar="QUEUE[.FLAVOR].FIELD=VALUE",
            help="Set deserved, limit or weight of a queue's quota, or its priority.",
        ),
    ] = None,
    files: Annotated[
        list[Path] | None,
        typer.Option("--filename", "-f", metavar="FILE", help="Submit these manifests now; - reads standard input."),
    ] = None,
    horizon: Annotated[str, typer.Option(help="How far to look ahead, such as 90m or 24h.")] = "24h",
    samples: Annotated[
        int, typer.Option(min=1, max=64, help="Futures to draw; with 1 every run lasts its median, more give a p90.")
    ] = 1,
    snapshot: Snapshot = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    managed_driver: ManagedDrivers = None,
    output: Output = "table",
) -> None:
    """Forecast what a change would do: what starts when, what is evicted, fair shares, utilisation. Writes nothing."""
    from fairlead.cli.what_if.command import Asked, run

    asked = Asked(
        add_nodes=add_nodes or (),
        remove=remove or (),
        queue=queue or (),
        files=files or (),
        horizon=horizon,
        samples=samples,
        snapshot=snapshot,
        kubeconfig=kubeconfig,
        context=context,
        drivers=drivers(managed_driver),
        output=output,
    )
    raise typer.Exit(run(asked))
