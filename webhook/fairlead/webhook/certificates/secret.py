"""The certificate in the cluster: one Secret that all replicas read, renew and agree on.

Exists so that replicas serve certificates of one authority without a leader. Whoever finds something due writes
with the resourceVersion it read; whoever loses that race takes what the winner wrote.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import json
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from fairlead.api import names
from fairlead.kube import errors
from fairlead.kube.resources import SECRETS, Resource
from fairlead.webhook.certificates import authority as certificates
from fairlead.webhook.certificates.authority import CertificateError, Material, Pair

log = logging.getLogger(__name__)

SECRET = "fairlead-webhook-tls"  # noqa: S105 - the object's name
ATTEMPTS_MAX = 5


Use = Callable[[Material], None]
"""Takes the material that is to be served from now on."""


class Source(Protocol):
    """What is needed of a client."""

    async def get(self, resource: Resource[Any], name: str, namespace: str | None = None) -> Any: ...
    async def create(self, resource: Resource[Any], obj: Any, namespace: str | None = None) -> Any: ...
    async def replace(self, resource: Resource[Any], obj: Any) -> Any: ...


@dataclass(frozen=True, kw_only=True)
class Mounted:
    """Material in files that somebody else renews: cert-manager's Secret as a volume.

    Without ca.crt the bundle is empty: the caBundle of the configurations is then somebody else's, too, and left alone.
    """

    directory: Path
    now: Callable[[], dt.datetime]

    async def material(self) -> Material:
        """What the files hold now. Raises CertificateError where they cannot be served, such as amid a change."""
        try:
            certificate, key = ((self.directory / name).read_text() for name in ("tls.crt", "tls.key"))
            authority = self.directory / "ca.crt"
            bundle = authority.read_text() if authority.exists() else ""
            pair = Pair(certificate, key)
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
                self.directory / "tls.crt", self.directory / "tls.key"
            )
        except (OSError, ValueError) as error:
            raise CertificateError(f"{self.directory}: tls.crt and tls.key cannot be served: {error}") from None
        log.debug("%s: valid until %s", self.directory, pair.ends.isoformat())
        return Material(authorities=(Pair(bundle, ""),) if bundle else (), server=pair)


@dataclass(frozen=True, kw_only=True)
class Keeper:
    """Reads and renews the material in the Secret."""

    client: Source
    hosts: tuple[str, ...]
    now: Callable[[], dt.datetime]
    namespace: str = names.NAMESPACE

    async def material(self) -> Material:
        """The material that all replicas use now, renewed if that is due. Raises ApiError."""
        for _ in range(ATTEMPTS_MAX):
            secret = await self._read()
            stored = None if secret is None else self._decode(secret)
            try:
                due = self._due(stored)
            except CertificateError as error:
                log.warning("Secret %s/%s: %s; making a new certificate", self.namespace, SECRET, error)
                due = certificates.make(self.hosts, self.now())
            if due is stored:
                return due
            try:
                await self._write(due, secret)
            except (errors.Conflict, errors.AlreadyExists):
                continue  # another replica was first
            log.info("certificate renewed: valid until %s", due.server.ends.isoformat())
            return due
        raise errors.Conflict(f"Secret {self.namespace}/{SECRET}: changed {ATTEMPTS_MAX} times while renewing it")

    def _due(self, stored: Material | None) -> Material:
        if stored is None:
            return certificates.make(self.hosts, self.now())
        # Replicas that are reached by different names share one certificate for all of them.
        hosts = tuple(dict.fromkeys((*certificates.hosts_of(stored.server), *self.hosts)))
        return certificates.advance(stored, hosts, self.now())

    async def _read(self) -> dict[str, Any] | None:
        try:
            secret: dict[str, Any] = await self.client.get(SECRETS, SECRET, self.namespace)
        except errors.NotFound:
            return None
        return secret

    def _decode(self, secret: dict[str, Any]) -> Material | None:
        """None where the Secret holds nothing usable: it is then made anew."""
        try:
            data = {key: base64.b64decode(value).decode() for key, value in (secret.get("data") or {}).items()}
            authorities = tuple(
                Pair(entry["certificate"], entry["key"]) for entry in json.loads(data["authorities.json"])
            )
            return Material(authorities=authorities, server=Pair(data["tls.crt"], data["tls.key"]))
        except (KeyError, TypeError, ValueError, AttributeError, binascii.Error) as error:
            log.warning("Secret %s/%s: cannot be read (%r); making a new certificate", self.namespace, SECRET, error)
            return None

    async def _write(self, material: Material, secret: dict[str, Any] | None) -> None:
        authorities = [{"certificate": a.certificate, "key": a.key} for a in material.authorities]
        data = {
            "ca.crt": material.bundle,
            "tls.crt": material.server.certificate,
            "tls.key": material.server.key,
            "authorities.json": json.dumps(authorities),
        }
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": SECRET,
                "namespace": self.namespace,
                "labels": {names.MANAGED_BY: names.MANAGED_BY_VALUE},
            },
            "type": "Opaque",
            "data": {key: base64.b64encode(value.encode()).decode() for key, value in data.items()},
        }
        if secret is None:
            try:
                await self.client.create(SECRETS, body, self.namespace)
            except errors.NotFound as error:
                text = f"{error}: the webhook keeps its certificate in a Secret there; apply manifests/base first"
                raise errors.NotFound(text, status=error.status, reason=error.reason) from error
            return
        await self.client.replace(SECRETS, secret | {"data": body["data"]})
