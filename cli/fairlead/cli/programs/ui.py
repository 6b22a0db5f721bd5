"""`fairlead ui`. The pages are imported when it runs."""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from typing import Annotated, Final

import typer

from fairlead.cli.command import flag_name
from fairlead.cli.options import Context, Logged, Snapshot
from fairlead.cli.printer import say
from fairlead.ui.options import UiOptions

_FOR_BOTH: Final = ("login", "ledger", "kubeconfig", "managed_drivers", "shared_claim_drivers")
_WITHOUT_LOGIN: Final = ("port", "snapshot", "context")
_BY_PROXY: Final = ("client_ca", "proxy_names", "proxy_secret_file", "user_prefix", "group_prefix")
_WITH_LOGIN: Final = tuple(
    field.name for field in dataclasses.fields(UiOptions) if field.name not in {*_FOR_BOTH, *_BY_PROXY}
)
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
        self._refuse_ignored()
        if self.login is None:
            return show(self)
        import uvloop

        from fairlead.cli.serve import serve
        from fairlead.ui.app import run

        serve(run, self, loop=uvloop.new_event_loop)
        return 0

    def _refuse_ignored(self) -> None:
        """Flags that say nothing for this way to log in, or without one. Raises BadParameter."""
        for names, logins, why in (
            (_WITHOUT_LOGIN, {None}, "is for pages on loopback: leave it out, or --login"),
            (_BY_PROXY, {"proxy"}, "is for viewers whom a proxy logs in: leave it out, or use --login proxy"),
            (_WITH_LOGIN, {"token", "proxy"}, "is for viewers who log in: add --login, or leave it out"),
        ):
            for field in dataclasses.fields(self):
                if field.name in names and self.login not in logins and getattr(self, field.name) != field.default:
                    raise typer.BadParameter(why, param_hint=flag_name(Ui, field.name))
