"""`fairlead controller`. The program is imported when it runs."""

from __future__ import annotations

from dataclasses import dataclass

import typer

from fairlead.cli.options import Logged
from fairlead.controller.options import ControllerOptions


@dataclass(frozen=True, kw_only=True)
class Controller(ControllerOptions, Logged):
    """Run the controller: decide which gangs get which GPUs, and give them."""

    def run(self) -> None:
        import uvloop

        from fairlead.cli.serve import serve
        from fairlead.controller.app import run
        from fairlead.history.ledger.store.place import LedgerError, place_of

        if self.ledger is not None:
            try:
                place_of(self.ledger)
            except LedgerError as error:
                raise typer.BadParameter(str(error), param_hint="--ledger") from None
        serve(run, self, loop=uvloop.new_event_loop)
