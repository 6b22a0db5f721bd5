"""The running webhook and a certificate that cannot be served: it goes on, and says what is wrong in log, metric and event."""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fairlead.api import names
from fairlead.kube.resources import EVENTS, PODS, SECRETS, raw
from fairlead.webhook import app
from fairlead.webhook.certificates import authority
from fairlead.webhook.certificates.authority import Material
from fairlead.webhook.certificates.served import SECRET
from fairlead.webhook.options import WebhookOptions
from tests.support.sandbox import until
from tests.webhook.conftest import SERVICE_ACCOUNTS
from tests.webhook.test_app import gates, pod

Json = dict[str, Any]
Cluster = Any  # conftest.py's
HOSTS = ("127.0.0.1",)
LIMITS = {names.LEGACY_GPU: 1}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "RECONCILE_S", 0.2)


def encoded(material: Material, **instead: str) -> Json:
    pairs = [{"certificate": each.certificate, "key": each.key} for each in material.authorities]
    texts = {
        "tls.crt": material.server.certificate,
        "tls.key": material.server.key,
        "authorities.json": json.dumps(pairs),
    } | {key.replace("_", "."): text for key, text in instead.items()}
    return {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}


def bad() -> Json:
    """The key of another certificate."""
    now = dt.datetime.now(dt.UTC)
    made, other = authority.new_material(HOSTS, now), authority.new_material(HOSTS, now)
    return encoded(made, tls_key=other.server.key)


async def put(cluster: Cluster, data: Json) -> None:
    await cluster.admin.patch(raw(SECRETS), SECRET, {"data": data}, namespace=names.NAMESPACE)


async def stored(cluster: Cluster) -> Json:
    found = await cluster.admin.get(raw(SECRETS), SECRET, names.NAMESPACE)
    return dict(found.get("data") or {})


async def events(cluster: Cluster) -> list[str]:
    found = (await cluster.admin.list(raw(EVENTS), names.NAMESPACE)).items
    return [each["message"] for each in found if each["reason"] == "CertificateUnusable"]


async def test_a_bad_secret_neither_ends_the_webhook_nor_keeps_it_from_starting(
    cluster: Cluster, unused_tcp_port: int
) -> None:
    async with cluster.webhook(metrics_bind=f"127.0.0.1:{unused_tcp_port}"), aiohttp.ClientSession() as session:
        good, wrong = await stored(cluster), bad()
        await put(cluster, wrong)

        async def restored() -> bool:
            return bool((await stored(cluster))["tls.key"] == good["tls.key"])

        await until(restored, what="the last good certificate written again")
        assert (await stored(cluster)) == good
        assert gates(await cluster.alice.create(raw(PODS), pod("a", limits=LIMITS))) == [names.ADMISSION_GATE]
        async with session.get(f"http://127.0.0.1:{unused_tcp_port}/metrics") as response:
            assert "fairlead_webhook_certificate_faults_total 1.0" in await response.text()

        async def told() -> list[str]:
            return await events(cluster)

        (message,) = await until(told, what="the event")
        assert message.endswith("writing the last good one again")
    await put(cluster, wrong)
    async with cluster.webhook():
        assert gates(await cluster.alice.create(raw(PODS), pod("b", limits=LIMITS))) == [names.ADMISSION_GATE]
    assert (await stored(cluster))["tls.key"] not in {wrong["tls.key"], good["tls.key"]}


async def test_without_its_secret_the_webhook_waits_says_what_to_do_and_then_registers(
    cluster: Cluster, unused_tcp_port: int
) -> None:
    secret = await cluster.admin.get(raw(SECRETS), SECRET, names.NAMESPACE)
    await cluster.admin.delete(SECRETS, SECRET, names.NAMESPACE)
    ready = asyncio.Event()
    options = WebhookOptions(
        kubeconfig=cluster.kubeconfig(names.WEBHOOK_USER, SERVICE_ACCOUNTS),
        bind="127.0.0.1:0",
        url="https://127.0.0.1:0",
        metrics_bind=f"127.0.0.1:{unused_tcp_port}",
    )
    running = asyncio.create_task(app.run(options, ready=ready))
    try:
        async with aiohttp.ClientSession() as session:

            async def unready() -> str:
                try:
                    async with session.get(f"http://127.0.0.1:{unused_tcp_port}/readyz") as response:
                        text = await response.text()
                except aiohttp.ClientError:
                    return ""
                return text if "fairlead-webhook-tls" in text else ""

            text = await until(unready, what="the reason")
        assert "is not there, and the webhook may create none" in text
        assert "run `helm upgrade`, or apply manifests/base" in text
        assert not ready.is_set()
        assert not running.done()
        metadata = {key: secret["metadata"][key] for key in ("name", "namespace", "labels")}
        await cluster.admin.create(raw(SECRETS), {"metadata": metadata, "type": "Opaque"})
        await asyncio.wait_for(ready.wait(), 20)
        assert gates(await cluster.alice.create(raw(PODS), pod("a", limits=LIMITS))) == [names.ADMISSION_GATE]
    finally:
        running.cancel()
        await asyncio.wait([running])


async def test_a_directory_without_a_certificate_is_waited_for(cluster: Cluster, tmp_path: Path) -> None:
    directory = tmp_path / "mounted"
    directory.mkdir()
    ready = asyncio.Event()
    options = WebhookOptions(
        kubeconfig=cluster.kubeconfig(names.WEBHOOK_USER, SERVICE_ACCOUNTS),
        bind="127.0.0.1:0",
        url="https://127.0.0.1:0",
        certificate_from=directory,
    )
    running = asyncio.create_task(app.run(options, ready=ready))
    try:
        await asyncio.sleep(0.5)
        assert not running.done()
        made = authority.new_material(HOSTS, dt.datetime.now(dt.UTC))
        for name, text in (("tls.crt", made.server.certificate), ("tls.key", made.server.key), ("ca.crt", made.bundle)):
            (directory / name).write_text(text)
        await asyncio.wait_for(ready.wait(), 20)
        (directory / "tls.key").write_text("garbage")
        await asyncio.sleep(0.5)
        assert gates(await cluster.alice.create(raw(PODS), pod("a", limits=LIMITS))) == [names.ADMISSION_GATE]
    finally:
        running.cancel()
        await asyncio.wait([running])
