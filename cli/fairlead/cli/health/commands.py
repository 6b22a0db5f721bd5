"""Flags of `fairlead doctor`, and of `fairlead check readiness`, which `check` takes in. Modules are imported when called."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from fairlead.cli.views.commands import Context, Kubeconfig, Output

ManagedDrivers = Annotated[
    list[str] | None,
    typer.Option(
        "--managed-driver",
        help="DRA driver whose devices Fairlead allocates; may be repeated. Default: as the controller's Deployment has it.",
    ),
]
TrySlices = Annotated[
    bool,
    typer.Option(
        "--try-slices/--no-try-slices",
        help="Create ResourceSlices with dryRun, to see which of their fields the apiserver keeps. Nothing is stored.",
    ),
]


class GroupKey(StrEnum):
    """Of the checklist."""

    INFRASTRUCTURE = "infrastructure"
    SCHEDULING = "scheduling"
    AUTOSCALING = "autoscaling"
    MONITORING = "monitoring"
    SECURITY = "security"
    STORAGE = "storage"
    MLOPS = "mlops"
    COST = "cost"
    VALIDATION = "validation"


def register(app: typer.Typer, check_app: typer.Typer) -> None:
    app.command(rich_help_panel="Ask a cluster")(doctor)
    check_app.command("readiness")(readiness)


def doctor(
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="Namespace of the pod that is created for trial.")
    ] = "default",
    try_webhook: Annotated[
        bool,
        typer.Option(
            "--try-webhook/--no-try-webhook",
            help="Create a pod with dryRun, to see whether the apiserver reaches the webhook. Nothing is stored.",
        ),
    ] = True,
    try_slices: TrySlices = True,
    managed_driver: ManagedDrivers = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Output = "table",
) -> None:
    """Say why nothing is scheduled: what is missing or in the way, the most likely cause first, each with the next step.

    It reads with your own rights, changes nothing, and names what it may not read.

    Exit status 0: nothing found that stops gangs (there may be notes). 1: something found. 2: wrong flags. 3: the cluster cannot be reached.
    """
    from fairlead.cli.health.doctor.report import doctor as run

    raise typer.Exit(
        run(
            namespace=namespace,
            drivers=managed_driver or (),
            try_slices=try_slices,
            try_webhook=try_webhook,
            output=output,
            kubeconfig=kubeconfig,
            context=context,
        )
    )


def readiness(
    group: Annotated[
        list[GroupKey] | None, typer.Option("--group", "-g", help="Only this group; may be repeated. Default: all.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as -o json.")] = False,
    try_slices: TrySlices = True,
    managed_driver: ManagedDrivers = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Output = "table",
) -> None:
    """Check what a GPU cluster needs before production, item by item: pass, fail, or not checkable here, with the fix.

    It reads with your own rights and changes nothing. What it may not read, or what no API shows, is not checkable here.

    Exit status 0: every item passes or is not checkable. 1: an item fails. 2: wrong flags. 3: the cluster cannot be reached.
    """
    from fairlead.cli.health.readiness.report import readiness as run

    raise typer.Exit(
        run(
            groups=group or (),
            try_slices=try_slices,
            drivers=managed_driver or (),
            output="json" if as_json else output,
            kubeconfig=kubeconfig,
            context=context,
        )
    )
