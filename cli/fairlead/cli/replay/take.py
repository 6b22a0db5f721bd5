"""`fairlead snapshot`: reads the cluster with the user's own rights, through the controller's caches, and writes the facts."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from fairlead.cli.printer import say
from fairlead.controller.observation import Unread, observe
from fairlead.history.code_version import code_version
from fairlead.history.facts.snapshot_file import dump, packed
from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.credentials import CredentialsError
from fairlead.ui.reading.cluster import NotReadError, not_read


def take(kubeconfig: Path | None, context: str | None, drivers: tuple[str, ...]) -> int:
    """The exit code; the snapshot goes to standard output."""
    if sys.stdout.isatty():
        say("fairlead snapshot writes megabytes: send them to a file, fairlead snapshot > FILE", file=sys.stderr)
        return 2
    try:
        data = asyncio.run(_read(kubeconfig, context, drivers))
    except (NotReadError, CredentialsError, OSError, errors.ApiError) as error:
        say(f"no snapshot: {error}", file=sys.stderr)
        return 1
    sys.stdout.buffer.write(data)
    say(
        "the snapshot has names of namespaces, pods, nodes and queues; `fairlead record --anonymise` replaces them",
        file=sys.stderr,
    )
    return 0


async def _read(kubeconfig: Path | None, context: str | None, drivers: tuple[str, ...]) -> bytes:
    async with Client.connect(kubeconfig, context=context, user_agent="fairlead-cli") as client:
        try:
            snapshot, now = await observe(client, drivers)
        except Unread as error:
            raise not_read(error.error, "list", error.resource, None) from error
    if not list(snapshot.inventory.slice_names()):
        raise NotReadError(
            "the cluster has no ResourceSlices (`kubectl get resourceslices`): no DRA driver publishes devices, so there is nothing "
            "to decide on; see docs/install.md"
        )
    return packed(dump(snapshot, now, code=code_version()))
