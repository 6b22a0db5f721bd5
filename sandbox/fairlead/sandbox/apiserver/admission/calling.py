"""One AdmissionReview over HTTPS: to a URL or to a Service, with the configuration's own CA and timeout.

The only I/O of admission. Every failure becomes a CallError with the text that the real apiserver would wrap; what a
failure means (Fail, Ignore) is decided in webhooks.py. Source: k8s.io/apiserver/pkg/util/webhook/client.go (1.36).
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import io
import json
import ssl
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, TypeVar
from uuid import UUID

import aiohttp

from fairlead.sandbox.apiserver.kinds.base import Services
from fairlead.sandbox.apiserver.kinds.errors import quote
from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.apiserver.wire.bodies import go_json_error

T = TypeVar("T")
Resolver = Callable[[str, str, int], tuple[str, int]]
"""(namespace, service, port) → where it listens. Raises CallError where nothing does."""

CONNECTIONS = 64
CONTEXTS = 64
LATE_TURNS = 16  # of the event loop: a new connection, the review, and its answer
RESPONSE_LIMIT_BYTES = 4 * 1024 * 1024
_TYPE_META = 'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'


class CallError(Exception):
    """The webhook gave no usable answer; the text is Go's."""


def endpoints_resolver(services: Services) -> Resolver:
    """Services resolved through the Endpoints object of the same name, as the real apiserver does."""

    def resolve(namespace: str, name: str, port: int) -> tuple[str, int]:
        service = services.get("", "services", name, namespace)
        if service is None:
            raise CallError(f"service {quote(name)} not found")
        target = next(
            (p.get("targetPort", port) for p in service.get("spec", {}).get("ports") or [] if p.get("port") == port),
            None,
        )
        if target is None:
            raise CallError(f"no service port {port} found for service {quote(name)}")
        endpoints = services.get("", "endpoints", name, namespace) or {}
        for subset in endpoints.get("subsets") or []:
            addresses, ports = subset.get("addresses") or [], subset.get("ports") or []
            number = next((p.get("port") for p in ports if target in {p.get("port"), p.get("name")}), None)
            if addresses and ports:
                return addresses[0]["ip"], number or ports[0]["port"]
        raise CallError(f"no endpoints available for service {quote(name)}")

    return resolve


class Caller:
    """Holds connections to webhooks. Created by the chain, closed with the server."""

    def __init__(self, resolve: Resolver, random: Random) -> None:
        self._resolve = resolve
        self._random = random
        self._session: aiohttp.ClientSession | None = None
        self._contexts: dict[str, ssl.SSLContext] = {}

    def new_uid(self) -> str:
        return str(UUID(int=self._random.getrandbits(128), version=4))

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def post(self, hook: Json, review: Json) -> Any:
        """The decoded answer of a webhook. Raises CallError."""
        client, timeout_s = hook["clientConfig"], hook.get("timeoutSeconds", 10)
        shown, target, server_name, host = self._target(client)
        shown, target = (f"{url}?timeout={timeout_s}s" for url in (shown, target))
        headers = {"User-Agent": "kube-apiserver-admission", "Accept": "application/json, */*"}
        headers["Content-Type"] = "application/json"
        if host:
            headers["Host"] = host
        try:
            status, text = await _within(timeout_s, self._asked(target, review, headers, client, server_name))
        except TimeoutError as error:
            raise CallError(f"Post {quote(shown)}: context deadline exceeded") from error
        except aiohttp.ClientConnectorCertificateError as error:
            raise CallError(f"Post {quote(shown)}: {_certificate(error)}") from error
        except aiohttp.ClientConnectorError as error:
            raise CallError(f"Post {quote(shown)}: {_dial(error)}") from error
        except (aiohttp.ClientError, OSError, ssl.SSLError) as error:
            raise CallError(f"Post {quote(shown)}: {str(error) or 'EOF'}") from error
        if status >= 400 or status < 200:
            raise CallError(_unusable(status, text))
        return _parse(text)

    async def _asked(
        self, url: str, review: Json, headers: dict[str, str], client: Json, server_name: str
    ) -> tuple[int, str]:
        try:
            return await self._exchange(url, review, headers, client, server_name)
        except aiohttp.ServerDisconnectedError:  # an idle connection that the other side had closed: once more
            return await self._exchange(url, review, headers, client, server_name)

    async def _exchange(
        self, url: str, review: Json, headers: dict[str, str], client: Json, server_name: str
    ) -> tuple[int, str]:
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=CONNECTIONS)
            self._session = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None))
        async with self._session.post(
            url,
            data=io.BytesIO(json.dumps(review, separators=(",", ":"), ensure_ascii=False).encode()),
            headers=headers,
            ssl=self._context(client.get("caBundle", "")),
            server_hostname=server_name or None,
            allow_redirects=False,
        ) as response:
            body = await response.content.read(RESPONSE_LIMIT_BYTES)
            return response.status, body.decode(errors="replace")

    def _target(self, client: Json) -> tuple[str, str, str, str]:
        """The URL for messages, the URL to dial, the name in the certificate, and the Host header."""
        if client.get("url"):
            return client["url"], client["url"], "", ""
        service = client["service"]
        name = f"{service['name']}.{service['namespace']}.svc"
        port, path = service.get("port", 443), service.get("path", "") or "/"
        host, number = self._resolve(service["namespace"], service["name"], port)
        address = f"[{host}]" if ":" in host else host
        return f"https://{name}:{port}{path}", f"https://{address}:{number}{path}", name, f"{name}:{port}"

    def _context(self, bundle: str) -> ssl.SSLContext:
        """TLS that trusts the configuration's CA only (or the system's, where it has none)."""
        if bundle not in self._contexts:
            if len(self._contexts) >= CONTEXTS:
                self._contexts.clear()  # authorities that were rotated away
            try:
                pem = base64.b64decode(bundle).decode() if bundle else None
                self._contexts[bundle] = ssl.create_default_context(cadata=pem)
            except (ssl.SSLError, ValueError, binascii.Error) as error:
                raise CallError(f"unable to load root certificates: {error}") from error
        return self._contexts[bundle]


