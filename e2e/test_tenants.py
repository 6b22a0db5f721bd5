"""Two tenants on one cluster: each person does what the role says, in the own namespaces, within the quotas; and no more.

On a sandbox, as Fairlead is installed there: a real cluster's users cannot be impersonated by a test. Its apiserver enforces RBAC, quotas
and limit ranges; Pod Security and NetworkPolicies it only keeps (docs/sandbox.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from fairlead.api import names
from fairlead.kube import errors, resources
from fairlead.kube.client import Client
from fairlead.sandbox.cluster import Cluster, ClusterOptions, NodeSpec
from fairlead.sandbox.installation import example, installed_for, labelled
from tests.support.commands import invoke
from tests.support.kubernetes import of_this_run
from tests.support.sandbox import View, until

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]
QUOTA = "{}.deviceclass.resource.k8s.io/devices"


@dataclass
class Site:
    driver: str  # whose GPUs; its class of whole ones has the same name
    cluster: Cluster
    view: View  # of the administrator
    member: Client  # ann, in group vision
    admin: Client  # bo, in group vision-admins


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    if request.config.getoption("--kubeconfig") is not None:
        pytest.skip("the users of a real cluster cannot be impersonated; this runs on a sandbox")
    workdir, driver = tmp_path_factory.mktemp("t"), request.config.getoption("--driver")
    nodes = labelled((NodeSpec("a", "hgx-h100"), NodeSpec("b", "hgx-h100")))
    async with (
        installed_for(ClusterOptions(workdir=workdir, nodes=nodes, release=of_this_run()), driver) as cluster,
        AsyncExitStack() as stack,
    ):
        queues = example("00-queues", driver, gpus=1)
        await cluster.apply([each for each in queues if each["kind"] == "Flavor"])
        for name in ("vision", "language"):
            await _tenant(cluster, name, driver)
        yield Site(
            driver,
            cluster,
            View(cluster.admin),
            await stack.enter_async_context(_as(cluster, workdir, "ann", "vision")),
            await stack.enter_async_context(_as(cluster, workdir, "bo", "vision-admins")),
        )


async def _tenant(cluster: Cluster, name: str, driver: str) -> None:
    words = [name, "--deserved", "h100=8", "--limit", "h100=16", "--gpus", f"{driver}=8", "--cpu", "64"]
    words += [
        "--members",
        f"group:{name}",
        "--admins",
        f"group:{name}-admins",
        "--kubeconfig",
        str(cluster.kubeconfig()),
    ]
    done = await asyncio.to_thread(lambda: invoke(["tenant", "create", *words]))
    assert done.exit_code == 0, done.output


def _as(cluster: Cluster, workdir: Path, user: str, group: str) -> AbstractAsyncContextManager[Client]:
    file = workdir / f"{user}.yaml"
    file.write_text(cluster.server.kubeconfig(user, groups=(group,)))
    return Client.connect(file)


def job(name: str, members: int, *, gpus: int = 1, seconds: int = 3, **pod: Any) -> dict[str, Any]:
    """A gang that the level `restricted` admits; its containers say nothing of cpu, which the quota bounds."""
    context = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container = {
        "name": "worker",
        "image": "busybox:1.37",
        "command": ["sleep", str(seconds)],
        "securityContext": context,
        "resources": {"limits": {"nvidia.com/gpu": gpus}},
    }
    spec = {
        "restartPolicy": "Never",
        "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        **pod,
    }
    template = {"metadata": {"annotations": {names.GANG: name}}, "spec": spec}
    body = {"completionMode": "Indexed", "completions": members, "parallelism": members, "template": template}
    return {"metadata": {"name": name}, "spec": body}


async def _waiting(site: Site, name: str, reason: str) -> dict[str, Any]:
    """The gang of vision, once it waits for this reason."""
    gang: dict[str, Any] = {}

    async def waits() -> bool:
        gang.update(await site.view.get(resources.GANGS, name, "vision") or {})
        return reason in str(gang.get("status"))

    await until(waits, timeout_s=60, what=f"gang {name} waits for {reason}")
    return gang


async def test_a_member_submits_a_gang_and_it_runs_in_the_tenants_queue(site: Site) -> None:
    await site.member.create(resources.JOBS, job("train", 4, seconds=20), "vision")
    gang = await site.view.gang("train", "Running", namespace="vision", timeout_s=60)
    assert gang["status"]["queue"] == "vision"
    pods = (
        await site.member.list(resources.raw(resources.PODS), "vision", labels="batch.kubernetes.io/job-name=train")
    ).items
    assert [each["spec"]["containers"][0]["resources"]["requests"]["cpu"] for each in pods] == ["100m"] * 4
    quota = await site.member.get(resources.RESOURCE_QUOTAS, "fairlead-tenant", "vision")
    assert quota["status"]["used"] == {QUOTA.format(site.driver): "4", "requests.cpu": "400m"}
    await site.member.delete(resources.JOBS, "train", "vision", propagation="Background")
    await site.view.no_claims()


async def test_what_exceeds_the_tenants_quota_does_not_start(site: Site) -> None:
    await site.member.create(resources.JOBS, job("large", 3, gpus=4), "vision")
    gang = await _waiting(site, "large", "ExceedsResourceQuota")
    assert "12 asked > 8" in str(gang["status"])
    assert [each for each in await site.view.claims("vision") if each["metadata"]["name"].startswith("large")] == []
    await site.member.delete(resources.JOBS, "large", "vision", propagation="Background")
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": site.driver, "count": 9}}]}}
    with pytest.raises(errors.Forbidden, match=r"exceeded quota: fairlead-tenant, requested: .*devices=9"):
        await site.admin.create(
            resources.raw(resources.RESOURCE_CLAIMS), {"metadata": {"name": "nine"}, "spec": spec}, "vision"
        )


async def test_the_priority_of_the_cluster_itself_is_refused_and_the_shared_ones_are_taken(site: Site) -> None:
    def pod(name: str, priority_class: str) -> dict[str, Any]:
        template = job(name, 1, seconds=1, priorityClassName=priority_class)["spec"]["template"]["spec"]
        return {"metadata": {"name": name}, "spec": template}

    with pytest.raises(errors.Forbidden, match="exceeded quota: fairlead-tenant-critical"):
        await site.member.create(resources.raw(resources.PODS), pod("critical", "system-node-critical"), "vision")
    made = await site.member.create(resources.raw(resources.PODS), pod("low", "fairlead-low"), "vision")
    assert (made["spec"]["priority"], made["spec"]["preemptionPolicy"]) == (-10, "Never")
    await site.view.phase("low", "Succeeded", namespace="vision", timeout_s=60)


async def test_a_member_writes_nothing_in_anothers_namespace_and_uses_no_other_queue(site: Site) -> None:
    with pytest.raises(errors.Forbidden, match='cannot create resource "jobs"'):
        await site.member.create(resources.JOBS, job("intruder", 1), "language")
    for resource in (resources.PODS, resources.GANGS, resources.RESOURCE_CLAIMS):
        with pytest.raises(errors.Forbidden):
            await site.member.list(resources.raw(resource), "language")
    stolen = job("stolen", 1)
    stolen["spec"]["template"]["metadata"]["annotations"][names.QUEUE] = "language"
    await site.member.create(resources.JOBS, stolen, "vision")
    await _waiting(site, "stolen", "QueueNotForNamespace")
    await site.member.delete(resources.JOBS, "stolen", "vision", propagation="Background")


async def test_nobody_of_the_tenant_changes_what_bounds_it(site: Site) -> None:
    template: dict[str, Any] = {"spec": {"spec": {"devices": {"requests": []}}}}
    with pytest.raises(errors.Forbidden, match="resourceclaimtemplates"):
        await site.member.create(
            resources.raw(resources.RESOURCE_CLAIM_TEMPLATES), {"metadata": {"name": "t"}, **template}, "vision"
        )
    for client in (site.member, site.admin):
        for resource, name, namespace, subresource in (
            (resources.NAMESPACES, "vision", None, None),
            (resources.QUEUES, "vision", None, None),
            (resources.RESOURCE_QUOTAS, "fairlead-tenant", "vision", None),
            (resources.LIMIT_RANGES, "fairlead-tenant", "vision", None),
            (resources.NETWORK_POLICIES, "fairlead-tenant-dns", "vision", None),
            (resources.ROLE_BINDINGS, "fairlead-tenant-admin", "vision", None),
            (resources.GANGS, "train", "vision", "status"),
        ):
            with pytest.raises(errors.Forbidden):
                await client.patch(
                    resources.raw(resource),
                    name,
                    {"metadata": {"labels": {"a": "b"}}},
                    namespace=namespace,
                    subresource=subresource,
                )


async def test_an_admin_manages_templates_which_members_use(site: Site) -> None:
    device = {"name": "gpu", "exactly": {"deviceClassName": site.driver, "count": 2}}
    template = {"metadata": {"name": "two"}, "spec": {"spec": {"devices": {"requests": [device]}}}}
    await site.admin.create(resources.raw(resources.RESOURCE_CLAIM_TEMPLATES), template, "vision")
    claims = [{"name": "gpu", "resourceClaimTemplateName": "two"}]
    body = job("pair", 2, resourceClaims=claims)
    body["spec"]["template"]["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
    await site.member.create(resources.JOBS, body, "vision")
    await site.view.gang("pair", "Running", "Finished", "Succeeded", namespace="vision", timeout_s=60)
