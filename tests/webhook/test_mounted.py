"""A certificate that another program renews: read from files, read again when they change, the bundle left alone without ca.crt."""

import datetime as dt
from pathlib import Path

import pytest

from fairlead.webhook.certificates import authority
from fairlead.webhook.certificates.authority import CertificateError, Material
from fairlead.webhook.certificates.served import MountedCertificate
from fairlead.webhook.registration import configurations, registrar
from fairlead.webhook.registration.configurations import Target

NOW = dt.datetime(2026, 11, 21, tzinfo=dt.UTC)
HOSTS = ("fairlead-webhook.fairlead-system.svc",)


def write(directory: Path, material: Material, *, authority: bool = True) -> None:
    (directory / "tls.crt").write_text(material.server.certificate)
    (directory / "tls.key").write_text(material.server.key)
    if authority:
        (directory / "ca.crt").write_text(material.bundle)


async def test_files_are_served_and_read_again_when_they_change(tmp_path: Path) -> None:
    first, second = authority.new_material(HOSTS, NOW), authority.new_material(HOSTS, NOW)
    mounted = MountedCertificate(directory=tmp_path, now=lambda: NOW)
    write(tmp_path, first)
    assert (await mounted.material()).server == first.server
    assert (await mounted.material()).bundle == first.bundle
    write(tmp_path, second)
    assert (await mounted.material()).server == second.server


async def test_a_certificate_that_begins_tomorrow_or_a_bundle_that_is_none_is_not_served(tmp_path: Path) -> None:
    write(tmp_path, authority.new_material(HOSTS, NOW + dt.timedelta(days=1)))
    with pytest.raises(CertificateError, match=r"tls\.crt: is not valid before 2026-11-21T23:55:00Z"):
        await MountedCertificate(directory=tmp_path, now=lambda: NOW).material()
    write(tmp_path, authority.new_material(HOSTS, NOW))
    (tmp_path / "ca.crt").write_text("garbage")
    with pytest.raises(CertificateError, match=r"ca\.crt: cannot be read"):
        await MountedCertificate(directory=tmp_path, now=lambda: NOW).material()


async def test_without_an_authority_the_bundles_are_left_alone(tmp_path: Path) -> None:
    write(tmp_path, authority.new_material(HOSTS, NOW), authority=False)
    material = await MountedCertificate(directory=tmp_path, now=lambda: NOW).material()
    wanted = configurations.mutating(Target(bundle=material.bundle))["webhooks"]
    assert all("caBundle" not in webhook["clientConfig"] for webhook in wanted)
    injected = configurations.mutating(Target(bundle="injected"))["webhooks"]
    registrar._keep_foreign_bundles(wanted, injected)
    assert wanted == injected
