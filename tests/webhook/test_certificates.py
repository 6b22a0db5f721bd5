"""Certificates renew themselves, one safe step at a time, and replicas agree on them."""

import asyncio
import base64
import copy
import datetime as dt
import json
import re
import ssl
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from fairlead.api import names
from fairlead.kube import errors
from fairlead.webhook.certificates import authority, served
from fairlead.webhook.certificates.authority import (
    AUTHORITY_LIFE,
    PROPAGATION,
    SERVER_LIFE,
    CertificateError,
    Material,
    Pair,
    advance,
)
from fairlead.webhook.certificates.served import SECRET, CertificateSecret

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
HOSTS = ("fairlead-webhook.fairlead-system.svc", "127.0.0.1")
MINUTE = dt.timedelta(minutes=1)


def test_the_certificate_is_ecdsa_p256_for_the_hosts_and_signed_by_the_authority() -> None:
    material = authority.new_material(HOSTS, NOW)
    server = material.server.x509
    key = server.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert isinstance(key.curve, ec.SECP256R1)
    assert authority.hosts_of(material.server) == HOSTS
    assert material.issuer == material.authorities[0]
    assert material.issuer.x509.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert material.server.ends == NOW + SERVER_LIFE


def test_openssl_trusts_it() -> None:
    material = authority.new_material(HOSTS, dt.datetime.now(dt.UTC))
    context = ssl.create_default_context(cadata=material.bundle)
    assert context.get_ca_certs()[0]["subject"][0][0] == ("organizationName", "Fairlead")


@pytest.mark.skipif(sys.platform != "linux", reason="containers are Linux's")
def test_serving_it_writes_to_no_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The webhook's container has none that it may write to."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    opened: list[str] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    monkeypatch.setattr(context, "load_cert_chain", opened.append, raising=False)
    served.load(context, authority.new_material(HOSTS, dt.datetime.now(dt.UTC)))
    assert [path.startswith("/proc/self/fd/") for path in opened] == [True]
    served.tls_context(authority.new_material(HOSTS, dt.datetime.now(dt.UTC)))


def test_the_certificate_is_renewed_by_the_same_authority_with_a_third_of_its_life_left() -> None:
    material = authority.new_material(HOSTS, NOW)
    later = NOW + SERVER_LIFE * 2 / 3 + MINUTE
    renewed = advance(material, HOSTS, later)
    assert renewed.server != material.server
    assert renewed.bundle == material.bundle
    assert renewed.server.ends == later + SERVER_LIFE


def test_a_successor_is_trusted_before_it_signs_and_the_old_one_goes_last() -> None:
    old = authority.new_material(HOSTS, NOW)
    near = NOW + AUTHORITY_LIFE * 2 / 3 + MINUTE
    first = advance(advance(old, HOSTS, near - 2 * MINUTE), HOSTS, near)
    assert len(first.authorities) == 2
    assert first.issuer == old.authorities[0], "the successor is only trusted at first"
    second = advance(first, HOSTS, near + PROPAGATION)
    assert second.issuer == first.authorities[1]
    assert second.authorities == first.authorities, "a replica that still serves the old certificate is still trusted"
    third = advance(second, HOSTS, near + PROPAGATION * 2)
    assert third.authorities == second.authorities[1:]
    assert third.server == second.server
    assert advance(third, HOSTS, near + PROPAGATION * 2) is third


@pytest.mark.slow
def test_through_ten_years_the_served_certificate_is_always_valid_and_always_trusted() -> None:
    """Replicas and apiservers look every half hour; a client may trust the bundle of one step ago."""
    now, material = NOW, authority.new_material(HOSTS, NOW)
    before = material
    for _ in range(10 * 365):
        now += dt.timedelta(days=1) - 2 * PROPAGATION
        for _ in range(4):
            before, material = material, advance(material, HOSTS, now)
            now += PROPAGATION / 2
            assert material.server.x509.not_valid_before_utc <= now < material.server.ends
            assert len(material.authorities) <= 2
            trusted = Material(authorities=before.authorities, server=material.server)
            assert trusted.issuer is not None, f"at {now} a client with yesterday's bundle refuses the certificate"


