"""The webhook's own authority and server certificate: ECDSA P-256, created and renewed without any certificate tooling.

A renewal refuses no request. Pure but for the keys, which `new_key` generates: time is an argument, nothing is stored or served
here.

How a renewal goes, each step safe by itself:
1. the authority renews the certificate when a third of its life is left; clients that trust the authority still do;
2. an authority near its end gets a successor, which is only *trusted* at first (it is in the bundle);
3. after PROPAGATION every apiserver has the bundle: the successor signs the next certificate;
4. the old authority stays in the bundle until PROPAGATION after that, then goes.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import ipaddress
from collections.abc import Callable
from dataclasses import dataclass, replace

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fairlead.api import names

AUTHORITY_LIFE = dt.timedelta(days=730)
SERVER_LIFE = dt.timedelta(days=90)
PROPAGATION = dt.timedelta(hours=1)
"""How long after a change of the caBundle every apiserver surely uses it."""
SKEW = dt.timedelta(minutes=5)
"""Certificates are valid from a little before now, for apiservers whose clock is behind."""
AUTHORITIES_MAX = 4

MakeKey = Callable[[], ec.EllipticCurvePrivateKey]


class CertificateError(ValueError):
    """PEM that cannot be used; the message says what and why."""


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as PEM text."""

    certificate: str
    key: str

    @property
    def x509(self) -> x509.Certificate:
        try:
            return x509.load_pem_x509_certificate(self.certificate.encode())
        except ValueError as error:
            raise CertificateError(f"the certificate cannot be read: {error}") from None

    @property
    def private_key(self) -> ec.EllipticCurvePrivateKey:
        try:
            key = serialization.load_pem_private_key(self.key.encode(), password=None)
        except (ValueError, TypeError) as error:
            raise CertificateError(f"the private key cannot be read: {error}") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise CertificateError("the private key is no elliptic curve key")
        return key

    @property
    def made(self) -> dt.datetime:
        return self.x509.not_valid_before_utc + SKEW

    @property
    def ends(self) -> dt.datetime:
        return self.x509.not_valid_after_utc

    def renewal(self) -> dt.datetime:
        """When a third of the life is left."""
        return self.ends - (self.ends - self.made) / 3


@dataclass(frozen=True)
class Material:
    """The authorities that are trusted, oldest first, and the server certificate."""

    authorities: tuple[Pair, ...]
    server: Pair

    @property
    def bundle(self) -> str:
        """The caBundle: every trusted authority."""
        return "".join(authority.certificate for authority in self.authorities)

    @property
    def issuer(self) -> Pair | None:
        """The trusted authority that signed the server certificate; None if there is none."""
        return next((a for a in self.authorities if _signed_by(self.server.x509, a.x509)), None)


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def new_material(hosts: tuple[str, ...], now: dt.datetime, new_key: MakeKey = new_key) -> Material:
    """A new authority and server certificate for hosts (DNS names and IP addresses)."""
    authority = _authority(now, new_key)
    return Material(authorities=(authority,), server=_server(authority, hosts, now, new_key))


def advance(material: Material, hosts: tuple[str, ...], now: dt.datetime, new_key: MakeKey = new_key) -> Material:
    """The material that is due now; the same object when nothing is. Raises CertificateError on bad PEM."""
    issuer = material.issuer
    if issuer is None or issuer.ends <= now:
        # No client can verify the certificate with the bundle, so replacing both at once breaks nothing more.
        return new_material(hosts, now, new_key)
    authorities = tuple(a for a in material.authorities if a.ends > now)
    newest = authorities[-1]
    if newest.renewal() <= now and len(authorities) < AUTHORITIES_MAX:
        authorities = (*authorities, _authority(now, new_key))
    propagated = [a for a in authorities if a.made + PROPAGATION <= now] or [issuer]
    signer = propagated[-1]
    server = material.server
    if signer != issuer or server.renewal() <= now or missing_hosts(server, hosts):
        if signer.ends <= now + SKEW:
            signer = newest
        server = _server(signer, hosts, now, new_key)
        issuer = signer
    elif server.made + PROPAGATION <= now:
        authorities = authorities[authorities.index(issuer) :]
    if authorities == material.authorities and server == material.server:
        return material
    return replace(material, authorities=authorities, server=server)


def hosts_of(server: Pair) -> tuple[str, ...]:
    """The DNS names and IP addresses that the certificate covers, in its order."""
    try:
        names = server.x509.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return (*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress)))


def missing_hosts(server: Pair, hosts: tuple[str, ...]) -> bool:
    """Whether the certificate does not cover one of hosts."""
    return not set(hosts) <= set(hosts_of(server))


def service_hosts(service: str) -> tuple[str, ...]:
    """The DNS names of the Service `namespace/name`. Raises ValueError."""
    namespace, slash, name = service.partition("/")
    if not (slash and namespace and name) or "/" in name:
        raise ValueError(f"service {service!r}: write namespace/name, such as fairlead-system/fairlead-webhook")
    return (f"{name}.{namespace}.svc", f"{name}.{namespace}.svc.cluster.local", f"{name}.{namespace}")


def _authority(now: dt.datetime, new_key: MakeKey) -> Pair:
    key = new_key()
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Fairlead"),
            x509.NameAttribute(NameOID.COMMON_NAME, f"fairlead-webhook-ca {now:%Y-%m-%dT%H:%M:%SZ}"),
        ]
    )
    builder = (
        _builder(name, name, key, now, now + AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return _pair(builder.sign(key, hashes.SHA256()), key)


def _server(authority: Pair, hosts: tuple[str, ...], now: dt.datetime, new_key: MakeKey) -> Pair:
    key = new_key()
    issuer, issuer_key = authority.x509, authority.private_key
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0][:64])])
    builder = (
        _builder(subject, issuer.subject, key, now, min(now + SERVER_LIFE, authority.ends))
        .add_extension(x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )
    return _pair(builder.sign(issuer_key, hashes.SHA256()), key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: dt.datetime, ends: dt.datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(ends)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    return Pair(
        certificate=certificate.public_bytes(serialization.Encoding.PEM).decode(),
        key=key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode(),
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _signed_by(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except Exception:  # every failure means the same: no
        return False
    return True


def signing_key(material: Material) -> bytes:
    """32 bytes, from which the private key cannot be computed."""
    return hmac.new(names.CLAIM_SOURCES.encode(), material.server.key.strip().encode(), hashlib.sha256).digest()
