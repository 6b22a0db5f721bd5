"""The `fairlead` command: its subcommands, in the groups that help shows, and the names it is called by.

Each subcommand's module is imported when it is called, so that `fairlead --help` and the small commands do not pay for grpc,
the Kubernetes client or NVML.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from fairlead.api.version import VERSION
from fairlead.cli import local_commands
from fairlead.cli.checks.commands import check_app
from fairlead.cli.cost import commands as cost_commands
from fairlead.cli.gpus import commands as gpu_commands
from fairlead.cli.health import commands as health_commands
from fairlead.cli.imports import commands as import_commands
from fairlead.cli.ledger.commands import ledger_app
from fairlead.cli.node import commands as node_commands
from fairlead.cli.operate import commands as operate_commands
from fairlead.cli.printer import fail, say
from fairlead.cli.programs import commands as program_commands
from fairlead.cli.replay import commands as replay_commands
from fairlead.cli.tenant.commands import PANEL as TENANT_PANEL
from fairlead.cli.tenant.commands import tenant_app
from fairlead.cli.views import commands as cluster_commands
from fairlead.cli.what_if import commands as what_if_commands

app = typer.Typer(
    name="fairlead",
    help="GPUs of a shared Kubernetes cluster, given to whole jobs, fairly.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for commands in (
    cluster_commands,
    what_if_commands,
    cost_commands,
    program_commands,
    replay_commands,
    gpu_commands,
    operate_commands,
    node_commands,
    import_commands,
    local_commands,
):
    commands.register(app)
health_commands.register(app, check_app)
app.add_typer(tenant_app, name="tenant", rich_help_panel=TENANT_PANEL)
app.add_typer(check_app, name="check", rich_help_panel=local_commands.PANEL)
app.add_typer(ledger_app, name="ledger", rich_help_panel=replay_commands.PANEL)


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
    try:
        app(prog_name="kubectl fairlead" if called.startswith("kubectl-") else "fairlead")
    except Exception as error:
        fail(error)
        sys.exit(1)
