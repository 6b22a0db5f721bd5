"""What OpenCost reads of the controller: `GET /allocation` from the ledger, and the series `container_gpu_allocation`.

Both are served on the metrics port. The series exists while this replica leads; with it a stock OpenCost charges claims of devices.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable, Iterator
from fractions import Fraction

from aiohttp import web
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fairlead.api.base import ManifestError
from fairlead.api.flavor import Flavor
from fairlead.controller.gangs.claims import claims
from fairlead.controller.gangs.claims.allocations import allocated_node
from fairlead.controller.watch.caches import Caches
from fairlead.engine.inventory.allocated import AllocatedClaim
from fairlead.engine.inventory.selectors import Selectors
from fairlead.engine.queues.charges import Charges
from fairlead.history.cost import gpu_series, opencost
from fairlead.history.cost.gpu_series import Container, HeldClaim
from fairlead.history.ledger.store.errors import LedgerError
from fairlead.history.ledger.store.reader import open_reader
from fairlead.history.prices import PriceBook
from fairlead.kube import core

_SHARES = Charges((), Selectors())  # without flavors: every device counts as its share of a whole one
AT_ONCE = 1  # answers that are being made: each reads the ledger through


class Allocations:
    """Of `GET /allocation`. `caches` are None while they are not filled: then nothing has a price."""

    def __init__(self, ledger: str) -> None:
        self.caches: Caches | None = None
        self._ledger = ledger
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if self._turns.locked():
            return _problem(429, "another allocation is being made; try again in some seconds")
        async with self._turns:
            try:
                status, body = await asyncio.to_thread(self._answer, dict(request.query), self._book())
            except LedgerError as error:
                return _problem(503, str(error))
        return web.json_response(body, status=status)

    def _answer(self, query: dict[str, str], book: PriceBook) -> tuple[int, opencost.Json]:
        reader = open_reader(self._ledger)
        with contextlib.closing(reader):
            return opencost.allocation(query, reader, book, now_s=time.time())

    def _book(self) -> PriceBook:
        flavors: list[Flavor] = []
        for raw in self.caches.flavors.all() if self.caches is not None else ():
            with contextlib.suppress(ManifestError):  # its status says so
                flavors.append(Flavor.stored(raw))
        return PriceBook.of(flavors)


def _problem(status: int, message: str) -> web.Response:
    return web.json_response(
        {"code": status, "status": "", "data": None, "message": f"Error: {message}"}, status=status
    )


class HeldGpus(Collector):
    """The series, made of the caches at each scrape; nothing without them."""

    def __init__(self) -> None:
        self.caches: Caches | None = None

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        family = GaugeMetricFamily(gpu_series.NAME, gpu_series.HELP, labels=["container", "pod", "namespace", "node"])
        if self.caches is not None:
            for each in gpu_series.series(held_claims(self.caches)):
                family.add_metric([each.container, each.pod, each.namespace, each.node], each.value)
        yield family


def held_claims(caches: Caches) -> Iterator[HeldClaim]:
    inventory = caches.tables.inventory
    for claim in caches.claims.all():
        allocated = AllocatedClaim.of(claim)
        if allocated is None:
            continue
        users = caches.users(claim)
        node = allocated_node(claim) or next((pod.spec.node_name for pod in users if pod.spec.node_name), "")
        yield HeldClaim(
            namespace=claim.metadata.namespace,
            node=node,
            gpus=Fraction(_SHARES.gpus_of_allocated(allocated, inventory)),
            containers=tuple(each for pod in users for each in _containers(pod, claim.metadata.name)),
        )


def _containers(pod: core.Pod, claim: str) -> Iterator[Container]:
    """Those that use the claim."""
    entries = {entry for entry, name in claims.names_used(pod).items() if name == claim}
    for container in pod.spec.containers:
        if any(use.name in entries for use in container.resources.claims):
            yield Container(pod.metadata.name, container.name)
