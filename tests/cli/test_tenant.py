"""`fairlead tenant`: what the flags mean, and what is created, changed and left alone on a cluster."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from typer.testing import Result

from fairlead.api import names
from fairlead.kube import resources
from fairlead.kube.client import Client
from fairlead.sandbox.cluster import Cluster, ClusterOptions
from fairlead.sandbox.install.apply import Applier
from tests.support.commands import invoke
from tests.support.kubernetes import of_this_run

Run = Callable[..., Awaitable[Result]]


def dry(*words: str) -> dict[tuple[str, str], dict[str, Any]]:
    """What it prints, by kind and name."""
    done = invoke(["tenant", "create", "--dry-run", *words])
    assert done.exit_code == 0, done.output
    return {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(done.stdout)}


def test_the_flags_describe_a_tenant():
    found = dry(
        "ml", "-n", "ml", "-n", "ml-dev", "--queue", "ml=ml", "--queue", "ml-dev=ml-dev", "--parent", "research",
        "--deserved", "ml/h100=8", "--limit", "ml/h100=16", "--deserved", "ml-dev/h100=0", "--gpus", "gpu.fairlead.dev=8",
        "--cpu", "64", "--egress", "10.0.0.0/8=443,8443", "--egress", "namespace:openshift-dns=5353/UDP",
        "--ingress", "namespace:gateway", "--admins", "group:ml-admins", "--members", "user:oidc:bob",
        "--pod-security", "baseline", "--priority-classes", "none", "--namespace-label", "team=ml",
    )  # fmt: skip
    assert found["Queue", "ml"]["spec"]["flavors"] == [{"flavor": "h100", "deserved": 8, "limit": 16}]
    assert found["Queue", "ml-dev"]["spec"]["parent"] == "research"
    labels = found["Namespace", "ml-dev"]["metadata"]["labels"]
    assert {
        names.QUEUE: "ml-dev",
        "team": "ml",
        "pod-security.kubernetes.io/enforce": "baseline",
    }.items() <= labels.items()
    hard = found["ResourceQuota", "fairlead-tenant"]["spec"]["hard"]
    assert hard == {"gpu.fairlead.dev.deviceclass.resource.k8s.io/devices": "8", "requests.cpu": "64"}
    egress = found["NetworkPolicy", "fairlead-tenant-egress"]["spec"]["egress"]
    assert [[port["port"] for port in rule["ports"]] for rule in egress] == [[443, 8443], [5353]]
    assert egress[1]["ports"][0]["protocol"] == "UDP"
    (subject,) = found["RoleBinding", "fairlead-tenant-member"]["subjects"]
    assert (subject["kind"], subject["name"]) == ("User", "oidc:bob")
    assert ("PriorityClass", "fairlead-low") not in found


def test_a_name_is_enough_and_json_is_one_list():
    assert {"Namespace", "Queue", "NetworkPolicy"} < {kind for kind, _ in dry("ml")}
    done = invoke(["tenant", "create", "ml", "--dry-run", "-o", "json"])
    listed = json.loads(done.stdout)
    assert (listed["kind"], len(listed["items"])) == ("List", len(dry("ml")))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ml", "--gpus", "gpu.fairlead.dev"], "Invalid value for --gpus: 'gpu.fairlead.dev' is not KEY=VALUE"),
        (["ml", "--gpus", "a=1", "--gpus", "a=2"], "--gpus: 'a' is given twice, '1' and '2': keep one"),
        (["ml", "--gpus", "a=few"], "a=few: 'few' is no number of devices"),
        (["ml", "--deserved", "h100=x"], "--queue: queues[0].flavors[0].deserved: 'x' is no quantity"),
        (["ml", "--deserved", "other/h100=8"], "'other' is none of the queues (ml): name one"),
        (["ml", "--queue", "a=x", "--queue", "b=y", "--limit", "h100=8"], "there are 2 queues: write QUEUE/h100=8"),
        (["ml", "--egress", "10.0.0.0/8=https"], "'https' are no ports: write 10.0.0.0/8=443"),
        (["ml", "--egress", "storage"], "--egress: network.egress[0].cidr: 'storage' is no CIDR"),
        (["ml", "--admins", "bob"], "--admins: admins[0]: 'bob' is no subject: write user:NAME"),
        (["ml", "-n", "kube-system"], "--namespace: namespaces[0]: 'kube-system' belongs to the cluster"),
        (["ml", "--existing-queue", "--parent", "research"], "Queue ml is not created here"),
        ([], "NAME: name: is required"),
        (["-f", "FILE", "--cpu", "4"], "describes the tenant, and flags do (quota): use one of the two"),
        (["vision", "-f", "FILE"], "describes 'ml', not 'vision': give one name"),
    ],
)
def test_a_wrong_flag_is_named_with_its_value_and_the_next_step(words, said, tmp_path):
    file = tmp_path / "ml.yaml"
    file.write_text("name: ml\n")
    done = invoke(["tenant", "create", "--dry-run", *(str(file) if word == "FILE" else word for word in words)])
    assert done.exit_code == 2
    text = " ".join(done.output.replace("│", " ").split())
    assert said in text
    assert done.stdout == "" or "kind:" not in done.stdout


def test_a_wrong_file_is_named(tmp_path):
    file = tmp_path / "ml.yaml"
    for text, said in (
        ("[1]", "is no description"),
        ("name: ml\nquta: {}", "quta: unknown field; did you mean quota?"),
    ):
        file.write_text(text)
        done = invoke(["tenant", "create", "-f", str(file), "--dry-run"])
        assert done.exit_code == 2
        assert said in " ".join(done.output.replace("│", " ").split())


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cluster(tmp_path_factory):
    options = ClusterOptions(workdir=tmp_path_factory.mktemp("c"), nodes=(), run_programs=False, release=of_this_run())
    async with Cluster(options) as made:
        yield made


def runner(cluster: Cluster, kubeconfig: Path | None = None) -> Run:
    config = ["--kubeconfig", str(kubeconfig or cluster.kubeconfig())]

    async def run(command: str, *words: str) -> Result:
        return await asyncio.to_thread(lambda: invoke(["tenant", command, *words, *config]))

    return run


async def namespaced(client: Client, resource: Any, namespace: str) -> list[str]:
    return sorted(each["metadata"]["name"] for each in (await client.list(resources.raw(resource), namespace)).items)


on_a_cluster = pytest.mark.asyncio(loop_scope="module")


@on_a_cluster
async def test_a_tenant_is_created_changed_and_left_as_it_is(cluster):
    run, client = runner(cluster), cluster.admin
    words = ("ml", "--gpus", "gpu.fairlead.dev=8", "--cpu", "64", "--admins", "group:ml-admins")
    first = await run("create", *words)
    assert first.exit_code == 0, first.output
    assert "Namespace ml: created" in first.stdout
    assert "ClusterRole fairlead-tenant-admin: unchanged" in first.stdout, "they come with Fairlead"
    assert await namespaced(client, resources.RESOURCE_QUOTAS, "ml") == ["fairlead-tenant", "fairlead-tenant-critical"]
    again = await run("create", *words)
    assert again.exit_code == 0
    assert {line.rpartition(": ")[2] for line in again.stdout.splitlines()} == {"unchanged"}
    more = await run("create", "ml", "--gpus", "gpu.fairlead.dev=16", *words[3:], "-o", "json")
    changed = [each for each in json.loads(more.stdout) if each["outcome"] != "unchanged"]
    assert changed == [{"kind": "ResourceQuota", "namespace": "ml", "name": "fairlead-tenant", "outcome": "changed"}]
    quota = await client.get(resources.RESOURCE_QUOTAS, "fairlead-tenant", "ml")
    assert quota["spec"]["hard"]["gpu.fairlead.dev.deviceclass.resource.k8s.io/devices"] == "16"


@on_a_cluster
async def test_what_is_anothers_is_refused_before_anything_is_written(cluster):
    run, client = runner(cluster), cluster.admin
    assert (await run("create", "red")).exit_code == 0
    await client.create(resources.NAMESPACES, {"metadata": {"name": "legacy"}})
    for words, said in (
        (["blue", "-n", "blue", "-n", "red"], "Namespace red: belongs to tenant red (label fairlead.dev/tenant)"),
        (["blue", "--queue", "red"], "Queue red: belongs to tenant red"),
        (["blue", "-n", "legacy"], "Namespace legacy: exists and is no tenant's; choose another name, or take it over"),
        (["blue", "--existing-queue", "--queue", "none"], "Queue none: does not exist; create it"),
    ):
        done = await run("create", *words)
        assert done.exit_code == 1
        assert said in done.output
        assert "nothing was written" in done.output
    assert not [each for each in (await client.list(resources.NAMESPACES)).items if each.metadata.name == "blue"]
    taken = await run("create", "blue", "-n", "legacy", "--adopt")
    assert "Namespace legacy: changed" in taken.stdout
    legacy = await client.get(resources.NAMESPACES, "legacy")
    assert legacy.metadata.labels[names.TENANT] == "blue"


@on_a_cluster
async def test_an_existing_queue_must_select_the_namespaces(cluster):
    run = runner(cluster)
    queue = {"apiVersion": names.API_VERSION, "kind": "Queue", "metadata": {"name": "research"}}
    await cluster.apply([{**queue, "spec": {"namespaceSelector": {"matchLabels": {"team": "research"}}}}])
    words = ("green", "--queue", "research", "--existing-queue")
    refused = await run("create", *words)
    assert refused.exit_code == 1
    assert "its namespaceSelector (team=research) does not select namespace green; add the labels" in refused.output
    done = await run("create", *words, "--namespace-label", "team=research")
    assert done.exit_code == 0, done.output
    assert "Queue research" not in done.stdout


@on_a_cluster
async def test_a_field_that_another_wrote_is_not_taken_without_saying_so(cluster):
    run = runner(cluster)
    assert (await run("create", "amber", "--gpus", "gpu.fairlead.dev=8")).exit_code == 0
    hard = {"gpu.fairlead.dev.deviceclass.resource.k8s.io/devices": "4"}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "fairlead-tenant", "namespace": "amber"}}
    await Applier(cluster.admin).apply([{**quota, "spec": {"hard": hard}}])  # by force, as another manager
    refused = await run("create", "amber", "--gpus", "gpu.fairlead.dev=8")
    assert refused.exit_code == 1
    assert "ResourceQuota amber/fairlead-tenant: not applied" in refused.output
    assert "with --adopt the values of this command count" in refused.output
    assert "Namespace amber: unchanged" in refused.stdout
    taken = await run("create", "amber", "--gpus", "gpu.fairlead.dev=8", "--adopt")
    assert "ResourceQuota amber/fairlead-tenant: changed" in taken.stdout


@on_a_cluster
async def test_what_the_cluster_lacks_is_noted(cluster):
    words = (
        "--deserved",
        "h1000=8",
        "--parent",
        "nowhere",
        "--gpus",
        "gpu.fairlead.dev=8",
        "--gpus",
        "gpu.example.com=8",
    )
    done = await runner(cluster)("create", "pink", *words)
    assert done.exit_code == 0
    assert done.stderr.splitlines() == [
        "note: Flavor h1000 does not exist; until it does its quota counts nothing",
        "note: DeviceClass gpu.example.com does not exist; until it does its quota bounds nothing",
        "note: Queue nowhere does not exist; until it does the tenant's queue is a root",
    ]


@on_a_cluster
async def test_a_user_without_rights_is_told_which(cluster):
    run = runner(cluster, cluster.kubeconfig("somebody"))
    done = await run("create", "grey")
    assert done.exit_code == 1
    assert "Traceback" not in done.output
    assert 'cannot get resource "namespaces"' in done.output


@on_a_cluster
async def test_tenants_are_listed_and_shown_with_how_to_remove_them(cluster):
    run = runner(cluster)
    await run("create", "teal", "--gpus", "gpu.fairlead.dev=8")
    rows = json.loads((await run("list", "-o", "json")).stdout)
    (teal,) = [each for each in rows if each["tenant"] == "teal"]
    assert (teal["namespace"], teal["queue"], teal["podSecurity"]) == ("teal", "teal", "restricted")
    assert "teal" in (await run("list")).stdout
    shown = (await run("show", "teal")).stdout
    assert "Namespace teal\n" in shown
    assert "kubectl delete queues,namespaces -l fairlead.dev/tenant=teal" in shown
    listed = json.loads((await run("show", "teal", "-o", "json")).stdout)
    assert {each["metadata"]["labels"][names.TENANT] for each in listed["items"]} == {"teal"}
    missing = await run("show", "tael")
    assert (missing.exit_code, "did you mean teal" in missing.output) == (1, True)
