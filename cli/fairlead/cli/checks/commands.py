"""`check manifests` and `check cel`. What they do is imported when they run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from fairlead.kube.flags import DRIVERS, ManagedDrivers


@dataclass(frozen=True, kw_only=True)
class Manifests:
    """Say what the webhook would say of manifests, what the pods of their jobs would get, and what other controllers make go wrong."""

    files: Annotated[
        tuple[Path, ...],
        typer.Argument(
            help="Manifests: files, directories, or - for standard input; also jupyterhub_config.py or its chart's values, a compiled "
            "pipeline of Kubeflow, backend_config.json of an MLflow Project.",
            metavar="FILE…",
        ),
    ]
    policies: Annotated[
        tuple[Path, ...],
        typer.Option("--policies", help="Manifests that the verdicts depend on, but that are not judged.", exists=True),
    ] = ()
    kubeconfig: Annotated[
        Path | None,
        typer.Option(help="Take policies, classes, templates and devices from this cluster, too.", exists=True),
    ] = None
    user: Annotated[str, typer.Option("--as", help="User that applies them, for exemptions.")] = "fairlead-check"
    groups: Annotated[tuple[str, ...], typer.Option("--as-group", help="Group of that user.")] = ()
    managed_drivers: ManagedDrivers = DRIVERS
    output: Annotated[Literal["text", "json"], typer.Option("--output", "-o", help="Form of the answer.")] = "text"

    def run(self) -> int:
        from fairlead.cli.checks.manifests import check

        return check(self)


@dataclass(frozen=True, kw_only=True)
class Cel:
    """Compile a device selector as the apiserver would; show its type, cost, and what it reads."""

    expression: Annotated[str, typer.Argument(help="A DRA device selector.")]
    device: Annotated[
        Path | None,
        typer.Option(help="A ResourceSlice (YAML or JSON): the verdict for each of its devices.", exists=True),
    ] = None

    def run(self) -> int:
        from fairlead.cli.checks.cel import check

        return check(self.expression, device=self.device)
