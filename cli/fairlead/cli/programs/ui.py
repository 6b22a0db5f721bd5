"""`fairlead ui`. The pages are imported when it runs."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated

import typer

from fairlead.cli.options import Context, Logged, Snapshot
from fairlead.cli.printer import say
from fairlead.ui.options import UiOptions

NO_PAGES = "fairlead ui: Jinja2 is not installed here; install Fairlead with pip and its extra: fairlead[ui]"


@dataclass(frozen=True, kw_only=True)
class Ui(UiOptions, Logged):
    """Serve pages about the cluster: on loopback, with your own rights, or for all who log in. Devices, queues, gangs."""

    port: Annotated[int, typer.Option(help="Port on loopback; 0: any free one.", min=0, max=65535)] = 8470
    snapshot: Snapshot = None
    context: Context = None

    def run(self) -> int | None:
        try:
            from fairlead.cli.programs.loopback import show
        except ModuleNotFoundError as error:
            if error.name != "jinja2":
                raise
            say(NO_PAGES, file=sys.stderr)
            return 1
        if self.login is None:
            return show(self)
        import uvloop

        from fairlead.cli.serve import serve
        from fairlead.ui.app import run

        for flag, value in (("--snapshot", self.snapshot), ("--context", self.context)):
            if value is not None:
                raise typer.BadParameter("is for pages on loopback: leave out --login", param_hint=flag)
        serve(run, self, loop=uvloop.new_event_loop)
        return 0
