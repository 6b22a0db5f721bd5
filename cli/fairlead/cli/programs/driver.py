"""`fairlead driver`. The program is imported when it runs."""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.cli.options import Logged
from fairlead.driver.options import DriverOptions


@dataclass(frozen=True, kw_only=True)
class Driver(DriverOptions, Logged):
    """Run the kubelet plugin of one node: publish its GPUs, prepare claims."""

    def run(self) -> None:
        from fairlead.cli.serve import serve
        from fairlead.driver.app import run

        serve(run, self)
