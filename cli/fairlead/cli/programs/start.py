"""The entrance of `fairlead`: a program that runs for long is started without the other commands, which would cost it CPU time.

A node's driver has a third of a core, and claims wait while it starts: the options of the 40 other commands are a tenth of its start, and
collections of garbage, of which there is none yet, another. What help and errors say is the same.
"""

from __future__ import annotations

import gc
import sys
from typing import Final

import typer

PROGRAMS: Final = ("driver", "webhook", "controller")


def program_app(name: str) -> typer.Typer:
    """An app with this one subcommand."""
    from fairlead.cli.programs import commands

    app = typer.Typer(
        name="fairlead", pretty_exceptions_enable=False, context_settings={"help_option_names": ["-h", "--help"]}
    )
    app.command()(getattr(commands, name))
    app.callback()(lambda: None)  # with it, a single command keeps its name
    return app


def main() -> None:
    """What the installed scripts call, also as kubectl-fairlead."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in PROGRAMS:
        from fairlead.cli import main as all_commands

        all_commands.main()
        return
    gc.disable()  # `serve` enables it once everything is imported
    try:
        program_app(name)(prog_name="fairlead")
    except Exception as error:
        from fairlead.cli.printer import fail

        fail(error)
        sys.exit(1)
