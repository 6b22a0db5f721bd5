"""`demo` and `crds`, which need no cluster. What they do is imported when they run."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from fairlead.cli.printer import say

NO_SANDBOX = (
    "fairlead demo: fairlead.sandbox is not installed here (the image leaves it out); "
    "run `make demo` in a checkout, or install the wheel with pip"
)


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Start a cluster in this process, run the main job on it, and check what happened."""

    progress: ClassVar[bool] = False
    keep: Annotated[bool, typer.Option("--keep", help="Leave the cluster running and print its KUBECONFIG.")] = False
    plain: Annotated[bool, typer.Option("--plain", help="Lines instead of a live view.")] = False
    workdir: Annotated[
        Path | None, typer.Option(help="Keep sockets, specs, logs and the kubeconfig here. Default: a new directory.")
    ] = None
    kubernetes: Annotated[
        str,
        typer.Option(
            metavar="RELEASE",
            help="Which Kubernetes the cluster is: 1.34, 1.35 or 1.36, as an installation of it without flags of its own. "
            "Default: the newest.",
        ),
    ] = ""

    def run(self) -> int:
        start_s = time.monotonic()
        try:
            from fairlead.sandbox.install import programs
            from fairlead.sandbox.release import NEWEST, chosen
        except ModuleNotFoundError as error:
            if not str(error.name).startswith("fairlead.sandbox"):
                raise
            say(NO_SANDBOX, file=sys.stderr)
            return 1
        try:
            release = chosen(self.kubernetes) if self.kubernetes else NEWEST
        except ValueError as error:
            say(f"fairlead demo: --kubernetes={error}", file=sys.stderr)
            return 2
        say("  0.0s loading the sandbox and the three programs", flush=True)
        programs.preload()
        from fairlead.cli.demo.run import run_demo

        plain = self.plain or not sys.stdout.isatty()
        return run_demo(keep=self.keep, plain=plain, workdir=self.workdir, release=release, start_s=start_s)


@dataclass(frozen=True, kw_only=True)
class Crds:
    """Generate the CustomResourceDefinitions of Queue, Flavor, TenancyPolicy and Gang."""

    output: Annotated[
        Path | None,
        typer.Option(help="Write one file per kind into this directory. Default: print all.", file_okay=False),
    ] = None

    def run(self) -> None:
        from fairlead.api import crds as generated

        files = generated.render()
        if self.output is None:
            say("---\n".join(files[name] for name in sorted(files)), end="")
            return
        self.output.mkdir(parents=True, exist_ok=True)
        for name, text in sorted(files.items()):
            (self.output / name).write_text(text)
            say(self.output / name)
