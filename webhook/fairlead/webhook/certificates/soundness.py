"""Whether a certificate, its key and its authorities can be served: asked before any of them is.

What another program wrote may be anything: PEM that is none, a key of another certificate, a certificate that begins tomorrow or
lasts for a thousand years. OpenSSL raises on some of it while the server runs, and serves the rest to clients that refuse it.
So everything that is read passes here first. That a certificate has ended, or is signed by no authority beside it, is not
unsound: `authority.advance` renews it.
Pure but for a TLS context, into which the pair is loaded: what OpenSSL refuses, we refuse.
"""

from __future__ import annotations

import datetime as dt

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from fairlead.webhook.certificates.authority import AUTHORITIES_MAX, AUTHORITY_LIFE, SKEW, Material, Pair, hosts_of
from fairlead.webhook.certificates.tls import tls_context

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
