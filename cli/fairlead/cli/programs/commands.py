"""`drain`, which empties a cluster before Fairlead is uninstalled, and `recreate`. What they do is imported when they run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from fairlead.cli.options import OfCluster
from fairlead.kube.flags import DRIVERS, ManagedDrivers


@dataclass(frozen=True, kw_only=True)
class Drain(OfCluster):
    """Before an uninstall: say which claims still hold devices, or end them. Exit code 1 while any does."""

    node: Annotated[str, typer.Argument(hidden=True)] = ""
    evict: Annotated[
        bool, typer.Option("--evict", help="Stop the controller, then evict the pods that hold devices.")
    ] = False
    timeout_s: Annotated[float, typer.Option("--timeout", min=0, help="Seconds to wait for evicted pods.")] = 300.0
    managed_drivers: ManagedDrivers = DRIVERS

    def run(self) -> int:
        from fairlead.cli.programs.drain import drain

        if self.node:
            message = f"{self.node}: this empties the whole cluster before an uninstall; for one node: kubectl drain {self.node}"
            raise typer.BadParameter(message, param_hint="drain")
        return drain(self)


@dataclass(frozen=True, kw_only=True)
class Recreate(OfCluster):
    """After a downgrade or an opt-out, before an uninstall: delete waiting pods with named claims; their owners recreate them."""

    namespace: Annotated[str | None, typer.Option("--namespace", "-n", help="Only there. Default: everywhere.")] = None
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the pods.")] = False

    def run(self) -> int:
        from fairlead.cli.programs.recreate import recreate

        return recreate(self)
