"""The pages as the Deployment runs them, on a cluster's apiserver: its rights, TLS, tokens for its audience, and proxies with certificates."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fairlead.api import names
from fairlead.kube.resources import SERVICE_ACCOUNTS
from fairlead.sandbox import files
from fairlead.sandbox.apiserver.wire.tls import make_authority
from fairlead.sandbox.cluster import Cluster
from fairlead.sandbox.install import manifests
from fairlead.sandbox.ports import reserved
from fairlead.ui.access.tokens import COOKIE
from fairlead.ui.app import run
from fairlead.ui.options import UiOptions
from tests.support.sandbox import cluster, until
from tests.support.ui_login import cookie_of

pytestmark = pytest.mark.asyncio(loop_scope="module")
ACCOUNT = f"system:serviceaccount:{names.NAMESPACE}:fairlead-ui"
RIGHTS = {"Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"}


def gang(name: str, namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": names.API_VERSION,
        "kind": "Gang",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"size": 1},
    }


def tenant(namespace: str) -> list[dict[str, Any]]:
    """A namespace with a gang, and an account that may view it."""
    subject = {"kind": "ServiceAccount", "name": "viewer", "namespace": namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "viewer", "namespace": namespace}},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "viewer", "namespace": namespace},
            "roleRef": role,
            "subjects": [subject],
        },
        gang(f"gang-of-{namespace}", namespace),
    ]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def made() -> AsyncIterator[Cluster]:
    """Three tenants, and the pages' account with the rights that the manifests give it."""
    async with cluster(run_programs=False) as made:
        objects = manifests.load(files.find("manifests/overlays/ui"))
        await made.apply([each for each in objects if each["kind"] in RIGHTS])
        await made.apply([each for name in ("red", "blue", "green") for each in tenant(name)])
        yield made


async def token(made: Cluster, namespace: str, audience: str = "fairlead-ui", seconds: int = 3600) -> str:
    body = {"spec": {"audiences": [audience], "expirationSeconds": seconds}}
    path = SERVICE_ACCOUNTS.path(namespace, "viewer", "token")
    found: str = json.loads(await made.admin.request("POST", path, body=body))["status"]["token"]
    return found


class Site:
    def __init__(self, session: aiohttp.ClientSession, address: str, metrics: str) -> None:
        self.session = session
        self.address = address
        self.metrics = metrics

    async def get(self, path: str, **headers: str) -> tuple[int, str]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.session.get(self.address + path, headers=named) as answer:
            return answer.status, await answer.text()


@contextlib.asynccontextmanager
async def served(made: Cluster, *, context: ssl.SSLContext | None = None, **options: Any) -> AsyncIterator[Site]:
    ready = asyncio.Event()
    with reserved() as port, reserved() as metrics:
        chosen = UiOptions(
            kubeconfig=made.kubeconfig(ACCOUNT),
            bind=f"127.0.0.1:{port}",
            metrics_bind=f"127.0.0.1:{metrics}",
            **options,
        )
        task = asyncio.create_task(run(chosen, ready=ready))
        waiting = asyncio.create_task(ready.wait())
        try:
            await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED, timeout=30)
            assert ready.is_set(), task.exception() if task.done() else "not ready"
            if context is None:
                context = ssl.create_default_context()
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            connector = aiohttp.TCPConnector(ssl=context)
            async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:
                yield Site(session, f"https://localhost:{port}", f"http://127.0.0.1:{metrics}")
        finally:
            task.cancel()
            waiting.cancel()
            await asyncio.gather(task, waiting, return_exceptions=True)


async def log_in(site: Site, given: str) -> tuple[int, str]:
    """The status, and the cookie's value."""
    headers = {"Origin": site.address}
    async with site.session.post(
        f"{site.address}/login", data={"token": given}, headers=headers, allow_redirects=False
    ) as answer:
        return answer.status, cookie_of(answer.headers) if "Set-Cookie" in answer.headers else ""