async def _within(timeout_s: float, call: Coroutine[Any, Any, T]) -> T:
    """The call's outcome. Raises TimeoutError.

    When the time is over, what has arrived is still read: a whole cluster shares this event loop, and a busy loop does not
    mean a slow webhook.
    """
    task = asyncio.ensure_future(call)
    try:
        await asyncio.wait((task,), timeout=timeout_s)
        for _ in range(LATE_TURNS):
            if task.done():
                return task.result()
            await asyncio.sleep(0)
        raise TimeoutError
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _dial(error: aiohttp.ClientConnectorError) -> str:
    reason = error.os_error
    what = "connect: connection refused" if isinstance(reason, ConnectionRefusedError) else str(reason)
    return f"dial tcp {error.host}:{error.port}: {what}"


def _certificate(error: aiohttp.ClientConnectorCertificateError) -> str:
    cause = error.certificate_error
    text = getattr(cause, "verify_message", "") or str(cause)
    if "self" in text or "unable to get" in text:
        text = "x509: certificate signed by unknown authority"
    return f"tls: failed to verify certificate: {text}"


def _unusable(status: int, text: str) -> str:
    """client-go's text for an error status whose body is no metav1.Status."""
    known = {
        400: "the server rejected our request for an unknown reason",
        401: "the server has asked for the client to provide credentials",
        403: text.strip() or "unknown",
        404: "the server could not find the requested resource",
        405: "the server does not allow this method on the requested resource",
        429: "the server has received too many requests and has asked us to try again later",
        503: "the server is currently unable to handle the request",
        504: "the server was unable to return a response in the time allotted, but may still be processing the request",
    }
    if status in known:
        return known[status]
    if status >= 500:
        return f"an error on the server ({quote(text.strip())}) has prevented the request from succeeding"
    return f"the server responded with the status code {status} but did not return more information"


def _parse(text: str) -> Any:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        why = go_json_error(text, error)
        raise CallError(f"couldn't get version/kind; json parse error: {why}") from error
    if not isinstance(value, dict):
        what = {list: "array", str: "string", bool: "bool", int: "number", float: "number"}.get(type(value), "null")
        raise CallError(
            f"couldn't get version/kind; json parse error: json: cannot unmarshal {what} into Go value of type {_TYPE_META}"
        )
    return value
