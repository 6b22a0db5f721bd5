"""The server over real TLS: answers, limits, and a new certificate under load."""

import asyncio
import contextlib
import datetime as dt
import json
import ssl
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from cryptography import x509
from prometheus_client import CollectorRegistry

from fairlead.api import names
from fairlead.kube import errors
from fairlead.webhook.certificates import authority
from fairlead.webhook.certificates.authority import Material
from fairlead.webhook.certificates.served import load, tls_context
from fairlead.webhook.review.envelope import Review
from fairlead.webhook.review.facts import Facts
from fairlead.webhook.serve.limits import Limits
from fairlead.webhook.serve.metrics import Metrics
from fairlead.webhook.serve.server import Server
from tests.support.webhook import decoded_answer, facts

Json = dict[str, Any]
HOSTS = ("127.0.0.1",)
OLD = authority.SERVER_LIFE * 2 / 3 + dt.timedelta(minutes=1)
"""Old enough to be renewed, and still valid."""
LIMITS = Limits(body_bytes=64 * 1024, body_s=0.3, head_s=0.3, facts_s=0.2)


def envelope(object_: Json | None = None, **request: Any) -> bytes:
    pod: Json = {
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "ml"},
        "spec": {"containers": [], "resourceClaims": [{"name": "g", "resourceClaimTemplateName": "h100"}]},
    }
    body = {
        "uid": "u1",
        "kind": {"kind": "Pod"},
        "resource": {"group": "", "resource": "pods"},
        "operation": "CREATE",
        "namespace": "ml",
        "name": "p",
        "object": pod if object_ is None else object_,
    }
    return json.dumps(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": body | request}
    ).encode()


class Site:
    """A running server, and a client that trusts its authority."""

    def __init__(self, url: str, context: ssl.SSLContext, material: Material, registry: CollectorRegistry) -> None:
        self.url = url
        self.context = context
        self.material = material
        self.registry = registry
        self.trust = ssl.create_default_context(cadata=material.bundle)
        self.port = int(url.rsplit(":", 1)[1])

    async def post(self, path: str, body: Any, content_type: str = "application/json") -> tuple[int, bytes]:
        async with (
            aiohttp.ClientSession() as session,
            session.post(
                self.url + path, data=body, headers={"Content-Type": content_type}, ssl=self.trust
            ) as response,
        ):
            return response.status, await response.read()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=self.trust)


async def known(review: Review) -> Facts:
    return facts()


@contextlib.asynccontextmanager
async def serving(load_facts: Any = known, limits: Limits = LIMITS, **options: Any) -> AsyncIterator[Site]:
    material = authority.new_material(HOSTS, dt.datetime.now(dt.UTC) - OLD)
    registry = CollectorRegistry()
    context = tls_context(material)
    server = Server(load_facts, Metrics(registry), limits=limits, **options)
    async with server.serve("127.0.0.1", 0, context) as port:
        yield Site(f"https://127.0.0.1:{port}", context, material, registry)


async def test_a_review_is_answered_with_its_uid_and_patch() -> None:
    async with serving() as site:
        status, body = await site.post("/mutate?timeout=5s", envelope())
    assert status == 200
    response = decoded_answer(body)
    assert (response["uid"], response["allowed"]) == ("u1", True)
    assert response["patch"] == [
        {"op": "add", "path": "/spec/schedulingGates", "value": [{"name": names.ADMISSION_GATE}]},
        {"op": "add", "path": "/metadata/labels", "value": {}},
        {"op": "add", "path": "/metadata/labels/fairlead.dev~1reviewed", "value": names.REVIEWED_POD},
    ]


async def test_a_denial_is_an_answer_and_counted() -> None:
    async with serving() as site:
        status, body = await site.post("/validate", envelope())
    assert status == 200
    assert decoded_answer(body)["allowed"] is False
    labels = {"phase": "validate", "resource": "pods", "operation": "CREATE", "verdict": "denied", "cause": "gate"}
    assert site.registry.get_sample_value("fairlead_webhook_reviews_total", labels) == 1


BAD = [
    (b"{", "application/json", 400, "not JSON"),
    (b'{"a":' * 13_000, "application/json", 400, "nested too deeply"),
    (b'{"kind": "Pod", "apiVersion": "v1"}', "application/json", 400, "expected an AdmissionReview"),
    (envelope(), "application/yaml", 415, "send application/json"),
    (envelope(), "text/plain; charset=utf-8", 415, "send application/json"),
    (b" " * 70_000, "application/json", 413, "larger than 65536 bytes"),
]


