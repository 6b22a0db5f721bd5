"""Kubeconfigs and service accounts. Not here: exec plugins' own protocol, which is the official client's."""

import base64
import datetime as dt
import json
import ssl
import stat
import tempfile

import pytest
import yaml
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fairlead.kube import credentials, errors, plain_kubeconfig
from fairlead.kube.client import Client
from fairlead.sandbox.apiserver.wire.tls import make_authority, server_context
from tests.support.kube import VirtualTime


def certificate(name: str = "x") -> tuple[bytes, bytes]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + dt.timedelta(days=3650))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return made.public_bytes(serialization.Encoding.PEM), pem


def kubeconfig(path, user, **cluster):
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:6443"} | cluster}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(yaml.safe_dump(document))
    return path


def b64(pem):
    return base64.b64encode(pem).decode()


async def load(path, clock=None):
    return await credentials.load(path, clock=clock or VirtualTime().clock)


async def test_a_kubeconfig_with_a_token_and_a_ca(tmp_path):
    ca, _ = certificate("ca")
    data = {"certificate-authority-data": b64(ca)}
    access = await load(kubeconfig(tmp_path / "config", {"token": "secret"}, **data))
    assert access.url == "https://127.0.0.1:6443"
    assert await access.authorization() == "Bearer secret"
    assert access.tls is not None
    assert access.tls.verify_mode == ssl.CERT_REQUIRED
    assert len(access.tls.get_ca_certs()) == 1


async def test_a_client_certificate_is_shown_to_a_server_that_asks_for_one(tmp_path):
    now = dt.datetime.now(dt.UTC)
    authority = make_authority(now)
    context = server_context(authority, "127.0.0.1", tmp_path, now)
    shown, key = certificate("admin")
    context.load_verify_locations(cadata=shown.decode())
    context.verify_mode = ssl.CERT_REQUIRED

    async def who(request: web.Request) -> web.Response:
        peer = request.transport.get_extra_info("peercert") if request.transport else None
        subject = dict(pair[0] for pair in (peer or {}).get("subject", ()))
        return web.json_response({"kind": "Who", "name": subject.get("commonName")})

    app = web.Application()
    app.router.add_get("/who", who)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        port = runner.addresses[0][1]
        user = {"client-certificate-data": b64(shown), "client-key-data": b64(key)}
        cluster = {"server": f"https://127.0.0.1:{port}", "certificate-authority-data": b64(authority.pem)}
        async with Client.connect(kubeconfig(tmp_path / "mtls", user, **cluster)) as client:
            assert json.loads(await client.request("GET", "/who"))["name"] == "admin"
        async with Client.connect(kubeconfig(tmp_path / "none", {"token": "t"}, **cluster)) as client:
            with pytest.raises(errors.Unreachable):
                await client.request("GET", "/who")
    finally:
        await runner.cleanup()


async def test_a_token_file_that_rotates_is_read_again(tmp_path):
    time = VirtualTime()
    (tmp_path / "token").write_text("one\n")
    access = await load(kubeconfig(tmp_path / "config", {"tokenFile": "token"}), time.clock)
    assert await access.authorization() == "Bearer one"
    (tmp_path / "token").write_text("two")
    assert await access.authorization() == "Bearer one"
    assert await access.authorization(force=True) == "Bearer two"
    (tmp_path / "token").write_text("three")
    time.now += credentials.REREAD_S
    assert await access.authorization() == "Bearer three"
    (tmp_path / "token").unlink()  # in the middle of a rotation
    time.now += credentials.REREAD_S
    assert await access.authorization() == "Bearer three"


async def test_an_exec_plugin_runs_again_when_its_token_has_expired(tmp_path):
    plugin = tmp_path / "plugin"
    count = tmp_path / "count"
    status = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "t@"}}
    status["status"]["expirationTimestamp"] = "2020-01-01T00:00:00Z"  # type: ignore[index]
    plugin.write_text(f"#!/bin/sh\necho x >> {count}\necho '{json.dumps(status)}' | sed s/@/$(wc -l < {count})/\n")
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)}}
    access = await load(kubeconfig(tmp_path / "config", user))
    assert await access.authorization() == "Bearer t2"  # loading ran it once; that credential had expired
    assert await access.authorization() == "Bearer t3"


def test_a_pod_uses_its_service_account(tmp_path):
    (tmp_path / "ca.crt").write_bytes(certificate()[0])
    (tmp_path / "token").write_text("pod-token")
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    access = credentials.in_cluster(clock=VirtualTime().clock, directory=tmp_path, environ=environ)
    assert access.url == "https://[fd00::1]:443"


