"""What OpenCost reads of the controller: `GET /allocation` from the ledger, and the series `container_gpu_allocation`.

Both are served on the metrics port. The series exists while this replica leads; with it a stock OpenCost charges claims of devices.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction

from aiohttp import web
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fairlead.controller.accounting.allocation_child import problem
from fairlead.controller.gangs.claims import claims
from fairlead.controller.gangs.claims.allocations import allocated_node
from fairlead.controller.report.events import Failures
from fairlead.controller.watch.caches import Caches
from fairlead.engine.inventory.selectors import Selectors
from fairlead.engine.queues.charges import Charges
from fairlead.engine.types.allocation import AllocatedClaim
from fairlead.history.cost import opencost
from fairlead.history.cost.opencost import Container, HeldClaim
from fairlead.kube import core
from fairlead.kube.resource import ResourceClaim

_SHARES = Charges((), Selectors())  # without flavors: every device counts as its share of a whole one
AT_ONCE = 1  # answers that are being made: each reads the ledger through
ANSWER_S = 30.0
COMMAND = (sys.executable, "-m", "fairlead.controller.accounting.allocation_child")
LOG = logging.getLogger(__name__)


class Allocations:
    """Answers to `GET /allocation`, each computed by a process of its own. `caches` are None while they are not filled: then nothing has a price."""

    def __init__(self, ledger: str, *, command: Sequence[str] = COMMAND, answer_s: float = ANSWER_S) -> None:
        self.caches: Caches | None = None
        self._ledger, self._command, self._answer_s = ledger, tuple(command), answer_s
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if self._turns.locked():
            return _problem(429, "another allocation is being made; try again in some seconds")
        flavors = [] if self.caches is None else list(self.caches.flavors.all())
        asked = {"ledger": self._ledger, "query": dict(request.query), "flavors": flavors}
        async with self._turns:
            return await self._run(json.dumps(asked).encode())

    async def _run(self, asked: bytes) -> web.Response:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*self._command, stdin=pipe, stdout=pipe, stderr=pipe)
        try:
            async with asyncio.timeout(self._answer_s):
                out, err = await process.communicate(asked)
        except TimeoutError:
            return _problem(
                422,
                f"it took longer than {self._answer_s:g} s and was ended: ask for a shorter window, or longer steps",
            )
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        status, newline, body = out.partition(b"\n")
        if not newline or not status.isdigit():
            LOG.error("allocation: the process ended with %s: %s", process.returncode, err.decode(errors="replace"))
            return _problem(
                422, "its process ended, by too much memory or CPU: ask for a shorter window, or longer steps"
            )
        return web.Response(body=body, status=int(status), content_type="application/json", charset="utf-8")


def _problem(status: int, message: str) -> web.Response:
    return web.json_response(problem(status, message), status=status)


class HeldGpus(Collector):
    """The series, made of the caches at each scrape; nothing without them."""

    def __init__(self, failures: Failures) -> None:
        self._failures = failures
        self.caches: Caches | None = None

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        family = GaugeMetricFamily(opencost.NAME, opencost.HELP, labels=["container", "pod", "namespace", "node"])
        if self.caches is not None:
            for each in opencost.series(held_claims(self.caches, self._failures)):
                family.add_metric([each.container, each.pod, each.namespace, each.node], each.value)
        yield family


def held_claims(caches: Caches, failures: Failures) -> Iterator[HeldClaim]:
    for claim in caches.claims.all():
        found = None
        with failures.contained("series", f"claim {claim.metadata.key}"):
            found = _held(claim, caches)
        if found is not None:
            yield found


def _held(claim: ResourceClaim, caches: Caches) -> HeldClaim | None:
    """None for a claim that is not allocated."""
    allocated = AllocatedClaim.of(claim)
    if allocated is None:
        return None
    users = caches.users(claim)
    return HeldClaim(
        namespace=claim.metadata.namespace,
        node=allocated_node(claim) or next((pod.spec.node_name for pod in users if pod.spec.node_name), ""),
        gpus=Fraction(_SHARES.gpus_of_allocated(allocated, caches.tables.inventory)),
        containers=tuple(each for pod in users for each in _containers(pod, claim.metadata.name)),
    )


def _containers(pod: core.Pod, claim: str) -> Iterator[Container]:
    """Those that use the claim."""
    entries = {entry for entry, name in claims.names_used(pod).items() if name == claim}
    for container in pod.spec.containers:
        if any(use.name in entries for use in container.resources.claims):
            yield Container(pod.metadata.name, container.name)