def test_material_that_no_client_could_verify_is_recreated() -> None:
    mine, other = authority.new_material(HOSTS, NOW), authority.new_material(HOSTS, NOW)
    mixed = Material(authorities=mine.authorities, server=other.server)
    assert advance(mixed, HOSTS, NOW + MINUTE).issuer is not None
    assert advance(mine, HOSTS, NOW + AUTHORITY_LIFE * 2).issuer is not None


def test_services_have_their_names_and_invalid_ones_are_refused() -> None:
    assert authority.service_hosts("a/b")[0] == "b.a.svc"
    for text in ("b", "/b", "a/", "a/b/c", ""):
        with pytest.raises(ValueError, match="write namespace/name"):
            authority.service_hosts(text)


class Secrets:
    """A cluster with one Secret, as the client sees it."""

    def __init__(self) -> None:
        self.stored: dict[str, Any] | None = {"metadata": {"resourceVersion": "0"}}  # as it is installed
        self.version = 0
        self.writes = 0
        self.before_write: Any = None

    async def get(self, resource: Any, name: str, namespace: str | None = None) -> Any:
        assert (resource.plural, name, namespace) == ("secrets", SECRET, names.NAMESPACE)
        await asyncio.sleep(0)
        if self.stored is None:
            raise errors.NotFound("no")
        return copy.deepcopy(self.stored)

    async def replace(self, resource: Any, obj: Any) -> Any:
        if self.stored is None or obj["metadata"]["resourceVersion"] != self.stored["metadata"]["resourceVersion"]:
            raise errors.Conflict("changed")
        return self._store(obj)

    def _store(self, obj: Any) -> Any:
        self.version += 1
        self.writes += 1
        self.stored = copy.deepcopy(obj)
        self.stored["metadata"]["resourceVersion"] = str(self.version)
        return self.stored


@pytest.fixture
def told() -> list[str]:
    return []


def keeper(cluster: Secrets, *hosts: str, now: dt.datetime = NOW) -> CertificateSecret:
    return CertificateSecret(client=cluster, hosts=hosts or HOSTS, now=lambda: now)


async def test_replicas_that_start_together_agree() -> None:
    cluster = Secrets()
    found = await asyncio.gather(*(keeper(cluster).material() for _ in range(5)))
    assert len(set(found)) == 1
    assert cluster.writes == 1


async def test_replicas_reached_by_different_names_share_a_certificate_for_all() -> None:
    cluster = Secrets()
    await keeper(cluster, "a.example.com").material()
    both = await keeper(cluster, "b.example.com").material()
    assert authority.hosts_of(both.server) == ("a.example.com", "b.example.com")
    assert await keeper(cluster, "a.example.com").material() == both


async def test_no_secret_is_an_error_that_says_what_to_do() -> None:
    """The account may create none: of any name, it could be a token of another account."""
    cluster = Secrets()
    cluster.stored = None
    with pytest.raises(CertificateError, match=r"fairlead-webhook-tls: is not there.*run `helm upgrade`, or apply"):
        await keeper(cluster).material()


def encoded(**texts: str) -> dict[str, str]:
    return {key.replace("_", "."): base64.b64encode(text.encode()).decode() for key, text in texts.items()}


def authorities_of(*pairs: Pair) -> str:
    return json.dumps([{"certificate": pair.certificate, "key": pair.key} for pair in pairs])


