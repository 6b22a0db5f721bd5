"""The certificate Secret: one Secret that all replicas of the webhook read and renew.

So all replicas serve certificates of one authority without a leader. A replica that finds something due writes with the
resourceVersion that it read; a replica that loses that race takes what the winner wrote.

The Secret is installed empty: the account creates none. What it holds is judged before it is served (`soundness`). In place of
material that cannot be served the last that could is written again, or new material, where this replica has none; an empty
Secret means new material.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
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
from fairlead.webhook.certificates.soundness import HOSTS_MAX, fault

log = logging.getLogger(__name__)

SECRET = "fairlead-webhook-tls"  # noqa: S105 - the object's name
ATTEMPTS_MAX = 5
KEYS = ("authorities.json", "tls.crt", "tls.key")


class SecretClient(Protocol):
    """The part of a client that the Secret needs."""

    async def get(self, resource: Resource[Any], name: str, namespace: str | None = None) -> Any: ...
    async def replace(self, resource: Resource[Any], obj: Any) -> Any: ...


@dataclass(kw_only=True)
class CertificateSecret:
    """Reads and renews the material in the Secret. `report` is told of what cannot be served."""

    client: SecretClient
    hosts: tuple[str, ...]
    now: Callable[[], dt.datetime]
    report: Callable[[str], None] = log.warning
    namespace: str = names.NAMESPACE
    _last: Material | None = field(default=None, init=False)  # that could be served

    async def material(self) -> Material:
        """The material of all replicas, renewed if that is due. Raises ApiError; CertificateError where there is no Secret."""
        for _ in range(ATTEMPTS_MAX):
            secret = await self._read()
            try:
                stored = self._decode(secret)
            except CertificateError as error:
                stored, due = None, self._instead(error)
            else:
                due = self._due(stored)
            if due is not stored:
                try:
                    await self._write(due, secret)
                except errors.Conflict:
                    continue  # another replica was first
                log.info("certificate renewed: valid until %s", due.server.ends.isoformat())
            self._last = due
            return due
        raise errors.Conflict(f"Secret {self.namespace}/{SECRET}: changed {ATTEMPTS_MAX} times while renewing it")

    def _due(self, stored: Material | None) -> Material:
        if stored is None:
            return new_material(self.hosts, self.now())
        # Replicas that are reached by different names share one certificate for all of them.
        hosts = tuple(dict.fromkeys((*hosts_of(stored.server), *self.hosts)))
        return advance(stored, hosts if len(hosts) <= HOSTS_MAX else self.hosts, self.now())

    def _instead(self, error: CertificateError) -> Material:
        """What is written over a Secret that cannot be served: clients still trust the last that could."""
        now = self.now()
        last = self._last if self._last is not None and self._last.server.ends > now else None
        instead = "writing the last good one again" if last is not None else "making a new one"
        self.report(f"Secret {self.namespace}/{SECRET}: {error}; {instead}")
        return new_material(self.hosts, now) if last is None else self._due(last)

    async def _read(self) -> dict[str, Any]:
        try:
            secret: dict[str, Any] = await self.client.get(SECRETS, SECRET, self.namespace)
        except errors.NotFound:
            raise CertificateError(
                f"Secret {self.namespace}/{SECRET}: is not there, and the webhook may create none: it comes with the installation and is "
                "filled here; run `helm upgrade`, or apply manifests/base first"
            ) from None
        return secret

    def _decode(self, secret: dict[str, Any]) -> Material | None:
        """None where the Secret is empty, as it is installed. Raises CertificateError where it cannot be served."""
        stored = secret.get("data") or {}
        if not any(key in stored for key in KEYS):
            return None
        try:
            data = {key: base64.b64decode(stored[key]).decode() for key in KEYS}
            authorities = tuple(
                Pair(_text(entry["certificate"]), _text(entry["key"])) for entry in json.loads(data["authorities.json"])
            )
            material = Material(authorities=authorities, server=Pair(data["tls.crt"], data["tls.key"]))
        except (KeyError, TypeError, ValueError, AttributeError, binascii.Error, RecursionError) as error:
            raise CertificateError(f"cannot be read ({type(error).__name__}: {error})") from None
        found = fault(material, self.now())
        if found is not None:
            raise CertificateError(found)
        return material

    async def _write(self, material: Material, secret: dict[str, Any]) -> None:
        authorities = [{"certificate": a.certificate, "key": a.key} for a in material.authorities]
        texts = {
            "ca.crt": material.bundle,
            "tls.crt": material.server.certificate,
            "tls.key": material.server.key,
            "authorities.json": json.dumps(authorities),
        }
        data = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
        await self.client.replace(SECRETS, secret | {"data": (secret.get("data") or {}) | data})


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} in place of a text")
    return value
