"""A live cluster read once, without a write: what it shows is what a leader would decide on."""

from __future__ import annotations

import asyncio
from typing import Any

from fairlead.api import names
from fairlead.controller.rehearsal import observe
from fairlead.kube.client import Client
from tests.controller.conftest import Bench
from tests.support.commands import invoke


class ReadingClient(Client):
    """Refuses to write."""

    async def request(self, method: str, path: str, **more: Any) -> bytes:
        assert method == "GET", f"{method} {path}"
        return await super().request(method, path, **more)


async def call(*arguments: Any) -> tuple[int, str, str]:
    """The command line in a thread: it has an event loop of its own."""
    found = await asyncio.to_thread(invoke, [str(each) for each in arguments])
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    return found.exit_code, found.stdout, found.stderr


async def test_a_live_cluster_is_read_without_a_write(bench: Bench):
    await bench.template("eight", 8)
    async with bench.controller():
        running = await bench.gang("runs", 1, template="eight")
        await bench.until(lambda: bench.running(running), "one gang runs")
        await bench.gang("waits", 2, template="eight")
        await bench.until(lambda: len(bench.pods) == 3, "all pods are there")
        await bench.until(lambda: bool(bench.status("waits")), "the gang that waits has its object")
        async with ReadingClient.connect(bench.options().kubeconfig) as client:
            snapshot, _ = await observe(client, (names.DRIVER,))
        assert [gang.name for gang in snapshot.gangs] == ["waits"]
        assert [gang.name for gang in snapshot.running] == ["runs"]

        jane = ("--kubeconfig", bench.cluster.kubeconfig("jane"))
        status, _, message = await call("snapshot", *jane)
        assert status == 1
        assert "you may not list nodes" in message
