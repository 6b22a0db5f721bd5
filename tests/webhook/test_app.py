"""The webhook as a program, against the sandbox's apiserver, as its own ServiceAccount with nothing but its RBAC."""

import asyncio
import contextlib
import dataclasses
import datetime as dt
import io
import json
import socket
from pathlib import Path
from typing import Any

import pytest

from fairlead.api import names
from fairlead.cli.checks.manifests import Manifests
from fairlead.cli.serve import reason
from fairlead.kube import errors
from fairlead.kube.client import Client, Patch
from fairlead.kube.resources import (
    CLUSTER_ROLES,
    CRDS,
    JOBS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    SECRETS,
    VALIDATING_WEBHOOKS,
    raw,
)
from fairlead.webhook import app
from fairlead.webhook.certificates import authority
from fairlead.webhook.options import WebhookOptions
from fairlead.webhook.registration import configurations, registrar
from fairlead.webhook.registration.configurations import Target

Json = dict[str, Any]
Cluster = Any  # conftest.py's


def template(name: str = "h100", class_name: str = names.GPU_CLASS) -> Json:
    request = {"name": "gpu", "exactly": {"deviceClassName": class_name}}
    return {"metadata": {"name": name, "namespace": "ml"}, "spec": {"spec": {"devices": {"requests": [request]}}}}


def pod(name: str = "p", *, claims: str | None = None, limits: Json | None = None, **metadata: Any) -> Json:
    container: Json = {"name": "c", "image": "busybox", "resources": {"limits": limits or {}}}
    spec: Json = {"containers": [container]}
    if claims is not None:
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": claims}]
        container["resources"]["claims"] = [{"name": "gpu"}]
    return {"metadata": {"name": name, "namespace": "ml"} | metadata, "spec": spec}


def gates(stored: Any) -> list[str]:
    return [gate["name"] for gate in stored["spec"].get("schedulingGates") or []]


