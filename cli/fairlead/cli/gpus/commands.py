"""Flags of the subcommands for GPUs of a cluster: `repair`, `smoke`. Modules are imported when called."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import typer

from fairlead.cli.options import Kubeconfig
from fairlead.cli.views.commands import Context, Namespace, Output

PANEL = "Care for GPUs"


def register(app: typer.Typer) -> None:
    for command in (repair, smoke):
        app.command(rich_help_panel=PANEL)(command)


def repair(
    node: Annotated[str | None, typer.Argument(help="The node.", show_default=False)] = None,
    gpu: Annotated[str | None, typer.Argument(help="The GPU, such as gpu-3 or 3.", show_default=False)] = None,
    drain: Annotated[
        Literal["wait", "evict"],
        typer.Option(help="Wait for the claims that have it, or evict their pods, as budgets allow."),
    ] = "wait",
    timeout_s: Annotated[
        float, typer.Option("--timeout", min=1, help="Seconds to watch; the repair goes on afterwards.")
    ] = 3600.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be drained.")] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Take it back while it still drains.")] = False,
    all_repairs: Annotated[bool, typer.Option("--list", help="Instead: list the repairs of all nodes.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="A line of JSON for everything that happens.")] = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Output = "table",
) -> None:
    """Repair a GPU: taint, drain, reset, verify, untaint. Exit code 0: it is well; 1: it stays tainted; 3: not finished."""
    from fairlead.cli.gpus import repair as module

    if all_repairs:
        if node is not None or gpu is not None:
            raise typer.BadParameter("lists the repairs of all nodes: leave NODE and GPU out", param_hint="--list")
        status = module.listing(output="json" if as_json else output, kubeconfig=kubeconfig, context=context)
        raise typer.Exit(status)
    if node is None or gpu is None:
        raise typer.BadParameter("name both, as `fairlead repair NODE gpu-3`; or --list", param_hint="NODE GPU")
    match = re.fullmatch(r"(?:gpu-)?(\d{1,3})", gpu)
    if match is None:
        raise typer.BadParameter(
            f"{gpu!r} is no GPU: write gpu-3 or 3 (of a MIG device, the GPU that it is part of)", param_hint="GPU"
        )
    if dry_run and cancel:
        raise typer.BadParameter("goes without --dry-run", param_hint="--cancel")
    raise typer.Exit(
        module.repair(
            node,
            f"gpu-{int(match[1])}",
            drain=drain,
            timeout_s=timeout_s,
            dry_run=dry_run,
            cancel=cancel,
            as_json=as_json,
            kubeconfig=kubeconfig,
            context=context,
        )
    )


def smoke(
    node: Annotated[str, typer.Argument(help="The node.")],
    together: Annotated[
        bool,
        typer.Option(
            "--together", help="All free GPUs in one pod, with NCCL's bandwidth if nccl-tests is in the image."
        ),
    ] = False,
    image: Annotated[
        str | None,
        typer.Option(help="Image with a shell; nvidia-smi comes with the devices. Default: a small one of CUDA's."),
    ] = None,
    also: Annotated[
        str, typer.Option("--also", metavar="COMMAND", help="A command that has to succeed in the container, too.")
    ] = "",
    namespace: Namespace = None,
    queue: Annotated[str | None, typer.Option(help="Queue of the pods. Default: as the namespace has it.")] = None,
    timeout_s: Annotated[float, typer.Option("--timeout", min=1, help="Seconds for each device.")] = 300.0,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Output = "table",
) -> None:
    """Test a node: allocate each free device, look at it from a container, clean up. Exit code 0: all well; 1: not; 3: none free."""
    from fairlead.cli.gpus import smoke as module
    from fairlead.cli.gpus.smoke_objects import IMAGE
    from fairlead.cli.views.reading import own_namespace

    options = module.Options(
        node=node,
        namespace=namespace or own_namespace(kubeconfig, context),
        together=together,
        image=image or IMAGE,
        also=also,
        queue=queue,
        timeout_s=timeout_s,
    )
    raise typer.Exit(module.smoke(options, output=output, kubeconfig=kubeconfig, context=context))
