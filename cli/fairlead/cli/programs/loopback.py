"""`fairlead ui`: the pages on loopback, with the rights of the user who starts it, until it is interrupted."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys

from fairlead.cli.printer import say
from fairlead.cli.programs.ui import Ui
from fairlead.cli.reading import OfCluster
from fairlead.kube import resources
from fairlead.kube.credentials import Credentials
from fairlead.kube.garbage import frozen_heap
from fairlead.ui.reading.cluster import Cluster, NotReadError, Source
from fairlead.ui.reading.file import FileSource
from fairlead.ui.reading.ledger import Ledger
from fairlead.ui.reading.live import LiveSource
from fairlead.ui.serve.app import HOST, serve
from fairlead.ui.serve.what_if import Computing, Where


def show(asked: Ui) -> int:
    """Serve until SIGINT or SIGTERM; returns the exit code."""
    if asked.snapshot is not None:
        try:
            source = FileSource(asked.snapshot)
        except NotReadError as error:
            say(error, file=sys.stderr)
            return 1
        return asyncio.run(_serve(asked, source, Ledger(asked.ledger), Computing(Where(snapshot=asked.snapshot))))
    kubeconfig, context = asked.kubeconfig, asked.context
    assert not isinstance(kubeconfig, str | Credentials)

    of_cluster = OfCluster(kubeconfig=kubeconfig, context=context)

    async def live(cluster: Cluster) -> int:
        known = Ledger(asked.ledger, flavors=lambda: cluster.list(resources.FLAVORS))
        computing = Computing(Where(kubeconfig=kubeconfig, context=context))
        source = LiveSource(cluster.client, namespace=of_cluster.own_namespace, name=of_cluster.cluster_name)
        return await _serve(asked, source, known, computing)

    return of_cluster.ask(live)


async def _serve(asked: Ui, source: Source, ledger: Ledger, computing: Computing) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(
            frozen_heap()
        )  # what is listed lives long: to look at all of it again costs a quarter of a second
        try:
            address = await stack.enter_async_context(
                serve(
                    source,
                    port=asked.port,
                    ledger=ledger,
                    computing=computing,
                    drivers=asked.managed_drivers,
                    shared_drivers=asked.shared_claim_drivers,
                )
            )
        except OSError as error:
            reason = error.strerror or str(error)
            say(
                f"cannot listen on {HOST}:{asked.port}: {reason}; choose another port with --port, or 0 for any",
                file=sys.stderr,
            )
            return 1
        say(address, flush=True)
        say("Ctrl-C ends it; whoever may log in to this machine can open it and sees what you may see", file=sys.stderr)
        await stop.wait()
    return 0
