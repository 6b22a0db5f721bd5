"""The webhook as a program: certificate, informer cache, server and registration, started in a safe order.

It serves before it registers, so that the apiserver never calls a webhook that has not listed the cluster yet. Stopping removes
nothing: a restart must not leave objects unreviewed.

A certificate that cannot be served ends nothing: the last good one stays, and what is wrong is logged, counted, and an event. Without
one from the start the port is served with a certificate that no client knows, for the probes, until there is a better one; then
the webhook registers.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import ipaddress
import logging
from dataclasses import replace
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry

from fairlead.api import names
from fairlead.kube import errors, otlp, probes, tracing
from fairlead.kube.client import Client
from fairlead.kube.events import EventRecorder, Regarding
from fairlead.kube.garbage import frozen_heap
from fairlead.kube.tracing import Tracer
from fairlead.webhook.cache.informer_cache import InformerCache
from fairlead.webhook.certificates import authority
from fairlead.webhook.certificates.authority import CertificateError, Material, signing_key
from fairlead.webhook.certificates.served import SECRET, CertificateSecret, MountedCertificate, load, tls_context
from fairlead.webhook.options import WebhookOptions
from fairlead.webhook.registration import registrar
from fairlead.webhook.registration.configurations import BYPASSES_MAX, Target, sharing_policies
from fairlead.webhook.review.envelope import Review
from fairlead.webhook.review.facts import Facts
from fairlead.webhook.serve.metrics import Metrics
from fairlead.webhook.serve.server import Server

log = logging.getLogger(__name__)

RECONCILE_S = 30.0
"""How often certificate and registration are reconciled; `authority.PROPAGATION` is far longer."""
COLLECTED = (50_000, 20, 50)
"""Thresholds of garbage collection: a review creates thousands of small objects and no cycles."""


def covered_hosts(options: WebhookOptions) -> tuple[str, ...]:
    """The names that the certificate must cover. Raises ValueError on an invalid URL or Service."""
    if options.url is None:
        return authority.service_hosts(options.service)
    parts = urlsplit(options.url)
    if parts.scheme != "https" or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise ValueError(f"url {options.url!r}: write https://host:port, without user, query or fragment")
    return (parts.hostname,)


async def run(options: WebhookOptions, *, ready: asyncio.Event | None = None) -> None:
    """Serve reviews until cancelled. `ready` is set once the webhook is registered.

    Raises ValueError on invalid options (TracingError where traces cannot be made); ApiError, alone or in a group, when the cluster
    cannot be reached at the start, OSError, the same, where a port is taken.
    """
    hosts = covered_hosts(options)
    bind = probes.parse_bind(options.bind)
    async with (
        tracing.exporting(otlp.tracer_for(options.otlp_endpoint, service="fairlead-webhook")) as tracer,
        Client.connect(options.kubeconfig, user_agent="fairlead-webhook") as client,
    ):
        await _Program(options, client, hosts, ready or asyncio.Event(), tracer).run(*bind)


class _Program:
    """One running webhook."""

    def __init__(
        self,
        options: WebhookOptions,
        client: Client,
        hosts: tuple[str, ...],
        ready: asyncio.Event,
        tracer: Tracer | None = None,
    ) -> None:
        self._options, self._client, self._ready, self._tracer = options, client, ready, tracer
        self._metrics = Metrics(CollectorRegistry())
        if tracer is not None:
            self._metrics.registry.register(tracer)
        self._sharing: list[str] = []
        self._cache = InformerCache(
            client,
            drivers=options.managed_drivers,
            shared_drivers=options.shared_claim_drivers,
            controllers=frozenset(options.controllers),
            traces_ratio=None if tracer is None else options.trace_ratio,
        )
        self._certificate: CertificateSecret | MountedCertificate
        if options.certificate_from is not None:
            self._certificate = MountedCertificate(directory=options.certificate_from, now=_now)
        else:
            self._certificate = CertificateSecret(client=client, hosts=hosts, now=_now, report=self._certificate_fault)
        self._hosts = hosts
        namespace, _, service = options.service.partition("/")
        self._regarding = Regarding(api_version="v1", kind="Service", name=service, namespace=namespace)
        if options.certificate_from is None:
            self._regarding = Regarding(api_version="v1", kind="Secret", name=SECRET, namespace=names.NAMESPACE)
        self._events = EventRecorder(client, "fairlead-webhook")
        self._uncertified: str | None = None  # why there is no certificate that clients know

    async def run(self, host: str, port: int) -> None:
        try:
            material = await self._certificate.material()
        except CertificateError as error:
            self._no_certificate(error)
            self._uncertified, material = str(error), authority.new_material(self._hosts, _now())
        self._context = tls_context(material)
        self._serving(material)
        server = Server(
            self._facts, self._metrics, cached_facts=self._cached_facts, ready=self._unready, tracer=self._tracer
        )
        async with (
            probes.serve(self._options.metrics_bind, ready=self._unready, registry=self._metrics.registry),
            asyncio.TaskGroup() as tasks,
            server.serve(host, port, self._context) as bound_port,  # from the start, for the probes
        ):
            tasks.create_task(self._cache.run())
            tasks.create_task(self._events.run())
            await self._cache.synced()
            while self._uncertified is not None:
                await asyncio.sleep(RECONCILE_S)
                await self._renew()
            with frozen_heap(COLLECTED):  # to traverse all of them takes longer than an answer may
                target = self._target(bound_port)
                await registrar.ensure(self._client, target)
                self._tell_sharing(target)
                log.info("serving on port %d, registered as %s", bound_port, target.url or target.service)
                self._ready.set()
                await self._reconcile(target)

    async def _facts(self, review: Review) -> Facts:
        await self._cache.synced()
        return await self._cache.facts(review)

    def _cached_facts(self, review: Review) -> Facts | None:
        """None until the cluster is listed: what the cache lacks would count as missing."""
        return None if self._cache.unsynced else self._cache.cached_facts(review)

    def _unready(self) -> str | None:
        if self._cache.unsynced:
            return f"waiting for {', '.join(self._cache.unsynced)}"
        if self._uncertified is not None:
            return self._uncertified
        if _now() > self._material.server.ends:
            return "the certificate has expired"
        return None if self._ready.is_set() else "not registered yet"

    def _serving(self, material: Material) -> None:
        self._material = material
        self._cache.sign_with(signing_key(material))
        self._metrics.certificate(material.server.ends.timestamp())

    def _target(self, port: int) -> Target:
        return Target(
            bundle=self._material.bundle,
            url=None if self._options.url is None else _with_port(self._options.url, port),
            service=self._options.service,
            drivers=self._options.managed_drivers,
            policies=self._cache.policies,
        )

    def _tell_sharing(self, target: Target) -> None:
        """Report the policies on bypasses that have no webhooks of their own, once for each change."""
        sharing = sharing_policies(target)
        self._metrics.sharing_policies(len(sharing))
        if sharing != self._sharing:
            self._sharing = sharing
            if sharing:
                log.warning(
                    "TenancyPolicies %s: deviceBypass is judged by shared webhooks with failurePolicy Ignore, since %d policies "
                    "have webhooks of their own already; merge policies, so that there are fewer",
                    ", ".join(sharing[:20]) + (f" and {len(sharing) - 20} more" if len(sharing) > 20 else ""),
                    BYPASSES_MAX,
                )

    async def _reconcile(self, target: Target) -> None:
        """Runs forever: renews the certificate in time and repairs the registration. What fails is tried again."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RECONCILE_S):
                    await self._cache.policies_changed.wait()
            self._cache.policies_changed.clear()
            await self._renew()
            try:
                target = replace(target, bundle=self._material.bundle, policies=self._cache.policies)
                await registrar.ensure(self._client, target)
                self._tell_sharing(target)
            except errors.ApiError as error:
                log.warning("registration: %s; trying again in %.0f s", error, RECONCILE_S)

    async def _renew(self) -> None:
        """Serve the certificate that is due; what is served stays where there is none. Raises nothing."""
        try:
            material = await self._certificate.material()
            if material.server != self._material.server:
                load(self._context, material)
                log.info("serving a new certificate, valid until %s", material.server.ends.isoformat())
            self._serving(material)
            self._uncertified = None
        except CertificateError as error:
            self._no_certificate(error)
            if self._uncertified is not None:
                self._uncertified = str(error)
        except errors.ApiError as error:
            log.warning("certificate: %s; trying again in %.0f s", error, RECONCILE_S)
        except Exception as error:  # whatever another program wrote: the webhook must go on
            log.exception("certificate: not renewed")
            self._certificate_fault(f"not renewed: {type(error).__name__}: {error}")

    def _no_certificate(self, error: CertificateError) -> None:
        self._certificate_fault(f"{error}; trying again in {RECONCILE_S:.0f} s")

    def _certificate_fault(self, text: str) -> None:
        """What was found cannot be served."""
        log.warning("certificate: %s", text)
        self._metrics.certificate_fault()
        self._events.record(self._regarding, "CertificateUnusable", text, type="Warning")


def _with_port(url: str, port: int) -> str:
    """The URL with the port that was bound, where it says port 0 (tests)."""
    parts = urlsplit(url)
    if parts.port != 0:
        return url
    host = parts.hostname or ""
    try:
        host = f"[{host}]" if ipaddress.ip_address(host).version == 6 else host
    except ValueError:
        pass
    return f"https://{host}:{port}{parts.path}"


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
