"""Flags of the subcommands for a GPU node: `devices`, `record`, `fault`, `load`. Modules are imported when called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.options import DynamicMig

PANEL = "On a GPU node"


def register(app: typer.Typer) -> None:
    for command in (devices, record, fault, load):
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
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILE]",
            help="File to write. Default: print it. With --anonymise IN OUT: what to read, where to write.",
        ),
    ] = None,
    backend: Annotated[str, typer.Option(help="nvml, or simulated:PROFILE.")] = "nvml",
    uuids: Annotated[bool, typer.Option("--uuids", help="Keep the GPUs' UUIDs.")] = False,
    anonymise: Annotated[
        bool,
        typer.Option(
            "--anonymise",
            help="Instead: copy a recording of decisions, or a snapshot, without names of objects and values of labels.",
        ),
    ] = False,
    key_file: Annotated[
        Path | None,
        typer.Option(
            help="With --anonymise: a secret; equal ones give equal pseudonyms. Default: a random one.", exists=True
        ),
    ] = None,
) -> None:
    """Write this node as a profile, to simulate it elsewhere; or, with --anonymise IN OUT, take the names out of recorded decisions."""
    if anonymise:
        from fairlead.cli.replay.anonymous import anonymous

        if paths is None or len(paths) != 2:
            raise typer.BadParameter(
                "name a recording (a directory, or a segment) or a snapshot, and where to write: --anonymise IN OUT",
                param_hint="IN OUT",
            )
        raise typer.Exit(anonymous(paths[0], paths[1], key_file))
    if paths and len(paths) > 1:
        raise typer.BadParameter(
            f"{paths[1]}: name one file to write the profile to; two are for --anonymise IN OUT", param_hint="FILE"
        )
    if paths and paths[0].exists():
        raise typer.BadParameter(
            f"{paths[0]}: is there already; name a new file for the profile, or --anonymise IN OUT to take names out of that one",
            param_hint="FILE",
        )
    from fairlead.cli.node.devices import record as write

    raise typer.Exit(write(backend, output=paths[0] if paths else None, uuids=uuids))


def fault(
    device: Annotated[str, typer.Argument(help="A whole GPU, such as gpu-3; with --mend also `all`.")],
    plugins_dir: Annotated[Path, typer.Option(help="The --plugins-dir of the driver on simulated hardware.")],
    xid: Annotated[int | None, typer.Option(help="Report this Xid.")] = None,
    lost: Annotated[bool, typer.Option("--lost", help="Let it fall off the bus.")] = False,
    throttle: Annotated[
        str | None, typer.Option(metavar="REASON", help="Hold its clocks down, for thermal_hw, say.")
    ] = None,
    ecc: Annotated[
        str | None, typer.Option(metavar="KIND", help="Count an ECC error more: corrected or uncorrected.")
    ] = None,
    reset_fails: Annotated[bool, typer.Option("--reset-fails", help="Let its resets fail.")] = False,
    mend: Annotated[bool, typer.Option("--mend", help="Make it well again.")] = False,
) -> None:
    """Break a simulated GPU, or make it well again."""
    from fairlead.cli.node.devices import fault as inject

    raise typer.Exit(
        inject(
            device,
            plugins_dir=plugins_dir,
            xid=xid,
            lost=lost,
            throttle=throttle,
            ecc=ecc,
            reset_fails=reset_fails,
            mend=mend,
        )
    )


def load(
    device: Annotated[str, typer.Argument(help="A GPU such as gpu-3, a MIG device by its full name, or `held`.")],
    plugins_dir: Annotated[Path, typer.Option(help="The --plugins-dir of the driver on simulated hardware.")],
    utilization: Annotated[float, typer.Option(min=0, max=100, metavar="PERCENT", help="How busy it is.")] = 0.0,
    memory: Annotated[str, typer.Option(metavar="QUANTITY", help="How much memory is in use, as 20Gi.")] = "0",
    nvlink: Annotated[
        str | None, typer.Option(metavar="QUANTITY", help="Bytes a second over NVLink; by default as it is busy.")
    ] = None,
) -> None:
    """Put a load on a simulated GPU, or with `held` on all that claims hold; without options it becomes idle."""
    from fairlead.cli.node.devices import load as put

    raise typer.Exit(put(device, plugins_dir=plugins_dir, utilization=utilization, memory=memory, nvlink=nvlink))
