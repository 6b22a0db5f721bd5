"""The certificate Secret: one Secret that all replicas of the webhook read and renew.

So all replicas serve certificates of one authority without a leader. A replica that finds something due writes with the
resourceVersion that it read; a replica that loses that race takes what the winner wrote.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from fairlead.api import names
from fairlead.kube import errors
from fairlead.kube.resources import SECRETS, Resource
from fairlead.webhook.certificates.authority import (
    CertificateError,
    Material,
    Pair,
    advance,
    hosts_of,
    new_material,
)

log = logging.getLogger(__name__)

SECRET = "fairlead-webhook-tls"  # noqa: S105 - the object's name
ATTEMPTS_MAX = 5


class SecretClient(Protocol):
    """The part of a client that the Secret needs."""

    async def get(self, resource: Resource[Any], name: str, namespace: str | None = None) -> Any: ...
    async def create(self, resource: Resource[Any], obj: Any, namespace: str | None = None) -> Any: ...
    async def replace(self, resource: Resource[Any], obj: Any) -> Any: ...


@dataclass(frozen=True, kw_only=True)
class CertificateSecret:
    """Reads and renews the material in the Secret."""

    client: SecretClient
    hosts: tuple[str, ...]
    now: Callable[[], dt.datetime]
    namespace: str = names.NAMESPACE

    async def material(self) -> Material:
        """The material of all replicas, renewed if that is due. Raises ApiError."""
        for _ in range(ATTEMPTS_MAX):
            secret = await self._read()
            stored = None if secret is None else self._decode(secret)
            try:
                due = self._due(stored)
            except CertificateError as error:
                log.warning("Secret %s/%s: %s; making a new certificate", self.namespace, SECRET, error)
                due = new_material(self.hosts, self.now())
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
            return new_material(self.hosts, self.now())
        # Replicas that are reached by different names share one certificate for all of them.
        hosts = tuple(dict.fromkeys((*hosts_of(stored.server), *self.hosts)))
        return advance(stored, hosts, self.now())

    async def _read(self) -> dict[str, Any] | None:
        try:
            secret: dict[str, Any] = await self.client.get(SECRETS, SECRET, self.namespace)
        except errors.NotFound:
            return None
        return secret

    def _decode(self, secret: dict[str, Any]) -> Material | None:
        """None where the Secret holds nothing usable: the material is then recreated."""
        try:
            stored = secret.get("data") or {}
            data = {key: base64.b64decode(stored[key]).decode() for key in ("authorities.json", "tls.crt", "tls.key")}
            authorities = tuple(
                Pair(entry["certificate"], entry["key"]) for entry in json.loads(data["authorities.json"])
            )
            return Material(authorities=authorities, server=Pair(data["tls.crt"], data["tls.key"]))
        except (KeyError, TypeError, ValueError, AttributeError, binascii.Error) as error:
            log.warning("Secret %s/%s: cannot be read (%r); making a new certificate", self.namespace, SECRET, error)
            return None

    async def _write(self, material: Material, secret: dict[str, Any] | None) -> None:
        authorities = [{"certificate": a.certificate, "key": a.key} for a in material.authorities]
        texts = {
            "ca.crt": material.bundle,
            "tls.crt": material.server.certificate,
            "tls.key": material.server.key,
            "authorities.json": json.dumps(authorities),
        }
        data = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
        if secret is not None:
            await self.client.replace(SECRETS, secret | {"data": (secret.get("data") or {}) | data})
            return
        labels = {names.MANAGED_BY: names.MANAGED_BY_VALUE}
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": SECRET, "namespace": self.namespace, "labels": labels},
            "type": "Opaque",
            "data": data,
        }
        try:
            await self.client.create(SECRETS, body, self.namespace)
        except errors.NotFound as error:
            text = f"{error}: the webhook keeps its certificate in a Secret there; apply manifests/base first"
            raise errors.NotFound(text, status=error.status, reason=error.reason) from error
