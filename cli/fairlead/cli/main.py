"""The `fairlead` command: its subcommands, in the groups that help shows, and the names it is called by.

A command's module is imported when that command is called, or when all are listed.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import Annotated

import typer

from fairlead.api.version import VERSION
from fairlead.cli.command import Group, group_class
from fairlead.cli.printer import fail, say

CHECK = Group(
    help="Say what a cluster would say, without one: check FILE…, or one of the commands; `readiness` asks a cluster.",
    commands={
        "manifests": "checks.commands:Manifests",
        "cel": "checks.commands:Cel",
        "readiness": "health.commands:Readiness",
    },
    default="manifests",
)
HOLD = Group(
    help="Admit nothing of a gang or queue until it is resumed; what runs goes on, without --evict.",
    commands={"gang": "operate.commands:HoldGang", "queue": "operate.commands:HoldQueue"},
)
RESUME = Group(
    help="End a hold.",
    commands={"gang": "operate.commands:ResumeGang", "queue": "operate.commands:ResumeQueue"},
)
DEVICE = Group(
    help="Keep new claims off a GPU, and give it back.",
    commands={
        "drain": "operate.commands:Drain",
        "undrain": "operate.commands:Undrain",
        "resume": "operate.commands:Resume",
        "list": "operate.commands:Drained",
    },
)
TENANT = Group(
    help="A team's baseline: namespaces, queue, quotas, Pod Security, network, roles. To remove one: see `create`.",
    commands={
        "create": "tenant.commands:Create",
        "list": "tenant.commands:List",
        "show": "tenant.commands:Show",
    },
)
LEDGER = Group(
    help="Copy, look at, shorten and check the ledger of where GPU time went.",
    commands={
        "backup": "ledger.commands:Backup",
        "info": "ledger.commands:Info",
        "prune": "ledger.commands:Prune",
        "check": "ledger.commands:Check",
        "claims": "ledger.commands:Claims",
    },
)
PANELS: dict[str, dict[str, str | Group]] = {
    "Ask a cluster": {
        "queues": "views.commands:Queues",
        "gangs": "views.commands:Gangs",
        "explain": "views.commands:Explain",
        "ui": "pages.commands:Ui",
        "what-if": "what_if.commands:WhatIf",
        "top": "operate.commands:Top",
        "doctor": "health.commands:Doctor",
    },
    "Costs": {"cost": "cost.commands:Cost", "report": "cost.commands:Report"},
    "Run a part of Fairlead": {
        "driver": "programs.driver:Driver",
        "webhook": "programs.webhook:Webhook",
        "controller": "programs.controller:Controller",
        "drain": "programs.commands:Drain",
        "recreate": "programs.commands:Recreate",
    },
    "Recorded decisions": {
        "replay": "replay.commands:Replay",
        "snapshot": "replay.commands:Snapshot",
        "ledger": LEDGER,
    },
    "Care for GPUs": {"repair": "gpus.commands:Repair", "smoke": "gpus.commands:SmokeTest"},
    "Operate": {"hold": HOLD, "resume": RESUME, "device": DEVICE},
    "On a GPU node": {
        "devices": "node.commands:Devices",
        "record": "node.commands:Record",
        "fault": "node.commands:Fault",
        "load": "node.commands:Load",
    },
    "Moving to Fairlead": {"import": "imports.commands:Import"},
    "Without a cluster": {
        "demo": "local_commands:Demo",
        "simulate": "simulate.commands:Simulate",
        "crds": "local_commands:Crds",
        "check": CHECK,
    },
    "Set up a team": {"tenant": TENANT},
}
PROGRAMS = ("driver", "webhook", "controller")
app = typer.Typer(
    name="fairlead",
    help="GPUs of a shared Kubernetes cluster, given to whole jobs, fairly.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    cls=group_class({name: (panel, given) for panel, table in PANELS.items() for name, given in table.items()}),
)


def _version(value: bool) -> None:
    if value:
        say(f"fairlead {VERSION}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    pass


def main() -> None:
    """Also what `kubectl fairlead` calls: kubectl runs the program kubectl-fairlead."""
    called = Path(sys.argv[0]).name
    if sys.argv[1:2] and sys.argv[1] in PROGRAMS:
        gc.disable()  # `serve` enables it once everything is imported: until then there is no garbage to collect
    try:
        app(prog_name="kubectl fairlead" if called.startswith("kubectl-") else "fairlead")
    except Exception as error:
        fail(error)
        sys.exit(1)