KUEUE = {
    "metadata": {"name": "workloads.kueue.x-k8s.io"},
    "spec": {
        "group": "kueue.x-k8s.io",
        "names": {"plural": "workloads", "singular": "workload", "kind": "Workload", "listKind": "WorkloadList"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1beta1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


async def test_a_port_that_is_taken_is_named(cluster: Cluster) -> None:
    given = WebhookOptions(kubeconfig=cluster.kubeconfig(names.WEBHOOK_USER, cluster.service_accounts))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        host, port = taken.getsockname()
        for bind, metrics_bind in ((f"{host}:{port}", None), ("127.0.0.1:0", f"{host}:{port}")):
            with pytest.raises((OSError, ExceptionGroup)) as ended:
                await app.run(dataclasses.replace(given, bind=bind, metrics_bind=metrics_bind))
            said = reason(ended.value)
            assert [part for part in (host, str(port), "in use") if part not in said] == [], said


async def test_a_template_and_the_pod_that_follows_at_once_are_gated(cluster: Cluster) -> None:
    async with cluster.webhook():
        await cluster.alice.create(RESOURCE_CLAIM_TEMPLATES, template())
        stored = await cluster.alice.create(raw(PODS), pod(claims="h100"))
    assert gates(stored) == [names.ADMISSION_GATE]


async def test_a_job_for_kueue_is_unsuspended_where_kueue_is_absent(cluster: Cluster) -> None:
    """Looked up for each such Job: Kueue may be installed at any time."""
    spec = {
        "parallelism": 2,
        "completions": 2,
        "suspend": True,
        "template": {"spec": pod(limits={names.LEGACY_GPU: 1})["spec"] | {"restartPolicy": "Never"}},
    }

    async def suspended(name: str) -> Any:
        metadata = {"name": name, "namespace": "ml", "labels": {names.KUEUE_QUEUE: "user-queue"}}
        job = await cluster.alice.create(raw(JOBS), {"metadata": metadata, "spec": spec})
        assert job["spec"]["template"]["metadata"]["labels"][names.KUEUE_QUEUE] == "user-queue"
        return job["spec"]["suspend"]

    async with cluster.webhook():
        assert await suspended("alone") is False
        await cluster.admin.create(raw(CRDS), KUEUE)
        for attempt in range(100):  # the CRD takes a moment
            await asyncio.sleep(0.05)
            if await suspended(f"beside-{attempt}"):
                return
    pytest.fail("the Job is started although there is Kueue")


async def test_check_looks_up_whether_the_cluster_has_kueue(cluster: Cluster, tmp_path: Path) -> None:
    spec = pod(limits={names.LEGACY_GPU: 1})["spec"] | {"restartPolicy": "Never"}
    metadata = {"name": "j", "namespace": "ml", "labels": {names.KUEUE_QUEUE: "user-queue"}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata}
    manifest = tmp_path / "job.json"
    manifest.write_text(json.dumps(job | {"spec": {"suspend": True, "template": {"spec": spec}}}))

    async def warned() -> bool:
        with contextlib.redirect_stdout(io.StringIO()) as said:
            kubeconfig = cluster.workdir / "admin"
            assert await asyncio.to_thread(Manifests(files=(manifest,), kubeconfig=kubeconfig).run) == 0
        return "spec.suspend: true waits for Kueue" in said.getvalue()

    assert await warned()
    await cluster.admin.create(raw(CRDS), KUEUE)
    for _ in range(100):  # the CRD takes a moment
        await asyncio.sleep(0.05)
        if not await warned():
            return
    pytest.fail("Kueue is not seen")


async def test_only_the_controller_and_allocators_remove_the_gate(cluster: Cluster) -> None:
    release = [{"op": "remove", "path": "/spec/schedulingGates/0"}]
    config = cluster.kubeconfig(names.CONTROLLER_USER, cluster.service_accounts)
    async with cluster.webhook(), Client.connect(config) as controller:
        for name in ("a", "b"):
            await cluster.alice.create(PODS, pod(name, limits={names.LEGACY_GPU: 1}))
        with pytest.raises(errors.ApiError, match="only the Fairlead controller removes"):
            await cluster.alice.patch(PODS, "a", release, namespace="ml", kind=Patch.JSON)
        for client, name in ((controller, "a"), (cluster.admin, "b")):
            stored = await client.patch(raw(PODS), name, release, namespace="ml", kind=Patch.JSON)
            assert gates(stored) == []


async def test_a_webhook_that_is_down_blocks_only_marked_objects(cluster: Cluster) -> None:
    async with cluster.webhook():
        await cluster.alice.create(RESOURCE_CLAIM_TEMPLATES, template("nic", "nic.example.com"))
    await cluster.alice.create(PODS, pod("plain"))
    await cluster.alice.create(PODS, pod("foreign", claims="nic"))
    with pytest.raises(errors.ApiError, match="fairlead"):
        await cluster.alice.create(PODS, pod("ours", limits={names.LEGACY_GPU: 1}))
    await cluster.admin.patch(NAMESPACES, "ml", {"metadata": {"labels": {names.IGNORE_LABEL: ""}}})
    await cluster.alice.create(PODS, pod("exempt", limits={names.LEGACY_GPU: 1}))


@pytest.mark.parametrize("how", ["hangs", "talks nonsense"])
async def test_a_webhook_that_is_slow_or_wrong_lets_unmarked_objects_pass(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    done = asyncio.Event()
    calls = 0

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal calls
        calls += 1
        if how == "hangs":
            await done.wait()
        writer.close()

    monkeypatch.setattr(configurations, "IGNORE_TIMEOUT_S", 1)
    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    bundle = authority.new_material(("127.0.0.1",), dt.datetime.now(dt.UTC)).bundle
    async with server:
        await registrar.ensure(cluster.admin, Target(bundle=bundle, url=url))
        await cluster.alice.create(PODS, pod("plain", limits={"cpu": "1"}))
        assert calls == 0, "a pod that asks for nothing never reaches the webhook"
        await cluster.alice.create(PODS, pod("foreign", claims="nic"))
        assert calls > 0
        done.set()


async def test_stopping_leaves_the_registration_and_an_uninstall_deletes_it(cluster: Cluster) -> None:
    async with cluster.webhook():
        pass
    role = await cluster.admin.get(CLUSTER_ROLES, names.WEBHOOK_ACCOUNT)
    for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        found = await cluster.admin.get(resource, "fairlead")
        assert found["webhooks"]
        (owner,) = found["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["uid"]) == (
            "ClusterRole",
            names.WEBHOOK_ACCOUNT,
            role["metadata"]["uid"],
        )


async def test_a_second_replica_serves_the_same_authority(cluster: Cluster) -> None:
    async with cluster.webhook():
        before = await cluster.admin.get(SECRETS, "fairlead-webhook-tls", names.NAMESPACE)
        async with cluster.webhook():
            after = await cluster.admin.get(SECRETS, "fairlead-webhook-tls", names.NAMESPACE)
            await cluster.alice.create(PODS, pod(limits={names.LEGACY_GPU: 1}))
    assert before["data"] == after["data"]


async def test_a_broken_registration_is_repaired(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "RECONCILE_S", 0.01)
    async with cluster.webhook():
        await cluster.admin.delete(MUTATING_WEBHOOKS, "fairlead")
        async with asyncio.timeout(10):
            while True:
                with contextlib.suppress(errors.NotFound):
                    await cluster.admin.get(MUTATING_WEBHOOKS, "fairlead")
                    break


async def test_health_readiness_and_metrics_are_served(cluster: Cluster, unused_tcp_port: int) -> None:
    import aiohttp

    async with cluster.webhook(metrics_bind=f"127.0.0.1:{unused_tcp_port}"), aiohttp.ClientSession() as session:
        await cluster.alice.create(PODS, pod(limits={names.LEGACY_GPU: 1}))
        texts = {}
        for path in ("healthz", "readyz", "metrics"):
            async with session.get(f"http://127.0.0.1:{unused_tcp_port}/{path}") as response:
                assert response.status == 200
                texts[path] = await response.text()
    assert texts["readyz"] == "ok\n"
    assert 'verdict="patched"' in texts["metrics"]
    assert "fairlead_webhook_certificate_expiry_timestamp_seconds" in texts["metrics"]
