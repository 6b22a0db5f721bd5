"""The webhook as a program: certificates, facts, server and registration, started in the order that is safe.

Exists so that the command line only parses flags. Serves before it registers, so that the apiserver never asks a
webhook that does not know the cluster yet. Stopping removes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import gc
import ipaddress
import logging
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry

from fairlead.api import names
from fairlead.kube import errors, probes
from fairlead.kube.client import Client
from fairlead.webhook.cache.informer_cache import Knowledge
from fairlead.webhook.certificates import authority as certificates
from fairlead.webhook.certificates import secret as keeping
from fairlead.webhook.certificates.authority import CertificateError, Material
from fairlead.webhook.certificates.secret import Keeper, Mounted
from fairlead.webhook.registration import configurations as registration
from fairlead.webhook.registration.configurations import Bypass, Target
from fairlead.webhook.serve.metrics import Metrics
from fairlead.webhook.serve.server import Server, load, tls_context

log = logging.getLogger(__name__)

LOOK_AFTER_S = 30.0
"""How often certificate and registration are looked at; SETTLE is far longer."""


@dataclass(frozen=True, kw_only=True)
class WebhookOptions:
    """What the command line may say. `url` registers by URL; without it the apiserver is told the Service."""

    kubeconfig: Path | None = None
    bind: str = "0.0.0.0:9443"
    url: str | None = None
    service: str = f"{names.NAMESPACE}/fairlead-webhook"
    metrics_bind: str | None = None
    managed_drivers: tuple[str, ...] = (names.DRIVER,)
    controllers: tuple[str, ...] = (names.CONTROLLER_USER,)
    """Users that may remove the gate, besides those whom RBAC lets write allocations."""
    certificate_from: Path | None = None
    """A directory with tls.crt, tls.key and perhaps ca.crt that somebody else renews, such as a mounted Secret of cert-manager."""
    own_process: bool = False
    """Nothing else runs in this process, so garbage collection may be set to suit the webhook."""


def hosts(options: WebhookOptions) -> tuple[str, ...]:
    """The names that the certificate must cover. Raises ValueError on a URL or Service that means nothing."""
    if options.url is None:
        return certificates.service_hosts(options.service)
    parts = urlsplit(options.url)
    if parts.scheme != "https" or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise ValueError(f"url {options.url!r}: write https://host:port, without user, query or fragment")
    return (parts.hostname,)


async def run(options: WebhookOptions, *, ready: asyncio.Event | None = None) -> None:
    """Serve reviews until cancelled. `ready` is set when the apiserver was told where we are.

    Raises ValueError on options that mean nothing, ApiError when the cluster cannot be reached at the start.
    """
    covered = hosts(options)
    host, port = probes.parse_bind(options.bind)
    async with Client.connect(options.kubeconfig, user_agent="fairlead-webhook") as client:
        try:
            await _serve(options, client, covered, (host, port), ready or asyncio.Event())
        except* errors.ApiError as group:
            raise _first(group) from None


async def _serve(
    options: WebhookOptions, client: Client, covered: tuple[str, ...], bind: tuple[str, int], ready: asyncio.Event
) -> None:
    metrics = Metrics(CollectorRegistry())
    knowledge = Knowledge(client, drivers=options.managed_drivers, controllers=frozenset(options.controllers))
    keeper = _keeper(options, client, covered)
    material = await keeper.material()
    context = tls_context(material)
    metrics.certificate(material.server.ends.timestamp())
    server = Server(knowledge.facts, metrics, at_once=knowledge.at_once)

    def unready() -> str | None:
        if knowledge.unsynced:
            return f"waiting for {', '.join(knowledge.unsynced)}"
        return None if ready.is_set() else "not registered yet"

    def health() -> str | None:
        return "the certificate has expired" if keeper.now() > material.server.ends else None

    def use(renewed: Material) -> None:
        nonlocal material
        if renewed.server != material.server:
            load(context, renewed)
            metrics.certificate(renewed.server.ends.timestamp())
            log.info("serving a new certificate, valid until %s", renewed.server.ends.isoformat())
        material = renewed

    async with (
        probes.serve(options.metrics_bind, health=health, ready=unready, registry=metrics.registry),
        asyncio.TaskGroup() as tasks,
    ):
        tasks.create_task(knowledge.run())
        await knowledge.synced()
        if options.own_process:
            settle_heap()
        async with server.serve(*bind, context) as port:
            url = None if options.url is None else _with_port(options.url, port)
            target = Target(
                bundle=material.bundle,
                url=url,
                service=options.service,
                drivers=options.managed_drivers,
                bypasses=Bypass.of(knowledge.policies),
            )
            await registration.ensure(client, target)
            log.info("serving on port %d, registered as %s", port, url or options.service)
            ready.set()
            await _look_after(client, keeper, knowledge, target, use)


def _keeper(options: WebhookOptions, client: Client, covered: tuple[str, ...]) -> Keeper | Mounted:
    if options.certificate_from is not None:
        return Mounted(directory=options.certificate_from, now=lambda: dt.datetime.now(dt.UTC))
    return Keeper(client=client, hosts=covered, now=lambda: dt.datetime.now(dt.UTC))


async def _look_after(
    client: Client, keeper: Keeper | Mounted, knowledge: Knowledge, target: Target, use: keeping.Use
) -> None:
    """For ever: renew the certificate in time, and repair the registration. Errors are logged and tried again."""
    while True:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_AFTER_S):
                await knowledge.changed.wait()
        knowledge.changed.clear()
        try:
            material = await keeper.material()
            target = replace(target.trusting(material.bundle), bypasses=Bypass.of(knowledge.policies))
            await registration.ensure(client, target)
        except (errors.ApiError, CertificateError) as error:
            log.warning("certificate or registration: %s; trying again in %.0f s", error, LOOK_AFTER_S)
            continue
        use(material)


def settle_heap() -> None:
    """Leave what is known by now out of garbage collection: looking at all of it takes longer than an answer may.

    Reviews make thousands of small objects and no cycles; collecting after every 700 of them is in their way.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def _first(group: BaseExceptionGroup[errors.ApiError]) -> errors.ApiError:
    found = group.exceptions[0]
    return _first(found) if isinstance(found, BaseExceptionGroup) else found


def _with_port(url: str, port: int) -> str:
    """The URL with the port that was really bound, where it says port 0 (tests)."""
    parts = urlsplit(url)
    if parts.port != 0:
        return url
    host = parts.hostname or ""
    try:
        host = f"[{host}]" if ipaddress.ip_address(host).version == 6 else host
    except ValueError:
        pass
    return f"https://{host}:{port}{parts.path}"
