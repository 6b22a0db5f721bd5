"""`doctor` and `check readiness`. What they do is imported when they run."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer

from fairlead.cli.options import Shown


class GroupKey(StrEnum):
    """A group of the checklist."""

    INFRASTRUCTURE = "infrastructure"
    SCHEDULING = "scheduling"
    AUTOSCALING = "autoscaling"
    MONITORING = "monitoring"
    SECURITY = "security"
    STORAGE = "storage"
    MLOPS = "mlops"
    COST = "cost"
    VALIDATION = "validation"


@dataclass(frozen=True, kw_only=True)
class Looking(Shown):
    """One that looks for what is wrong with a cluster."""

    try_slices: Annotated[
        bool,
        typer.Option(
            "--try-slices/--no-try-slices",
            help="Create ResourceSlices with dryRun, to see which of their fields the apiserver keeps. Nothing is stored.",
        ),
    ] = True
    managed_drivers: Annotated[
        tuple[str, ...],
        typer.Option(
            "--managed-driver",
            help="DRA driver whose devices Fairlead allocates; may be repeated. Default: as the controller's Deployment has it.",
        ),
    ] = ()


@dataclass(frozen=True, kw_only=True)
class Doctor(Looking):
    """Say why nothing is scheduled: what is missing or in the way, the most likely cause first, each with the next step.

    It reads with your own rights, changes nothing, and names what it may not read.

    Exit status 0: nothing found that stops gangs (there may be notes). 1: something found. 2: wrong flags. 3: the cluster cannot be reached.
    """

    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="Namespace of the pod that is created for trial.")
    ] = "default"
    try_webhook: Annotated[
        bool,
        typer.Option(
            "--try-webhook/--no-try-webhook",
            help="Create a pod with dryRun, to see whether the apiserver reaches the webhook. Nothing is stored.",
        ),
    ] = True

    def run(self) -> int:
        from fairlead.cli.health.doctor.report import doctor

        return doctor(self)


@dataclass(frozen=True, kw_only=True)
class Readiness(Looking):
    """Check what a GPU cluster needs before production, item by item: pass, fail, or not checkable here, with the fix.

    It reads with your own rights and changes nothing. What it may not read, or what no API shows, is not checkable here.

    Exit status 0: every item passes or is not checkable. 1: an item fails. 2: wrong flags. 3: the cluster cannot be reached.
    """

    groups: Annotated[
        tuple[GroupKey, ...],
        typer.Option("--group", "-g", help="Only this group; may be repeated. Default: all."),
    ] = ()
    as_json: Annotated[bool, typer.Option("--json", help="The same as -o json.")] = False

    def run(self) -> int:
        from fairlead.cli.health.readiness.report import readiness

        return readiness(self)