OTHER = authority.new_material(HOSTS, NOW)
EARLY = authority.new_material(HOSTS, NOW + dt.timedelta(days=1))
MANY = authority.new_material(tuple(f"h{n}.example.com" for n in range(200)), NOW)
BAD: dict[str, tuple[dict[str, str], str]] = {
    "key of another": (encoded(tls_key=OTHER.server.key), "the private key beside it is of another certificate"),
    "certificate of another": (encoded(tls_crt=OTHER.server.certificate), "is of another certificate"),
    "garbage key": (encoded(tls_key="garbage"), "the private key cannot be read"),
    "no key": (encoded(tls_key=""), "the private key cannot be read"),
    "garbage certificate": (encoded(tls_crt="garbage"), "the certificate cannot be read"),
    "begins tomorrow": (
        encoded(
            tls_crt=EARLY.server.certificate, tls_key=EARLY.server.key, authorities_json=authorities_of(*EARLY.authorities)
        ),
        "tls.crt: is not valid before 2026-01-01T23:55:00Z, and it is 2026-01-01T00:00:00Z",
    ),
    "authority begins tomorrow": (encoded(authorities_json=authorities_of(*EARLY.authorities)), "is not valid before"),
    "authority without its key": (
        encoded(authorities_json=authorities_of(Pair(OTHER.authorities[0].certificate, OTHER.server.key))),
        r"authorities\.json\[0\]: the private key beside it",
    ),
    "no authority": (encoded(authorities_json="[]"), "has 0 authorities"),
    "many authorities": (encoded(authorities_json=authorities_of(*OTHER.authorities * 9)), "has 9 authorities"),
    "many names": (
        encoded(tls_crt=MANY.server.certificate, tls_key=MANY.server.key, authorities_json=authorities_of(*MANY.authorities)),
        "is for 200 names",
    ),
    "long": (encoded(tls_key="x" * 100_000), "longer than"),
    "number": (encoded(authorities_json="5"), "cannot be read"),
    "numbers in it": (encoded(authorities_json='[{"certificate": 1, "key": 2}]'), "int in place of a text"),
    "nested": (encoded(authorities_json="[" * 100_000), "RecursionError"),
    "no base64": ({"tls.crt": "\u00e4"}, "cannot be read"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
async def test_a_bad_secret_is_overwritten_with_the_last_good_material_and_reported(kind: str, told: list[str]) -> None:
    """Replicas and apiservers trust that; a new authority would be unknown to both for a moment."""
    data, said = BAD[kind]
    cluster = Secrets()
    running = CertificateSecret(client=cluster, hosts=HOSTS, now=lambda: NOW, report=told.append)
    good = await running.material()
    assert cluster.stored is not None
    cluster.stored["data"] |= data
    assert await running.material() == good
    assert len(told) == 1
    assert re.search(said, told[0])
    assert told[0].endswith("; writing the last good one again")
    assert await running.material() == good
    assert (len(told), cluster.writes) == (1, 2)

    cluster.stored["data"] |= data
    started = CertificateSecret(client=cluster, hosts=HOSTS, now=lambda: NOW, report=told.append)
    made = await started.material()
    assert made != good
    assert (made.issuer is not None, served.fault(made, NOW)) == (True, None)
    assert told[1].endswith("; making a new one")
    assert await running.material() == made, "replicas agree again"


async def test_further_keys_of_the_secret_are_kept() -> None:
    cluster = Secrets()
    first = await keeper(cluster).material()
    assert cluster.stored is not None
    cluster.stored["data"]["later"] = "/w=="  # no text
    cluster.stored["immutable"] = False
    assert await keeper(cluster).material() == first
    await keeper(cluster, now=NOW + SERVER_LIFE * 5 / 6).material()
    assert cluster.writes == 2
    assert (cluster.stored["data"]["later"], cluster.stored["immutable"]) == ("/w==", False)


async def test_a_secret_that_changes_all_the_time_is_an_error() -> None:
    cluster = Secrets()
    await keeper(cluster).material()

    async def conflict(resource: Any, obj: Any) -> Any:
        raise errors.Conflict("changed")

    cluster.replace = conflict  # type: ignore[method-assign]
    with pytest.raises(errors.Conflict, match="changed 5 times"):
        await keeper(cluster, now=NOW + SERVER_LIFE * 5 / 6).material()
