"""Install, upgrade, uninstall: the real helm on the sandbox, in the order of docs/install.md.

Helm's own waiting is left out (no Deployment controller runs here): `Workloads` starts and rolls the pods of what helm
wrote, as the cluster's controllers would.
"""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from fairlead.api import names
from fairlead.api.version import VERSION
from fairlead.cli.demo.run import NODES
from fairlead.cli.programs.uninstall import Preparation, said
from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.resources import (
    CRDS,
    DAEMON_SETS,
    DEPLOYMENTS,
    MUTATING_WEBHOOKS,
    PODS,
    QUEUES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    SECRETS,
    VALIDATING_WEBHOOKS,
    raw,
)
from fairlead.sandbox import files
from fairlead.sandbox.cluster import Cluster, ClusterOptions
from fairlead.sandbox.install import manifests
from fairlead.sandbox.install.apply import Applier
from fairlead.sandbox.installation import SIMULATED, bare, labelled, registered
from fairlead.sandbox.objects import name_of, spec_of, status_of
from fairlead.ui.reading.cluster import NotReadError
from tests.support.kubernetes import of_this_run
from tests.support.sandbox import FAST, FAST_MANAGER, until

from .conftest import CHART, JOB, QUEUE, ROOT, Objects, issued, run_helm

VALUES = ROOT / SIMULATED / "values.yaml"
NAMESPACE = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": names.NAMESPACE, "labels": {names.IGNORE_LABEL: "true"}},
}


def options(tmp_path: Path) -> ClusterOptions:
    return ClusterOptions(
        workdir=tmp_path,
        nodes=labelled(NODES[:2]),
        times=FAST,
        manager=FAST_MANAGER,
        scheduler_backoff_s=(0.1, 1.0),
        release=of_this_run(),
    )


async def helm_does(helm: str, site: Cluster, *words: str) -> str:
    code, said = await run_helm(helm, site, *words)
    assert code == 0, said
    return said


async def train(site: Cluster) -> None:
    """A gang that runs until it is ended."""
    await site.apply([QUEUE, JOB])
    await until(lambda: _running(site, 2), what="the gang runs")


async def _running(site: Cluster, wanted: int) -> bool:
    pods = (await site.admin.list(raw(PODS), "default")).items
    return len([pod for pod in pods if status_of(pod).get("phase") == "Running"]) == wanted


async def controllers_follow_their_deployment(site: Cluster) -> None:
    """What the Deployment controller does when the controller is scaled to zero."""
    await until(lambda: _replicas(site, 0), what="the controller is scaled to 0")
    for name in [name for name, each in site.workloads.running.items() if each.workload == names.CONTROLLER_ACCOUNT]:
        await site.workloads.stop_pod(name)


async def _replicas(site: Cluster, wanted: int) -> bool:
    deployment = await site.admin.get(DEPLOYMENTS, names.CONTROLLER_ACCOUNT, names.NAMESPACE)
    return bool(spec_of(deployment)["replicas"] == wanted)


async def left(site: Cluster) -> set[str]:
    """Objects of Fairlead that are in the cluster, as kind/name."""
    found = set()
    for each in manifests.load(files.find(SIMULATED)):
        resource = await Applier(site.admin).resource_of(each)
        namespace = names.NAMESPACE if resource.namespaced else None
        try:
            await site.admin.get(resource, name_of(each), namespace)
        except errors.NotFound:
            continue
        found.add(f"{each['kind']}/{name_of(each)}")
    return found


async def configurations(site: Cluster) -> list[str]:
    found = [await site.admin.list(resource) for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)]
    return [name_of(each) for listing in found for each in listing.items]


def ran_as_a_hook(site: Cluster, template: Callable[..., Objects]) -> Path:
    """The kubeconfig of the account with which the chart asks before an uninstall."""
    (job,) = (each for each in template(hooks=True) if each["kind"] == "Job")
    account = spec_of(job)["template"]["spec"]["serviceAccountName"]
    return site.kubeconfig(f"system:serviceaccount:{names.NAMESPACE}:{account}")


