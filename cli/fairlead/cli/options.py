"""Flags that several commands have, declared once; the programs' own are `fairlead.kube.flags`'."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import typer

from fairlead.cli import completion
from fairlead.kube.flags import Form

Context = Annotated[
    str | None,
    typer.Option(help="Context of the kubeconfig. Default: its current one.", autocompletion=completion.of_contexts),
]
Namespace = Annotated[
    str | None,
    typer.Option("--namespace", "-n", help="Default: the context's namespace.", autocompletion=completion.namespaces),
]
Snapshot = Annotated[
    Path | None,
    typer.Option(help="Read this file (`fairlead snapshot > FILE`) instead of a cluster.", exists=True, dir_okay=False),
]
Output = Annotated[
    Literal["table", "json", "yaml"],
    typer.Option("--output", "-o", help="A table for people; json or yaml for programs."),
]
Lines = Annotated[bool, typer.Option("--json", help="A line of JSON for everything that happens.")]


def _one_line(text: str) -> str:
    from fairlead.api.gang import REASON_MAX  # with the models of our kinds

    text = text.strip()
    if len(text) > REASON_MAX:
        raise ValueError(f"has {len(text)} characters: write at most {REASON_MAX}")
    if not text.isprintable():
        raise ValueError("has a line break or control character: write one line of plain text")
    return text


LINE = Form(_one_line, str)
LogFormat = Literal["json", "text"]
LogLevel = Literal["ERROR", "WARNING", "INFO", "DEBUG"]


@dataclass(frozen=True, kw_only=True)
class Logged:
    """A program that writes a log."""

    progress: ClassVar[bool] = False
    log_format: Annotated[LogFormat, typer.Option("--log-format", help="Form of the log lines.")] = "json"
    log_level: Annotated[LogLevel, typer.Option("--log-level", help="Least level shown.")] = "INFO"
