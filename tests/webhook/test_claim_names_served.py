"""Named claims through an apiserver: signed by the webhook's own key, and refused, put back or judged as the rules say."""

import asyncio
import dataclasses
import datetime as dt
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from fairlead.api import claim_sources, names
from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.resources import PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS, TENANCY_POLICIES, raw
from fairlead.webhook.cache.informer_cache import InformerCache
from fairlead.webhook.certificates import authority
from fairlead.webhook.certificates.authority import signing_key
from fairlead.webhook.certificates.served import MountedCertificate
from tests.support.webhook import review

Json = dict[str, Any]
Cluster = Any  # conftest.py's
OWNER: Json = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "6b0d2c1e", "controller": True}
REQUESTS = [{"name": "gpu", "exactly": {"deviceClassName": names.GPU_CLASS}}]
TEMPLATE: Json = {
    "metadata": {"name": "h100", "namespace": "ml"},
    "spec": {"spec": {"devices": {"requests": REQUESTS}}},
}


def pod(name: str = "train-0", *, limits: Json | None = None, owned: bool = True) -> Json:
    container: Json = {"name": "c", "image": "busybox"}
    spec: Json = {"containers": [container]}
    if limits is None:
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "h100"}]
        container["resources"] = {"claims": [{"name": "gpu"}]}
    else:
        container["resources"] = {"limits": limits}
    metadata = {"name": name, "namespace": "ml", "ownerReferences": [OWNER] if owned else []}
    return {"metadata": metadata, "spec": spec}


def again(stored: Json, name: str, *, owned: bool = True) -> Json:
    """The stored pod's manifest under another name: `kubectl get -o yaml`, edited."""
    kept = {"containers", "resourceClaims", "schedulingGates", "volumes"}
    metadata = {"name": name, "namespace": "ml", "annotations": stored["metadata"]["annotations"]}
    if owned:
        metadata["ownerReferences"] = [OWNER]
    return {"metadata": metadata, "spec": {key: value for key, value in stored["spec"].items() if key in kept}}


async def test_a_pod_names_its_claim_and_the_record_is_signed(cluster: Cluster) -> None:
    async with cluster.webhook():
        template = await cluster.alice.create(raw(RESOURCE_CLAIM_TEMPLATES), TEMPLATE)
        stored = await cluster.alice.create(raw(PODS), pod())
        legacy = await cluster.alice.create(raw(PODS), pod("train-1", limits={names.LEGACY_GPU: 2}))
        source = claim_sources.read(stored["metadata"]["annotations"])["gpu"]
        assert stored["spec"]["resourceClaims"] == [{"name": "gpu", "resourceClaimName": source.claim}]
        assert (source.template, source.uid) == ("h100", template["metadata"]["uid"])
        limit = claim_sources.read(legacy["metadata"]["annotations"])["fairlead-gpu-0"]
        assert (limit.template, limit.uid) == ("fairlead-gpu-2", "")
        # The same once more: another replica, or another webhook's change in between.
        second = await cluster.alice.create(raw(PODS), again(stored, "train-2"))
        assert second["spec"]["resourceClaims"] == stored["spec"]["resourceClaims"]
        async with cluster.webhook():
            await cluster.alice.create(raw(PODS), again(stored, "train-3"))
    async with cluster.webhook():  # restarted
        await cluster.alice.create(raw(PODS), again(stored, "train-4"))


def counted(text: str) -> dict[tuple[str, str], int]:
    """Reviews by phase and resource, of the metrics page."""
    (family,) = (each for each in text_string_to_metric_families(text) if each.name == "fairlead_webhook_reviews")
    found: dict[tuple[str, str], int] = {}
    for sample in family.samples:
        if sample.name == "fairlead_webhook_reviews_total":
            key = sample.labels["phase"], sample.labels["resource"]
            found[key] = found.get(key, 0) + int(sample.value)
    return found


async def test_without_a_policy_each_pod_is_reviewed_once_and_its_claim_never(
    cluster: Cluster, unused_tcp_port: int
) -> None:
    import aiohttp

    config = cluster.kubeconfig(names.CONTROLLER_USER, cluster.service_accounts)
    bind = f"127.0.0.1:{unused_tcp_port}"
    async with cluster.webhook(metrics_bind=bind), Client.connect(config) as controller:
        await cluster.alice.create(raw(RESOURCE_CLAIM_TEMPLATES), TEMPLATE)
        for at in range(3):
            stored = await cluster.alice.create(raw(PODS), pod(f"train-{at}"))
            name = stored["spec"]["resourceClaims"][0]["resourceClaimName"]
            claim = {"metadata": {"name": name, "namespace": "ml"}, "spec": TEMPLATE["spec"]["spec"]}
            await controller.create(raw(RESOURCE_CLAIMS), claim)
        async with aiohttp.ClientSession() as session, session.get(f"http://{bind}/metrics") as response:
            found = counted(await response.text())
    templates = "resourceclaimtemplates.resource.k8s.io"
    assert found == {("mutate", "pods"): 3, ("validate", templates): 1}


async def test_where_there_is_a_policy_the_claims_that_the_controller_makes_are_judged(cluster: Cluster) -> None:
    """A template may be older than the policy of the moment."""
    config = cluster.kubeconfig(names.CONTROLLER_USER, cluster.service_accounts)
    policy = {"apiVersion": names.API_VERSION, "kind": "TenancyPolicy", "metadata": {"name": "slices"}}

    def claim(name: str) -> Json:
        return {"metadata": {"name": name, "namespace": "ml"}, "spec": TEMPLATE["spec"]["spec"]}

    async with cluster.webhook(), Client.connect(config) as controller:
        await controller.create(raw(RESOURCE_CLAIMS), claim("before"))
        await cluster.admin.create(raw(TENANCY_POLICIES), policy | {"spec": {"wholeGpus": "Forbid"}})
        async with asyncio.timeout(10):  # the registration follows
            for attempt in range(10_000):
                try:
                    await controller.create(raw(RESOURCE_CLAIMS), claim(f"after-{attempt}"), dry_run=True)
                except errors.ApiError as error:
                    refused = str(error)
                    break
    assert "TenancyPolicy slices (wholeGpus)" in refused


async def test_the_signing_key_is_that_of_all_replicas_and_of_no_other_certificate(tmp_path: Path) -> None:
    first, second = (authority.new_material(("localhost",), dt.datetime.now(dt.UTC)) for _ in range(2))
    (tmp_path / "tls.crt").write_text(first.server.certificate)
    (tmp_path / "tls.key").write_text(f"{first.server.key}\n")
    mounted = await MountedCertificate(directory=tmp_path).material()
    assert signing_key(mounted) == signing_key(first) != signing_key(second)
    renewed = dataclasses.replace(first, server=dataclasses.replace(first.server, certificate="another"))
    assert signing_key(renewed) == signing_key(first)
    assert len(signing_key(first)) == 32


def test_after_a_rotation_the_key_before_it_is_kept() -> None:
    client: Any = None
    cache = InformerCache(client, drivers=(names.DRIVER,), controllers=frozenset())
    for key in (b"a", b"a", b"b", b"b"):  # at each reconciliation
        cache.sign_with(key)
    known = cache.cached_facts(review({"kind": "TenancyPolicy", "metadata": {"name": "p"}}))
    assert known is not None
    assert (known.signing_key, known.former_signing_key) == (b"b", b"a")
