"""The `fairlead` command: its subcommands, in the groups that help shows, and the names it is called by.

A command's module is imported when that command is called.
"""

from __future__ import annotations

import gc
import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from fairlead.api.version import VERSION
from fairlead.cli.command import Group, group_class
from fairlead.cli.completion import NO_FILES
from fairlead.cli.printer import fail, say

CHECK = Group(
    help="Say what a cluster would say, without one: check FILE…, or one of the commands; `readiness` asks a cluster.",
    commands={
        "manifests": "checks.manifests:Manifests",
        "cel": "checks.cel:Cel",
        "readiness": "health.readiness.checklist:Readiness",
    },
    default="manifests",
)
HOLD = Group(
    help="Admit nothing of a gang or queue until it is resumed; what runs goes on, without --evict.",
    commands={"gang": "operate.hold:HoldGang", "queue": "operate.hold:HoldQueue"},
)
RESUME = Group(help="End a hold.", commands={"gang": "operate.hold:ResumeGang", "queue": "operate.hold:ResumeQueue"})
DEVICE = Group(
    help="Keep new claims off a GPU, and give it back.",
    commands={
        "drain": "operate.device:Drain",
        "undrain": "operate.device:Undrain",
        "resume": "operate.device:Undrain",
        "list": "operate.device:Drained",
    },
    unlisted=frozenset({"resume"}),  # undrain, for those who look for it
)
TENANT = Group(
    help="A team's baseline: namespaces, queue, quotas, Pod Security, network, roles. To remove one: see `create`.",
    commands={"create": "tenant.create:Create", "list": "tenant.applying:List", "show": "tenant.applying:Show"},
)
LEDGER = Group(
    help="Copy, look at, shorten and check the ledger of where GPU time went.",
    commands={
        "backup": "ledger:Backup",
        "info": "ledger:Info",
        "prune": "ledger:Prune",
        "check": "ledger:Check",
        "claims": "ledger:Claims",
    },
)
PANELS: dict[str, dict[str, str | Group]] = {
    "Ask a cluster": {
        "queues": "views.queues:Queues",
        "gangs": "views.gangs:Gangs",
        "nodes": "views.nodes:Nodes",
        "flavors": "views.flavors:Flavors",
        "explain": "views.explain:Explain",
        "ui": "programs.ui:Ui",
        "what-if": "what_if:WhatIf",
        "top": "operate.top:Top",
        "doctor": "health.doctor.diagnosis:Doctor",
        "check readiness": "health.readiness.checklist:Readiness",
    },
    "Costs": {"cost": "cost.cost:Cost", "report": "cost.report:Report"},
    "Run a part of Fairlead": {
        "driver": "programs.driver:Driver",
        "webhook": "programs.webhook:Webhook",
        "controller": "programs.controller:Controller",
    },
    "Recorded decisions": {"replay": "replay:Replay", "snapshot": "snapshot:Snapshot", "ledger": LEDGER},
    "Care for GPUs": {"repair": "gpus.repair:Repair", "smoke": "gpus.smoke:SmokeTest"},
    "Operate": {
        "hold": HOLD,
        "resume": RESUME,
        "device": DEVICE,
        "recreate": "programs.uninstall:Recreate",
        "prepare-uninstall": "programs.uninstall:PrepareUninstall",
    },
    "On a GPU node": {"devices": "node:Devices", "record": "node:Record", "fault": "node:Fault", "load": "node:Load"},
    "Moving to Fairlead": {"import": "imports.command:Import"},
    "Without a cluster": {
        "demo": "local_commands:Demo",
        "simulate": "simulate.command:Simulate",
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


def complete_for_kubectl() -> None:
    """What may follow `kubectl fairlead WORD…`, the last word being unfinished, in kubectl's form."""
    words = ["fairlead", *sys.argv[1:]]
    os.environ |= {
        "_FAIRLEAD_COMPLETE": "complete_bash",
        "COMP_WORDS": shlex.join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    try:
        app(prog_name="fairlead")
    finally:
        say(NO_FILES)


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
