"""The controller as a program: connect, serve probes and metrics, fill the caches, wait for the lease, lead; stand by again."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from random import Random

from fairlead.api.drivers import unknown_driver
from fairlead.controller import standby
from fairlead.controller.accounting.opencost import Allocations, HeldGpus
from fairlead.controller.options import ControllerOptions
from fairlead.controller.rehearsal import Rehearsal
from fairlead.controller.report.metrics import Metrics
from fairlead.controller.term import COMPONENT, Health, lead
from fairlead.kube import otlp, probes, tracing
from fairlead.kube.client import Client
from fairlead.kube.lease import LeaderLease, LeaseTerms

__all__ = ["ControllerOptions", "run"]

log = logging.getLogger(__name__)

POLL_S = 0.25  # between looks of a standby at the lease: a leader that stops in order is followed within a second


async def run(options: ControllerOptions, *, ready: asyncio.Event | None = None) -> None:
    """Runs until cancelled. `ready` is set when this replica leads and its caches are filled for the first time.

    Raises TracingError where traces are asked for and cannot be made.
    """
    tracer = otlp.tracer_for(
        options.otlp_endpoint, service="fairlead-controller", instance=options.identity or socket.gethostname()
    )
    identity = options.identity or f"{socket.gethostname()}_{Random().getrandbits(32):08x}"  # noqa: S311
    for driver in options.managed_drivers:
        if (unknown := unknown_driver(driver)) is not None:
            log.warning("--managed-driver: %s", unknown)
    health, metrics = Health(), Metrics()
    gpus, more = HeldGpus(metrics.failures), dict[str, probes.Handler]()
    allocations = Allocations(options.ledger) if options.ledger is not None else None
    if allocations is not None:
        more["/allocation"] = allocations.answer
    if options.opencost:
        metrics.registry.register(gpus)
    if tracer is not None:
        metrics.registry.register(tracer)
    async with (
        tracing.exporting(tracer) as spans,
        Client.connect(options.kubeconfig, user_agent=COMPONENT, qps=options.qps, burst=200) as client,
        # Renewals have their own connection: they must not wait behind a thousand writes.
        Client.connect(options.kubeconfig, user_agent=f"{COMPONENT}-lease") as lease_client,
        probes.serve(
            options.metrics_bind, health=health.healthy, ready=health.ready, registry=metrics.registry, more=more
        ),
    ):
        while True:
            async with standby.watching(
                client, options.managed_drivers, options.shared_claim_drivers, forecasts=options.forecast
            ) as watched:
                if allocations is not None:
                    allocations.caches = watched.caches
                while not watched.failed.is_set():
                    lease = LeaderLease(
                        lease_client,
                        namespace=options.namespace,
                        name=COMPONENT,
                        identity=identity,
                        terms=LeaseTerms(
                            duration_s=options.lease_s,
                            renew_deadline_s=options.lease_s * 2 / 3,
                            retry_s=options.lease_s / 8,
                            poll_s=min(POLL_S, options.lease_s / 8),
                        ),
                    )
                    try:
                        with contextlib.closing(Rehearsal(options, client, watched.caches)) as rehearsal:
                            await standby.acquire(lease, watched, rehearsal)
                        if lease.held:
                            gpus.caches = watched.caches
                            await lead(
                                options, client, lease, watched=watched, health=health, metrics=metrics, ready=ready,
                                tracing=spans or tracing.OFF,
                            )  # fmt: skip
                    finally:
                        gpus.caches = None
                        await lease.release()
                    log.warning("the lease is lost; standing by")
            log.error("the caches failed; they are filled again")