async def test_each_tenant_sees_its_own_and_what_everybody_may_with_the_rights_of_the_manifests(made):
    async with served(made) as site:
        assert (await site.get("/gangs"))[0] == 401
        for own, other in (("red", "blue"), ("blue", "red")):
            status, cookie = await log_in(site, await token(made, own))
            assert status == 303
            for path in ("/", "/map", "/gangs", f"/gangs/{own}/gang-of-{own}", "/queues", "/time"):
                status, text = await site.get(path, Cookie=f"{COOKIE}={cookie}")
                assert status == (403 if path == "/map" else 200), (path, text)
                assert f"gang-of-{other}" not in text
            assert f"gang-of-{own}" in (await site.get("/gangs", Cookie=f"{COOKIE}={cookie}"))[1]
            status, text = await site.get(
                "/gangs", Authorization=f"Bearer {await token(made, own)}", Accept="application/json"
            )
            assert [each["name"] for each in json.loads(text)] == [f"gang-of-{own}"]
        assert (await site.get("/readyz"))[0] == 200
        async with site.session.get(f"{site.metrics}/metrics") as answer:
            text = await answer.text()
        assert 'fairlead_ui_logins_total{result="accepted"} 2.0' in text
        assert "fairlead_ui_sessions 2.0" in text
        assert 'route="/gangs/{namespace}/{name}"' in text


async def test_tokens_that_the_cluster_does_not_accept_for_this_server_open_nothing(made):
    for_apiserver = await token(made, "red", audience="https://kubernetes.default.svc")
    async with served(made) as site:
        unused = await token(made, "green")
        assert (await log_in(site, await token(made, "green")))[0] == 303
        await made.admin.delete(SERVICE_ACCOUNTS, "viewer", "green")
        await until(lambda: _absent(made, "green"), what="the account is gone")
        for given in (unused, await token(made, "red", audience="another-server"), for_apiserver, "made-up"):
            assert (await log_in(site, given))[0] == 401
    async with served(made, cluster_tokens=True, urls=("https://gpus.example.com",)) as site:
        headers = {"Authorization": f"Bearer {for_apiserver}", "Host": "gpus.example.com"}
        assert (await site.get("/gangs", **headers))[0] == 200
        assert (await site.get("/gangs"))[0] == 421
        assert (await site.get("/gangs", Host="gpus.example.com"))[0] == 401
        assert (await site.get("/healthz"))[0] == 200


async def _absent(made: Cluster, namespace: str) -> bool:
    found = (await made.admin.list(SERVICE_ACCOUNTS, namespace)).items
    return "viewer" not in {each["metadata"]["name"] for each in found}


def authority_and_client(name: str, folder: Path) -> tuple[Path, Path, Path]:
    """Files of an authority, of a client's certificate that it signed, and of its key."""
    now = dt.datetime.now(dt.UTC)
    authority, key = make_authority(now), ec.generate_private_key(ec.SECP256R1())
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(authority.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    pem, own = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    contents = {
        "ca.crt": authority.pem,
        "tls.crt": certificate.public_bytes(pem),
        "tls.key": key.private_bytes(pem, own, serialization.NoEncryption()),
    }
    folder.mkdir()
    for file, content in contents.items():
        (folder / file).write_bytes(content)
    return folder / "ca.crt", folder / "tls.crt", folder / "tls.key"


def with_certificate(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(certificate, key)
    return context


async def test_a_proxy_is_known_by_its_certificate(made, tmp_path):
    ca, certificate, key = authority_and_client("gpu-proxy", tmp_path / "proxy")
    headers = {"X_Forwarded_User": "someone", "X_Forwarded_Groups": "viewers-of-red"}
    binding = tenant("red")[2]
    binding["metadata"]["name"] = "people"
    binding["subjects"] = [{"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "viewers-of-red"}]
    await made.apply([binding])
    options: dict[str, Any] = {"login": "proxy", "client_ca": ca}
    async with served(made, context=with_certificate(certificate, key), proxy_names=("gpu-proxy",), **options) as site:
        status, text = await site.get("/gangs", **headers)
        assert status == 200
        assert "gang-of-red" in text
        assert "gang-of-blue" not in text
    async with served(made, context=with_certificate(certificate, key), proxy_names=("other",), **options) as site:
        status, text = await site.get("/gangs", **headers)
        assert (status, "gang-of" in text) == (401, False)
    async with served(made, proxy_names=("gpu-proxy",), **options) as site:
        assert (await site.get("/gangs", **headers))[0] == 401
        assert (await site.get("/readyz"))[0] == 200, "kubelet has no certificate"
    _, certificate, key = authority_and_client("gpu-proxy", tmp_path / "of another authority")
    async with served(made, context=with_certificate(certificate, key), proxy_names=("gpu-proxy",), **options) as site:
        with pytest.raises(aiohttp.ClientError):
            await site.get("/gangs", **headers)
