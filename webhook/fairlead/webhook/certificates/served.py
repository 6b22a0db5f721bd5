"""The certificate that is served: from the Secret that all replicas read and renew, or from a directory; judged before it is, then loaded.

All replicas serve certificates of one authority without a leader: one that finds something due writes the Secret with the resourceVersion
that it read; one that loses that race takes what the winner wrote. The Secret is installed empty: the account creates none. In place of
material that cannot be served the last that could is written again, or new material, where this replica has none; an empty Secret means new
material.

What another program wrote may be anything: PEM that is none, a key of another certificate, a certificate that begins tomorrow or
lasts for a thousand years. OpenSSL raises on some of it while the server runs, and serves the rest to clients that refuse it. So
everything that is read is judged first, and loaded into a TLS context: what OpenSSL refuses, we refuse. That a certificate has ended, or is
signed by no authority beside it, is not unsound: `authority.advance` renews it.

TLS 1.3 only, with a certificate that can be replaced while it serves. OpenSSL reads certificate and key from a file, and the webhook has no
directory to write to: its root is read-only and it mounts no volume. So the file is in memory (memfd), reached by its descriptor, and the key
never touches a disk.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import datetime as dt
import json
import logging
import os
import ssl
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from fairlead.api import names
from fairlead.kube import errors
from fairlead.kube.resources import SECRETS, Resource
from fairlead.webhook.certificates.authority import (
    AUTHORITIES_MAX,
    AUTHORITY_LIFE,
    SKEW,
    CertificateError,
    Material,
    Pair,
    advance,
    hosts_of,
    new_material,
)


def tls_context(material: Material) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0  # apiservers resume no sessions, and a ticket costs every handshake time and bytes
    load(context, material)
    return context


def load(context: ssl.SSLContext, material: Material) -> None:
    """Serve material from the next handshake on; open connections go on."""
    with _readable((material.server.key + material.server.certificate).encode()) as path:
        context.load_cert_chain(path)


@contextlib.contextmanager
def _readable(content: bytes) -> Iterator[str]:
    """A path that this process can read the content from inside the block."""
    if sys.platform == "linux":
        with os.fdopen(os.memfd_create("fairlead-certificate"), "wb") as file:
            file.write(content)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
    else:  # a developer's machine: a file that only its owner may read
        with tempfile.NamedTemporaryFile(prefix="fairlead-") as file:
            file.write(content)
            file.flush()
            yield file.name


HOSTS_MAX = 32
"""Names that replicas are reached by, all of them together."""
PEM_MAX = 64 * 1024
LIFE_MAX = AUTHORITY_LIFE + dt.timedelta(days=1)


def fault(material: Material, now: dt.datetime) -> str | None:
    """Why material of our own making cannot be served; None: it can."""
    if not 0 < len(material.authorities) <= AUTHORITIES_MAX:
        return f"authorities.json: has {len(material.authorities)} authorities, expected 1 to {AUTHORITIES_MAX}"
    pairs = {"tls.crt": material.server, **{f"authorities.json[{n}]": a for n, a in enumerate(material.authorities)}}
    for where, pair in pairs.items():
        found = _pair_fault(pair, now) or _life_fault(pair)
        if found is not None:
            return f"{where}: {found}"
    try:
        hosts = len(hosts_of(material.server))
    except Exception as error:  # an extension that cannot be read
        return f"tls.crt: its names cannot be read: {error}"
    if not 0 < hosts <= HOSTS_MAX:
        return f"tls.crt: is for {hosts} names, expected 1 to {HOSTS_MAX}"
    return _tls_fault(material)


def mounted_fault(material: Material, now: dt.datetime) -> str | None:
    """The same of a certificate that another program makes, of any kind of key, with a bundle instead of our authorities."""
    found = _served_fault(material.server, now)
    if found is None and material.bundle:
        try:
            x509.load_pem_x509_certificates(material.bundle.encode())
        except Exception as error:
            return f"ca.crt: cannot be read: {error}"
    return f"tls.crt: {found}" if found is not None else _tls_fault(material)


def _pair_fault(pair: Pair, now: dt.datetime) -> str | None:
    """What is wrong with a pair that this program made, whose key is on an elliptic curve."""
    found = _served_fault(pair, now)
    if found is not None:
        return found
    try:
        key = pair.private_key
        same = _public(key.public_key()) == _public(pair.x509.public_key())
    except Exception as error:
        return f"{error}"
    return None if same else "the private key beside it is of another certificate"


def _served_fault(pair: Pair, now: dt.datetime) -> str | None:
    if len(pair.certificate) + len(pair.key) > PEM_MAX:
        return f"certificate and key are longer than {PEM_MAX} characters"
    try:
        begins = pair.x509.not_valid_before_utc
        pair.x509.public_key()
    except Exception as error:
        return f"{error}"
    if begins > now + SKEW:
        return f"is not valid before {begins:%Y-%m-%dT%H:%M:%SZ}, and it is {now:%Y-%m-%dT%H:%M:%SZ}"
    return None


def _life_fault(pair: Pair) -> str | None:
    life = pair.ends - pair.x509.not_valid_before_utc
    return f"is valid for {life.days} days, expected at most {LIFE_MAX.days}" if life > LIFE_MAX else None


def _public(key: object) -> bytes:
    encode = getattr(key, "public_bytes", None)
    if encode is None:
        raise TypeError("its public key cannot be read")
    return bytes(encode(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo))


def _tls_fault(material: Material) -> str | None:
    try:
        tls_context(material)
    except Exception as error:
        return f"tls.crt and tls.key cannot be served: {error}"
    return None


log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class MountedCertificate:
    """tls.crt, tls.key and perhaps ca.crt in a directory.

    Without ca.crt the bundle is empty: the other program then writes the caBundle of the webhook configurations, too.
    """

    directory: Path
    now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC)

    async def material(self) -> Material:
        """What the files hold now. Raises CertificateError where they cannot be served, such as halfway through a change."""
        try:
            certificate, key = ((self.directory / name).read_text() for name in ("tls.crt", "tls.key"))
            authority = self.directory / "ca.crt"
            bundle = authority.read_text() if authority.exists() else ""
        except (OSError, ValueError) as error:
            raise CertificateError(f"{self.directory}: tls.crt and tls.key cannot be served: {error}") from None
        material = Material(authorities=(Pair(bundle, ""),) if bundle else (), server=Pair(certificate, key))
        found = mounted_fault(material, self.now())
        if found is not None:
            raise CertificateError(f"{self.directory}: {found}")
        log.debug("%s: valid until %s", self.directory, material.server.ends.isoformat())
        return material


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
