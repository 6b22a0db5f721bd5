"""The pages as a program in the cluster: watches, TLS, logins and the server, for viewers who each see what they may.

It reads with the rights of its ServiceAccount, which may list everything that pages show and change nothing; what of it a viewer sees is
decided by that viewer's own rights (`fairlead.ui.access`). Sessions are this process's: viewers of a replica that ends log in again.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import ssl
import time
from collections.abc import AsyncIterator, Callable, Collection
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from fairlead.api import names
from fairlead.kube import probes, resources
from fairlead.kube.client import Client
from fairlead.ui.access.proxy import ProxyViewers, Trust
from fairlead.ui.access.reviews import KnownNamespaces, Namespaces, Reviews, of_ledger
from fairlead.ui.access.sessions import Attempts, Sessions
from fairlead.ui.access.tokens import TokenViewers
from fairlead.ui.options import UiOptions
from fairlead.ui.reading.cluster import Cluster
from fairlead.ui.reading.ledger import Ledger
from fairlead.ui.reading.watched import WatchedSource
from fairlead.ui.serve.app import application, listening
from fairlead.ui.serve.viewers import Viewers
from fairlead.ui.serve.what_if import Computing, Where
from fairlead.webhook.certificates import authority
from fairlead.webhook.certificates.authority import CertificateError, Material
from fairlead.webhook.certificates.served import MountedCertificate, load, tls_context

log = logging.getLogger(__name__)
RENEW_S = 60.0
SERVICE: Final = f"{names.NAMESPACE}/fairlead-ui"
LOCAL: Final = ("localhost", "127.0.0.1")  # kubectl port-forward


async def run(options: UiOptions, *, ready: asyncio.Event | None = None) -> None:
    """Serve until cancelled. `ready` is set once it listens and has read the cluster.

    Raises ValueError on invalid options; in a group, CertificateError where the certificate cannot be served, OSError where the port is taken.
    """
    hosts = allowed_hosts(options.urls)
    bind = probes.parse_bind(options.bind)
    trust = _trust(options)
    async with Client.connect(options.kubeconfig, user_agent="fairlead-ui") as client, asyncio.TaskGroup() as tasks:
        source = WatchedSource(client, name=_host(options.urls[0]) if options.urls else "")
        metrics = Metrics(CollectorRegistry())
        namespaces = KnownNamespaces(source, of_ledger(options.ledger) if options.ledger else None)
        viewers, sessions = _viewers(options, client, namespaces, metrics, trust)
        metrics.watching(sessions=sessions, age_s=lambda: time.time() - source.known_at if source.known_at else -1.0)
        ledger = Ledger(options.ledger, flavors=lambda: Cluster(client).list(resources.FLAVORS))
        app = application(
            source,
            hosts,
            viewers,
            ready=lambda: _unready(source),
            observe=metrics.answered,
            ledger=ledger,
            computing=_computing(options),
            drivers=options.managed_drivers,
            shared_drivers=options.shared_claim_drivers,
        )
        certificate = Certificate(options.certificate_from, covered=(*LOCAL, *(_host(url) for url in options.urls)))
        tasks.create_task(source.run())
        tasks.create_task(namespaces.run())
        async with (
            probes.serve(options.metrics_bind, ready=lambda: _unready(source), registry=metrics.registry),
            certificate.context(options.client_ca, told=metrics.certificate) as context,
            listening(app, *bind, context) as port,
        ):
            log.info("serving on port %d; login: %s", port, options.login)
            while not source.filled:  # noqa: ASYNC110 - many watches, each with an event of its own
                await asyncio.sleep(0.05)
            if ready is not None:
                ready.set()
            await asyncio.Event().wait()


def _computing(options: UiOptions) -> Computing | None:
    """None where it is switched off, or where the cluster is known by what another process cannot read."""
    if not options.what_if or not isinstance(options.kubeconfig, Path | str | None):
        return None
    return Computing(Where(kubeconfig=None if options.kubeconfig is None else Path(options.kubeconfig)))


def allowed_hosts(urls: Collection[str]) -> frozenset[str] | None:
    """What the Host header may be; None: anything. Raises ValueError for what is no https URL without path."""
    found = set()
    for url in urls:
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = -1
        if (
            parts.scheme != "https"
            or not parts.hostname
            or parts.path not in {"", "/"}
            or parts.query
            or parts.username
            or port == -1
        ):
            raise ValueError(f"--url {url!r}: write where browsers reach the pages, as https://gpus.example.com")
        found.add(parts.netloc.lower())
    return frozenset(found) or None


class Certificate:
    """What is served: from a directory that another program renews, or made here and renewed in time, in memory only.

    The account of this program may write no Secret, so what it makes itself ends with it, and each replica has its own: for a look through
    `kubectl port-forward`, or behind an ingress that does not verify it.
    """

    def __init__(self, directory: Path | None, *, covered: tuple[str, ...]) -> None:
        self._mounted = None if directory is None else MountedCertificate(directory=directory)
        self._covered = tuple(dict.fromkeys((*authority.service_hosts(SERVICE), *covered)))
        self._material: Material | None = None

    async def material(self) -> Material:
        """What is due now. Raises CertificateError."""
        if self._mounted is not None:
            return await self._mounted.material()
        now = dt.datetime.now(dt.UTC)
        if self._material is None:
            self._material = authority.new_material(self._covered, now)
        self._material = authority.advance(self._material, self._covered, now)
        return self._material

    @contextlib.asynccontextmanager
    async def context(self, client_ca: Path | None, *, told: Callable[[float], None]) -> AsyncIterator[ssl.SSLContext]:
        """A TLS context whose certificate stays current inside the block. `told`: when the certificate ends, unix seconds."""
        material = await self.material()
        context = tls_context(material)
        if client_ca is not None:
            context.verify_mode = ssl.CERT_OPTIONAL  # kubelet's probes have none
            context.load_verify_locations(client_ca)
        told(material.server.ends.timestamp())
        renewing = asyncio.create_task(self._renew(context, material, told))
        try:
            yield context
        finally:
            renewing.cancel()

    async def _renew(self, context: ssl.SSLContext, served: Material, told: Callable[[float], None]) -> None:
        while True:
            await asyncio.sleep(RENEW_S)
            try:
                material = await self.material()
            except CertificateError as error:
                log.warning("certificate: %s; trying again in %.0f s", error, RENEW_S)
                continue
            if material.server != served.server:
                load(context, material)
                served = material
                told(material.server.ends.timestamp())
                log.info("serving a new certificate, valid until %s", material.server.ends.isoformat())


def _viewers(
    options: UiOptions, client: Client, namespaces: Namespaces, metrics: Metrics, trust: Trust | None
) -> tuple[Viewers, Callable[[], int]]:
    """And how many sessions there are."""
    reviews = Reviews(
        client,
        audiences=options.audiences,
        cluster_tokens=options.cluster_tokens,
        clock=time.monotonic,
        count=metrics.review,
    )
    if trust is not None:
        prefixes = {"user_prefix": options.user_prefix, "group_prefix": options.group_prefix}
        return ProxyViewers(reviews, namespaces, trust, **prefixes), lambda: 0
    sessions = Sessions(clock=time.time, idle_s=options.session_idle_s, absolute_s=options.session_max_s)
    viewers = TokenViewers(
        reviews,
        sessions,
        Attempts(clock=time.monotonic),
        namespaces,
        audiences=options.audiences,
        cluster_tokens=options.cluster_tokens,
        now=time.time,
        count=metrics.login,
    )
    return viewers, lambda: len(sessions)


def _trust(options: UiOptions) -> Trust | None:
    """Raises ValueError."""
    if options.login != "proxy":
        return None
    if bool(options.client_ca) != bool(options.proxy_names):
        raise ValueError(
            "--client-ca and --proxy-name go together: which authority signed the proxy's certificate, and whose it is"
        )
    trust = Trust(names=frozenset(options.proxy_names), secret=options.proxy_secret_file)
    trust.check()
    return trust


def _unready(source: WatchedSource) -> str | None:
    return None if source.filled else "the cluster has not been read yet"


def _host(url: str) -> str:
    return urlsplit(url).hostname or ""


_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._seconds = Histogram(
            "fairlead_ui_request_seconds",
            "From a request to its answer, by route.",
            ["route"],
            buckets=_BUCKETS,
            registry=registry,
        )
        self._requests = Counter(
            "fairlead_ui_requests",
            "Requests answered, by route and HTTP status.",
            ["route", "status"],
            registry=registry,
        )
        self._logins = Counter(
            "fairlead_ui_logins",
            "Tokens that were presented: accepted, refused, or not looked at after too many (limited).",
            ["result"],
            registry=registry,
        )
        self._reviews = Counter(
            "fairlead_ui_reviews",
            "Reviews that the apiserver was asked for: of tokens and of access; what it answered, or failed.",
            ["kind", "result"],
            registry=registry,
        )
        self._sessions = Gauge("fairlead_ui_sessions", "Sessions of viewers who logged in.", registry=registry)
        self._age = Gauge(
            "fairlead_ui_facts_age_seconds",
            "How old what the pages show is; it grows while the apiserver does not answer. Negative: nothing was read yet.",
            registry=registry,
        )
        self._certificate = Gauge(
            "fairlead_ui_certificate_expiry_timestamp_seconds",
            "When the certificate that is served ends.",
            registry=registry,
        )

    def answered(self, route: str, status: int, seconds: float) -> None:
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def login(self, result: str) -> None:
        self._logins.labels(result).inc()

    def review(self, kind: str, result: str) -> None:
        self._reviews.labels(kind, result).inc()

    def certificate(self, ends: float) -> None:
        """Unix seconds."""
        self._certificate.set(ends)

    def watching(self, *, sessions: Callable[[], int], age_s: Callable[[], float]) -> None:
        """Where the gauges are read from, when they are scraped."""
        self._sessions.set_function(sessions)
        self._age.set_function(age_s)
