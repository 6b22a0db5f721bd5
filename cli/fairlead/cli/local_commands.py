"""Flags of the subcommands that need no cluster: `demo`, `simulate`, `crds`. Modules are imported when called."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from fairlead.cli.printer import say

PANEL = "Without a cluster"
NO_SANDBOX = (
    "fairlead demo: fairlead.sandbox is not installed here (the image leaves it out); "
    "run `make demo` in a checkout, or install the wheel with pip"
)


def register(app: typer.Typer) -> None:
    for command in (demo, simulate, crds):
        app.command(rich_help_panel=PANEL)(command)


def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Leave the cluster running and print its KUBECONFIG.")] = False,
    plain: Annotated[bool, typer.Option("--plain", help="Lines instead of a live view.")] = False,
    workdir: Annotated[
        Path | None, typer.Option(help="Keep sockets, specs, logs and the kubeconfig here. Default: a new directory.")
    ] = None,
    kubernetes: Annotated[
        str,
        typer.Option(
            metavar="RELEASE",
            help="Which Kubernetes the cluster is: 1.34, 1.35 or 1.36, as an installation of it without flags of its own. "
            "Default: the newest.",
        ),
    ] = "",
) -> None:
    """Start a cluster in this process, run the main job on it, and check what happened."""
    try:
        from fairlead.cli.demo.run import run_demo
        from fairlead.sandbox.release import NEWEST, chosen
    except ModuleNotFoundError as error:
        if not str(error.name).startswith("fairlead.sandbox"):
            raise
        say(NO_SANDBOX, file=sys.stderr)
        raise typer.Exit(1) from None
    try:
        release = chosen(kubernetes) if kubernetes else NEWEST
    except ValueError as error:
        say(f"fairlead demo: --kubernetes={error}", file=sys.stderr)
        raise typer.Exit(2) from None
    raise typer.Exit(run_demo(keep=keep, plain=plain or not sys.stdout.isatty(), workdir=workdir, release=release))


def simulate(
    nodes: Annotated[Path, typer.Option(help="CSV of the nodes: sn, cpu_milli, memory_mib, gpu, model.")],
    pods: Annotated[
        Path, typer.Option(help="CSV of the pods: name, cpu_milli, memory_mib, num_gpu, gpu_milli, gpu_spec.")
    ],
    arrivals: Annotated[
        Path | None,
        typer.Option(help="CSV of recorded arrivals, a column per seed. Default: draw them by the protocol."),
    ] = None,
    seed: Annotated[
        list[str] | None, typer.Option(metavar="N|N-M", help="Run to replay; may be repeated. Default: 42.")
    ] = None,
    policy: Annotated[
        Literal["fairlead", "best-fit", "fgd", "random"],
        typer.Option(help="The rule of placement: ours, or one to compare with."),
    ] = "fairlead",
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write all figures there.")] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the plot there, as SVG.")] = None,
) -> None:
    """Replay a placement trace through the controller's placement, beside other policies."""
    from fairlead.cli.simulate.command import simulate as run
    from fairlead.cli.simulate.protocol import parse_seeds

    try:
        seeds = parse_seeds(seed or ["42"])
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--seed") from None
    raise typer.Exit(run(nodes, pods, arrivals, seeds=seeds, policy=policy, json_file=json_file, plot=plot))


def crds(
    output: Annotated[
        Path | None,
        typer.Option(help="Write one file per kind into this directory. Default: print all.", file_okay=False),
    ] = None,
) -> None:
    """Generate the CustomResourceDefinitions of Queue, Flavor, TenancyPolicy and Gang."""
    from fairlead.api import crds as generated

    files = generated.render()
    if output is None:
        say("---\n".join(files[name] for name in sorted(files)), end="")
        return
    output.mkdir(parents=True, exist_ok=True)
    for name, text in sorted(files.items()):
        (output / name).write_text(text)
        say(output / name)