async def test_a_proxy_is_taken_from_the_environment_unless_it_is_bypassed(tmp_path, monkeypatch):
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", "10.0.0.1")
    assert (await load(kubeconfig(tmp_path / "a", {"token": "t"}))).proxy == "http://proxy:3128"
    assert (await load(kubeconfig(tmp_path / "b", {"token": "t"}, server="https://10.0.0.1"))).proxy is None
    assert (await load(kubeconfig(tmp_path / "c", {"token": "t"}, **{"proxy-url": "http://own"}))).proxy == "http://own"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"# nothing\n", "is empty"),
        (b"- a\n", "its YAML is no mapping"),
        (b"just text", "its YAML is no mapping"),
    ],
)
async def test_a_file_that_is_no_kubeconfig_is_called_so(tmp_path, content, said):
    (tmp_path / "config").write_bytes(content)
    with pytest.raises(credentials.CredentialsError, match=f"config: {said}|config: is no kubeconfig: {said}"):
        await load(tmp_path / "config")


@pytest.mark.parametrize(
    "content",
    [
        b"apiVersion: v1\nkind: Config\n", b"a: [1,\n", b"\xff\x93", b"a: !!timestamp x", b"- " * 2000,
        b"{current-context: a, clusters: [{name: a, cluster: {server: 'http://[x'}}], contexts: [{name: a, context: {cluster: a, user: a}}], users: [{name: a, user: {}}]}",
        b"{current-context: a, clusters: 1, contexts: {}, users: [[]]}",
    ],
)  # fmt: skip
async def test_a_kubeconfig_that_makes_no_sense_is_named(tmp_path, content):
    path = tmp_path / "config"
    path.write_bytes(content)
    with pytest.raises(credentials.CredentialsError, match=str(path)):
        await load(path)


async def test_with_nothing_to_go_by_the_error_says_what_was_tried(tmp_path, monkeypatch):
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(credentials.CredentialsError, match="--kubeconfig"):
        await load(None)
    with pytest.raises(credentials.CredentialsError, match="no such file"):
        await load(tmp_path / "absent")


@pytest.mark.parametrize(
    ("user", "cluster"),
    [
        ({"token": "t"}, {}),
        ({"token": "t", "tokenFile": "token"}, {"server": "https://h:1/"}),
        ({"tokenFile": "token"}, {"server": "http://h:1"}),
        ({}, {"insecure-skip-tls-verify": True, "tls-server-name": "other"}),
        (
            {"client-certificate": "me.crt", "client-key": "me.key"},
            {"certificate-authority": "ca.crt", "proxy-url": "http://p"},
        ),
        ({"token": "t"}, {"certificate-authority": "ca.crt", "certificate-authority-data": "DATA", "extensions": []}),
    ],
    ids=str,
)
async def test_a_plain_kubeconfig_is_read_as_the_official_loader_reads_it(tmp_path, user, cluster):
    (tmp_path / "token").write_text("from-a-file")
    (tmp_path / "ca.crt").write_bytes(certificate("ca")[0])
    for name, pem in zip(("me.crt", "me.key"), certificate("me"), strict=True):
        (tmp_path / name).write_bytes(pem)
    cluster = {key: b64(certificate("other")[0]) if value == "DATA" else value for key, value in cluster.items()}
    path = kubeconfig(tmp_path / "config", user, **cluster)
    assert plain_kubeconfig.read(str(path), None) is not None
    ours = await load(path)
    theirs = await credentials._by_official_loader(str(path), None, VirtualTime().clock)
    for field in ("url", "server_name", "proxy"):
        assert getattr(ours, field) == getattr(theirs, field), field
    assert await ours.authorization() == await theirs.authorization()
    assert (ours.tls is None) == (theirs.tls is None)
    if ours.tls is not None and theirs.tls is not None:
        assert (ours.tls.verify_mode, ours.tls.check_hostname) == (theirs.tls.verify_mode, theirs.tls.check_hostname)
        assert ours.tls.get_ca_certs() == theirs.tls.get_ca_certs()


async def test_certificates_and_keys_of_a_kubeconfig_stay_in_no_file(tmp_path, monkeypatch):
    cert, key = certificate("me")
    user = {"client-certificate-data": b64(cert), "client-key-data": b64(key)}
    path = kubeconfig(tmp_path / "config", user, **{"certificate-authority-data": b64(certificate("ca")[0])})
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    for _ in range(2):
        found = await credentials._by_official_loader(str(path), None, VirtualTime().clock)
        assert found.tls is not None
        assert len(found.tls.get_ca_certs()) == 1
        assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.parametrize(
    ("user", "cluster"),
    [
        ({"username": "u", "password": "p"}, {}),
        ({"exec": {"command": "x"}}, {}),
        ({"auth-provider": {"name": "oidc"}}, {}),
        ({"token": 7}, {}),
        ({"token": "t", "as": "other"}, {}),
        ({"client-certificate": "absent.crt"}, {}),
        ({"token": "t"}, {"certificate-authority-data": "no base64"}),
    ],
    ids=str,
)
def test_what_is_not_plain_is_left_to_the_official_loader(tmp_path, user, cluster):
    assert plain_kubeconfig.read(str(kubeconfig(tmp_path / "config", user, **cluster)), None) is None
