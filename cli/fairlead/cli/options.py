"""Flags that several commands have, declared once; the programs' own are `fairlead.kube.flags`'."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from fairlead.kube.flags import KUBECONFIG

Context = Annotated[str | None, typer.Option(help="Context of the kubeconfig. Default: its current one.")]
Namespace = Annotated[str | None, typer.Option("--namespace", "-n", help="Default: the context's namespace.")]
Snapshot = Annotated[
    Path | None,
    typer.Option(help="Read this file (`fairlead snapshot > FILE`) instead of a cluster.", exists=True, dir_okay=False),
]
Output = Annotated[
    Literal["table", "json", "yaml"],
    typer.Option("--output", "-o", help="A table for people; json or yaml for programs."),
]
Lines = Annotated[bool, typer.Option("--json", help="A line of JSON for everything that happens.")]
LogFormat = Literal["json", "text"]
LogLevel = Literal["ERROR", "WARNING", "INFO", "DEBUG"]


@dataclass(frozen=True, kw_only=True)
class OfCluster:
    """A command that asks a cluster with the user's rights."""

    kubeconfig: Annotated[Path | None, KUBECONFIG] = None
    context: Context = None


@dataclass(frozen=True, kw_only=True)
class Shown(OfCluster):
    """One that shows what it read."""

    output: Output = "table"


@dataclass(frozen=True, kw_only=True)
class Logged:
    """A program that writes a log."""

    log_format: Annotated[LogFormat, typer.Option("--log-format", help="Form of the log lines.")] = "json"
    log_level: Annotated[LogLevel, typer.Option("--log-level", help="Least level shown.")] = "INFO"
