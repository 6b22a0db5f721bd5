"""`fairlead webhook`. The program is imported when it runs."""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.cli.options import Logged
from fairlead.webhook.options import WebhookOptions


@dataclass(frozen=True, kw_only=True)
class Webhook(WebhookOptions, Logged):
    """Run the admission webhook: gate managed pods, settle gangs, turn legacy requests into claims."""

    def run(self) -> None:
        import uvloop

        from fairlead.cli.serve import serve
        from fairlead.webhook.app import run

        serve(run, self, loop=uvloop.new_event_loop)
