"""Flags of `fairlead check …`. Modules are imported when called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from fairlead.cli.options import ManagedDrivers, drivers


class _ManifestsByDefault(TyperGroup):
    """`fairlead check FILE…` is `fairlead check manifests FILE…`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        named = not args or args[0] in self.commands or args[0] in {"-h", "--help"}
        return super().parse_args(ctx, args if named else ["manifests", *args])


check_app = typer.Typer(
    cls=_ManifestsByDefault,
    help="Say what a cluster would say, without one: check FILE…, or one of the commands; `readiness` asks a cluster.",
    no_args_is_help=True,
)


@check_app.command("manifests")
def check_manifests(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Manifests: files, directories, or - for standard input; also jupyterhub_config.py or its chart's values, a compiled "
            "pipeline of Kubeflow, backend_config.json of an MLflow Project.",
            metavar="FILE…",
        ),
    ],
    policies: Annotated[
        list[Path] | None,
        typer.Option("--policies", help="Manifests that the verdicts depend on, but that are not judged.", exists=True),
    ] = None,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(help="Take policies, classes, templates and devices from this cluster, too.", exists=True),
    ] = None,
    user: Annotated[str, typer.Option("--as", help="User that applies them, for exemptions.")] = "fairlead-check",
    groups: Annotated[list[str] | None, typer.Option("--as-group", help="Group of that user.")] = None,
    managed_driver: ManagedDrivers = None,
    output: Annotated[Literal["text", "json"], typer.Option("--output", "-o", help="Form of the answer.")] = "text",
) -> None:
    """Say what the webhook would say of manifests, what the pods of their jobs would get, and what other controllers make go wrong."""
    from fairlead.cli.checks.manifests import check

    status = check(
        files,
        policies=policies or (),
        kubeconfig=kubeconfig,
        user=user,
        groups=groups or (),
        drivers=drivers(managed_driver),
        output=output,
    )
    raise typer.Exit(status)


@check_app.command("cel")
def check_cel(
    expression: Annotated[str, typer.Argument(help="A DRA device selector.")],
    device: Annotated[
        Path | None,
        typer.Option(help="A ResourceSlice (YAML or JSON): the verdict for each of its devices.", exists=True),
    ] = None,
) -> None:
    """Compile a device selector as the apiserver would; show its type, cost, and what it reads."""
    from fairlead.cli.checks.cel import check

    raise typer.Exit(check(expression, device=device))