def newer_chart(tmp_path: Path) -> Path:
    """A chart of the next version: another image, and a CRD that changed."""
    chart = tmp_path / "newer"
    shutil.copytree(CHART, chart)
    for file, old, new in (
        ("Chart.yaml", f"version: {VERSION}", "version: 9.9.9"),
        ("Chart.yaml", f"appVersion: {VERSION}", "appVersion: 9.9.9"),
        ("files/crds/fairlead.dev_queues.yaml", "\n    - fairlead\n", "\n    - newer\n"),
    ):
        text = (chart / file).read_text()
        assert old in text, file
        (chart / file).write_text(text.replace(old, new))
    return chart


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_helm_installs_upgrades_and_uninstalls(helm, template, tmp_path):
    async with bare(options(tmp_path)) as site:
        await site.apply([NAMESPACE])
        printed = await helm_does(helm, site, "install", "fairlead", str(CHART), "--values", str(VALUES))
        assert "kubectl get gangs -A" in printed
        await site.workloads.start()
        await registered(site)
        await train(site)
        claims = {name_of(claim): claim["status"] for claim in (await site.admin.list(raw(RESOURCE_CLAIMS))).items}
        assert len(claims) == 2

        # -- upgrade: programs are rolled while the gang runs on, and CRDs change with the chart
        chart = newer_chart(tmp_path)
        await helm_does(helm, site, "upgrade", "fairlead", str(chart), "--values", str(VALUES))
        queues = await site.admin.get(CRDS, "queues.fairlead.dev")
        assert queues["spec"]["names"]["categories"] == ["newer"]
        for resource in (DAEMON_SETS, DEPLOYMENTS):
            for each in (await site.admin.list(resource, names.NAMESPACE)).items:
                assert spec_of(each)["template"]["spec"]["containers"][0]["image"] == "fairlead:9.9.9"
                await site.workloads.replace(name_of(each))
        await registered(site)
        assert await _running(site, 2)
        after = {name_of(claim): claim["status"] for claim in (await site.admin.list(raw(RESOURCE_CLAIMS))).items}
        assert after == claims, "an upgrade touches no allocation"

        # -- uninstall: it stops while a device is held, and leaves nothing behind
        async with Client.connect(ran_as_a_hook(site, template)) as hook:
            with pytest.raises(NotReadError, match="you may not list resourceclaims"):
                await Preparation(hook, [names.DRIVER]).look()
            hooks = [e for e in template(hooks=True) if "helm.sh/hook" in (e["metadata"].get("annotations") or {})]
            await site.apply([each for each in hooks if each["kind"] != "Job"])
            held = await Preparation(hook, [names.DRIVER]).look()
        assert held.claims.keys() == {f"default/{name}" for name in claims}
        following = asyncio.create_task(controllers_follow_their_deployment(site))
        preparation = Preparation(site.admin, [names.DRIVER])
        await preparation.evict(30.0)
        await following
        held = await preparation.look()
        assert held.claims == {}
        assert len(held.gated) == 2, "the Job made its pods anew; they wait behind the gate"
        assert "wait behind fairlead.dev/admission" in said(held)[1]

        await helm_does(helm, site, "uninstall", "fairlead", "--no-hooks")
        await site.workloads.stop()
        assert {each.partition("/")[0] for each in await left(site)} == {"CustomResourceDefinition", "Namespace"}
        assert await site.admin.get(QUEUES, "everyone"), "queues outlive the programs"
        await until(lambda: _none(configurations(site)), what="the webhook configurations are gone")
        await until(lambda: _none(_slices(site)), what="kubelet has wiped the slices of a driver that went")
        await until(
            lambda: not any(list(node.leftovers()) for node in site.nodes.values()),
            what="nodes hold nothing: the last containers have ended their preStop hooks",
        )


async def _none(found: Awaitable[list[str]]) -> bool:
    return not await found


async def _slices(site: Cluster) -> list[str]:
    return [each.metadata.name for each in (await site.admin.list(RESOURCE_SLICES)).items]


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_the_webhook_serves_what_cert_manager_issued_and_asks_for_no_other_secret(tmp_path):
    """cert-manager itself is not here: its objects are left out, and its Secret is there already."""
    overlay = manifests.load(files.find("manifests/overlays/cert-manager"))
    ours = [each for each in overlay if not each["apiVersion"].startswith("cert-manager.io/")]
    assert {each["kind"] for each in overlay if each not in ours} == {"Issuer", "Certificate"}
    secret = issued()
    async with bare(options(tmp_path)) as site:
        await site.apply([*ours, secret])
        await site.workloads.start()
        found = await site.admin.get(VALIDATING_WEBHOOKS, "fairlead")
        bundle = base64.b64decode(found["webhooks"][0]["clientConfig"]["caBundle"]).decode()
        assert bundle == secret["stringData"]["ca.crt"]
        with pytest.raises(errors.Invalid, match="spec"):
            await site.admin.create(
                QUEUES, {**QUEUE, "spec": {"parent": "nobody", "flavors": [{"flavor": "none"}] * 2}}
            )
        kept = [name_of(each) for each in (await site.admin.list(SECRETS, names.NAMESPACE)).items]
        assert kept == ["fairlead-webhook-certificate"]


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_kubectl_applies_and_deletes_the_same_overlay(kubectl, tmp_path):
    async with bare(options(tmp_path)) as site:
        environment = {"HOME": str(tmp_path), "KUBECONFIG": str(site.kubeconfig()), "PATH": os.defpath}
        for verb, extra in (
            ("apply", ("--server-side",)),
            ("apply", ("--server-side",)),
            ("delete", ("--wait=false", "--ignore-not-found")),  # what went with its namespace is gone already
        ):
            command = (kubectl, verb, *extra, "-k", str(files.find(SIMULATED)))
            done = await asyncio.create_subprocess_exec(
                *command, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
            )
            out, _ = await done.communicate()
            assert done.returncode == 0, out.decode()
        await until(lambda: _gone(site), what="everything is gone")


async def _gone(site: Cluster) -> bool:
    try:
        return await left(site) == set()
    except LookupError:
        return True