@pytest.mark.parametrize(("body", "content_type", "status", "message"), BAD, ids=[f"{row[2]}-{row[3]}" for row in BAD])
async def test_what_is_no_review_has_a_clear_status(body: bytes, content_type: str, status: int, message: str) -> None:
    async with serving() as site:
        got, text = await site.post("/mutate", body, content_type)
        again, _ = await site.post("/mutate", envelope())
    assert got == status
    assert message in json.loads(text)["error"]
    assert again == 200, "one bad request must not hurt the next"
    assert site.registry.get_sample_value("fairlead_webhook_bad_requests_total", {"status": str(status)}) == 1


async def test_a_newcomer_takes_the_place_of_the_oldest_that_has_carried_no_review() -> None:
    async with serving(limits=Limits(connections=2)) as site:
        held = [await site.connect() for _ in range(2)]
        reader, writer = await site.connect()
        writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        with contextlib.suppress(ConnectionError):
            assert await held[0][0].read() == b""
        for each in (*(writer for _, writer in held), writer):
            each.close()


async def test_facts_that_cannot_be_read_leave_it_to_the_failure_policy() -> None:
    async def unreachable(review: Review) -> Facts:
        raise errors.Unreachable("GET https://apiserver: refused")

    async def late(review: Review) -> Facts:
        await asyncio.Event().wait()
        raise AssertionError

    for load_facts, message in ((unreachable, "refused"), (late, "did not answer within 0.2 s")):
        async with serving(load_facts) as site:
            status, body = await site.post("/mutate", envelope())
        assert status == 503
        assert "Pod ml/p: cannot be judged: " in json.loads(body)["error"]
        assert message in json.loads(body)["error"]


async def test_an_internal_error_is_a_500_without_a_stack_trace() -> None:
    async def broken(review: Review) -> Any:
        return None

    async with serving(broken) as site:
        status, body = await site.post("/mutate", envelope())
    assert status == 500
    assert json.loads(body) == {"error": "Pod ml/p: cannot be judged: internal error"}


async def test_only_tls_1_3_is_spoken() -> None:
    async with serving() as site:
        old = ssl.create_default_context(cadata=site.material.bundle)
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection("127.0.0.1", site.port, ssl=old)


def _served(writer: asyncio.StreamWriter) -> int:
    der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    return x509.load_der_x509_certificate(der).serial_number


async def test_a_new_certificate_refuses_no_request() -> None:
    """Old connections go on, new ones see the new certificate, and clients that post meanwhile notice nothing."""
    async with serving() as site:
        _, before = await site.connect()
        statuses: list[int] = []
        done, progress = asyncio.Event(), asyncio.Event()

        async def client() -> None:
            async with aiohttp.ClientSession() as session:
                while not done.is_set():
                    headers = {"Content-Type": "application/json", "Connection": "close"}
                    async with session.post(
                        f"{site.url}/mutate", data=envelope(), headers=headers, ssl=site.trust
                    ) as got:
                        statuses.append(got.status)
                        progress.set()

        clients = [asyncio.create_task(client()) for _ in range(3)]
        for _ in range(3):
            load(site.context, authority.advance(site.material, HOSTS, dt.datetime.now(dt.UTC)))
            wanted = len(statuses) + 6
            async with asyncio.timeout(10):
                while len(statuses) < wanted:
                    await progress.wait()
                    progress.clear()
        done.set()
        await asyncio.gather(*clients)
        _, after = await site.connect()
        assert set(statuses) == {200}
        assert _served(before) == site.material.server.x509.serial_number
        assert _served(after) != _served(before)
        before.close()
        after.close()


async def test_probes_are_answered_by_the_server_itself() -> None:
    """/healthz says that the loop and the port that answer reviews do so; /readyz why not yet."""
    problem: str | None = "waiting for pods"
    async with serving(ready=lambda: problem) as site, aiohttp.ClientSession() as session:
        for path, status, text in (("healthz", 200, "ok\n"), ("livez", 200, "ok\n"), ("readyz", 503, f"{problem}\n")):
            async with session.get(f"{site.url}/{path}", ssl=False) as response:
                assert (response.status, await response.text()) == (status, text)
        problem = None
        async with session.get(f"{site.url}/readyz", ssl=False) as response:
            assert response.status == 200
