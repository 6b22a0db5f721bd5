"""`devices`, `record`, `fault`, `load`, for a GPU node. What they do is imported when they run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.options import Output
from fairlead.kube.flags import DynamicMig

Backend = Annotated[str, typer.Option(help="nvml, or simulated:PROFILE.")]
PluginsDir = Annotated[Path, typer.Option(help="The --plugins-dir of the driver on simulated hardware.")]


@dataclass(frozen=True, kw_only=True)
class Devices:
    """Show the devices that a driver on this node would publish."""

    backend: Backend = "nvml"
    dynamic_mig: DynamicMig = False
    output: Output = "table"

    def run(self) -> int:
        from fairlead.cli.node.devices import devices

        return devices(self.backend, dynamic_mig=self.dynamic_mig, output=self.output)


@dataclass(frozen=True, kw_only=True)
class Record:
    """Write this node as a profile, to simulate it elsewhere; or, with --anonymise IN OUT, take the names out of recorded decisions."""

    paths: Annotated[
        tuple[Path, ...],
        typer.Argument(
            metavar="[FILE]",
            help="File to write. Default: print it. With --anonymise IN OUT: what to read, where to write.",
        ),
    ] = ()
    backend: Backend = "nvml"
    uuids: Annotated[bool, typer.Option("--uuids", help="Keep the GPUs' UUIDs.")] = False
    anonymise: Annotated[
        bool,
        typer.Option(
            "--anonymise",
            help="Instead: copy a recording of decisions, or a snapshot, without names of objects and values of labels.",
        ),
    ] = False
    key_file: Annotated[
        Path | None,
        typer.Option(
            help="With --anonymise: a secret; equal ones give equal pseudonyms. Default: a random one.", exists=True
        ),
    ] = None

    def run(self) -> int:
        if self.anonymise:
            from fairlead.cli.replay.anonymous import anonymous

            if len(self.paths) != 2:
                raise typer.BadParameter(
                    "name a recording (a directory, or a segment) or a snapshot, and where to write: --anonymise IN OUT",
                    param_hint="IN OUT",
                )
            return anonymous(*self.paths, self.key_file)
        if len(self.paths) > 1:
            raise typer.BadParameter(
                f"{self.paths[1]}: name one file to write the profile to; two are for --anonymise IN OUT",
                param_hint="FILE",
            )
        if self.paths and self.paths[0].exists():
            raise typer.BadParameter(
                f"{self.paths[0]}: is there already; name a new file for the profile, or --anonymise IN OUT to take names out of "
                "that one",
                param_hint="FILE",
            )
        from fairlead.cli.node.devices import record

        return record(self.backend, output=self.paths[0] if self.paths else None, uuids=self.uuids)


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Break a simulated GPU, or make it well again."""

    device: Annotated[str, typer.Argument(help="A whole GPU, such as gpu-3; with --mend also `all`.")]
    plugins_dir: PluginsDir
    xid: Annotated[int | None, typer.Option(help="Report this Xid.")] = None
    lost: Annotated[bool, typer.Option("--lost", help="Let it fall off the bus.")] = False
    throttle: Annotated[
        str | None, typer.Option(metavar="REASON", help="Hold its clocks down, for thermal_hw, say.")
    ] = None
    ecc: Annotated[
        str | None, typer.Option(metavar="KIND", help="Count an ECC error more: corrected or uncorrected.")
    ] = None
    reset_fails: Annotated[bool, typer.Option("--reset-fails", help="Let its resets fail.")] = False
    mend: Annotated[bool, typer.Option("--mend", help="Make it well again.")] = False

    def run(self) -> int:
        from fairlead.cli.node.devices import inject

        return inject(self)


@dataclass(frozen=True, kw_only=True)
class Load:
    """Put a load on a simulated GPU, or with `held` on all that claims hold; without options it becomes idle."""

    device: Annotated[str, typer.Argument(help="A GPU such as gpu-3, a MIG device by its full name, or `held`.")]
    plugins_dir: PluginsDir
    utilization: Annotated[float, typer.Option(min=0, max=100, metavar="PERCENT", help="How busy it is.")] = 0.0
    memory: Annotated[str, typer.Option(metavar="QUANTITY", help="How much memory is in use, as 20Gi.")] = "0"
    nvlink: Annotated[
        str | None, typer.Option(metavar="QUANTITY", help="Bytes a second over NVLink; by default as it is busy.")
    ] = None

    def run(self) -> int:
        from fairlead.cli.node.devices import load

        return load(self)
