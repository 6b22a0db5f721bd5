"""`fairlead hold | resume` on a cluster without programs: what is written, by which users, and what is said of bad names."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio
from typer.testing import Result

from fairlead.api import names
from fairlead.cli.operate.hold import Operation
from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.resources import CLUSTER_ROLES, GANGS, NAMESPACES, QUEUES, ROLE_BINDINGS, Raw, raw
from fairlead.sandbox.cluster import Cluster, ClusterOptions
from fairlead.ui.reading.cluster import Cluster as Connection
from tests.support.commands import invoke
from tests.support.kubernetes import of_this_run

pytestmark = pytest.mark.asyncio(loop_scope="module")
TENANT, MATE, OPERATOR, READER = "dora", "tom", "olga", "rita"


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    options = ClusterOptions(workdir=tmp_path_factory.mktemp("c"), nodes=(), run_programs=False, release=of_this_run())
    async with Cluster(options) as made, made.client() as client:
        await client.create(raw(NAMESPACES), {"metadata": {"name": "ml"}})
        for user, role in ((TENANT, "edit"), (MATE, "edit"), (OPERATOR, "fairlead-operator"), (READER, "view")):
            await bind(client, user, role)
        yield made


async def bind(client: Client, user: str, role: str) -> None:
    rbac = "rbac.authorization.k8s.io"
    body = {
        "metadata": {"name": user},
        "roleRef": {"kind": "ClusterRole", "name": role, "apiGroup": rbac},
        "subjects": [{"kind": "User", "name": user, "apiGroup": rbac}],
    }
    if role == "fairlead-operator":
        await client.create(replace(raw(CLUSTER_ROLES), plural="clusterrolebindings", kind="ClusterRoleBinding"), body)
    else:
        await client.create(raw(ROLE_BINDINGS), body, "ml")


async def call(cluster: Cluster, *words: str, user: str = "admin") -> Result:
    config = ["--kubeconfig", str(cluster.kubeconfig(user))]
    return await asyncio.to_thread(lambda: invoke([*words, *config], env={"COLUMNS": "200"}))


async def made_gang(cluster: Cluster, name: str) -> None:
    async with cluster.client(names.CONTROLLER_USER) as client:
        await client.create(raw(GANGS), {"metadata": {"name": name, "namespace": "ml"}, "spec": {"size": 2}})


async def hold_of(cluster: Cluster, name: str, resource: Any = GANGS) -> Raw | None:
    async with cluster.client() as client:
        found = await client.get(raw(resource), name, "ml" if resource is GANGS else None)
    hold: Raw | None = found["spec"].get("hold")
    return hold


async def test_a_hold_names_its_writer_and_a_second_one_changes_nothing(cluster: Cluster) -> None:
    await made_gang(cluster, "a")
    done = await call(cluster, "hold", "gang", "a", "-n", "ml", "--reason", "data is wrong", user=TENANT)
    assert done.exit_code == 0, done.output
    assert "gang ml/a is on hold by dora since 20" in done.stdout
    assert "`fairlead resume gang a -n ml` ends it" in done.stdout
    first = await hold_of(cluster, "a")
    assert first is not None
    assert (first["by"], first["reason"], first["protected"]) == (TENANT, "data is wrong", False)

    again = await call(cluster, "hold", "gang", "a", "-n", "ml", "--reason", "mine", user=MATE)
    assert (again.exit_code, "on hold by dora" in again.stdout, "its reason stays" in again.stdout) == (0, True, True)
    assert await hold_of(cluster, "a") == first
    evicting = await call(cluster, "hold", "gang", "a", "-n", "ml", "--evict", user=MATE)
    assert evicting.exit_code == 0, evicting.output
    assert await hold_of(cluster, "a") == {**first, "evict": True}

    resumed = await call(cluster, "resume", "gang", "a", "-n", "ml", user=MATE)
    assert resumed.exit_code == 0, resumed.output
    assert "is resumed; it was on hold by dora" in resumed.stdout
    assert await hold_of(cluster, "a") is None
    twice = await call(cluster, "resume", "gang", "a", "-n", "ml", user=MATE)
    assert (twice.exit_code, "is not on hold" in twice.stdout) == (0, True)


async def test_what_an_operator_holds_no_tenant_resumes_changes_or_deletes(cluster: Cluster) -> None:
    await made_gang(cluster, "b")
    assert (await call(cluster, "hold", "gang", "b", "-n", "ml", user=OPERATOR)).exit_code == 0
    held = await hold_of(cluster, "b")
    assert held is not None
    assert (held["by"], held["protected"]) == (OPERATOR, True)
    for words in (("resume", "gang", "b"), ("hold", "gang", "b", "--evict")):
        refused = await call(cluster, *words, "-n", "ml", user=TENANT)
        assert refused.exit_code == 1
        assert "spec.hold: is protected, written by olga" in refused.stderr
        assert "the verb hold on gangs.fairlead.dev in all namespaces" in refused.stderr
    async with Client.connect(cluster.kubeconfig(TENANT)) as client:
        for body in ({"spec": {"hold": None}}, {"spec": {"hold": {"protected": False}}}):
            with pytest.raises(errors.Forbidden):
                await client.patch(raw(GANGS), "b", body, namespace="ml")
        await client.patch(raw(GANGS), "b", {"metadata": {"labels": {"mine": "yes"}}}, namespace="ml")
    assert await hold_of(cluster, "b") == held
    assert (await call(cluster, "resume", "gang", "b", "-n", "ml", user=OPERATOR)).exit_code == 0


async def test_no_user_writes_a_protected_hold_without_the_right_or_another_users_name(cluster: Cluster) -> None:
    await made_gang(cluster, "c")
    async with Client.connect(cluster.kubeconfig(TENANT)) as client:
        for hold, said in (
            ({"protected": True}, "may not be written by you"),
            ({"by": OPERATOR}, "says olga, and you are dora"),
        ):
            with pytest.raises(errors.Forbidden, match=said):
                await client.patch(raw(GANGS), "c", {"spec": {"hold": hold}}, namespace="ml")
            body = {"metadata": {"name": "new", "namespace": "ml"}, "spec": {"size": 1, "hold": hold}}
            with pytest.raises(errors.Forbidden, match=said):
                await client.create(raw(GANGS), body)
    assert await hold_of(cluster, "c") is None


async def test_missing_rights_are_named(cluster: Cluster) -> None:
    await made_gang(cluster, "d")
    async with cluster.client() as client:
        await client.create(raw(QUEUES), {"metadata": {"name": "red"}, "spec": {}})
    for words, user, said in (
        (("hold", "gang", "d", "-n", "ml"), READER, "you may not patch gangs.fairlead.dev in namespace ml"),
        (("hold", "gang", "d", "-n", "ml"), "nobody", "you may not get gangs.fairlead.dev in namespace ml"),
        (("hold", "queue", "red"), TENANT, "you may not patch queues.fairlead.dev"),
        (("resume", "queue", "red"), TENANT, "queue red is not on hold"),
    ):
        done = await call(cluster, *words, user=user)
        assert said in done.output
    assert await hold_of(cluster, "d") is None


async def test_bad_names_are_answered_with_the_next_step(cluster: Cluster) -> None:
    await made_gang(cluster, "pretrain")
    async with cluster.client() as client:
        await client.create(raw(QUEUES), {"metadata": {"name": "vision"}, "spec": {}})
    for words, said in (
        (("hold", "gang", "pretrian", "-n", "ml"), "there is no gang ml/pretrian; did you mean pretrain?"),
        (("resume", "gang", "zzz", "-n", "ml"), "`fairlead gangs -n ml` lists those"),
        (("hold", "gang", "x", "-n", "mll"), "no namespace is called mll; did you mean ml?"),
        (("hold", "queue", "visoin"), "there is no queue visoin; did you mean vision?"),
    ):
        done = await call(cluster, *words)
        assert (done.exit_code, said in done.stderr) == (1, True), done.output
    for reason, said in (("two\nlines", "one line of plain text"), ("x" * 600, "has 600 characters")):
        wrong = await call(cluster, "hold", "gang", "pretrain", "-n", "ml", "--reason", reason)
        assert (wrong.exit_code, said in wrong.output) == (2, True)
    assert await hold_of(cluster, "pretrain") is None


async def test_of_two_at_once_one_writes_and_the_other_says_so(cluster: Cluster) -> None:
    said: list[str] = []
    async with cluster.client() as client, Client.connect(cluster.kubeconfig(OPERATOR)) as second:
        await client.create(raw(QUEUES), {"metadata": {"name": "both"}, "spec": {}})
        both = [Operation(Connection(each), "queue", "both", None, said.append) for each in (client, second)]
        await asyncio.gather(*(each.hold(reason=f"{number}", evict=False, now=0.0) for number, each in enumerate(both)))
        held = await hold_of(cluster, "both", QUEUES)
        assert held is not None
        assert all(f"on hold by {held['by']} since" in each for each in said)
        assert sum("already" in each for each in said) == 1
        said.clear()
        await asyncio.gather(*(each.resume() for each in both))
        assert sorted("is resumed" in each for each in said) == [False, True]
        assert await hold_of(cluster, "both", QUEUES) is None


async def test_queues_and_gangs_show_holds_as_the_controller_says_them(cluster: Cluster) -> None:
    said = "queue held is on hold by olga since 2026-11-24T08:00:00Z: fans"
    now = "2026-11-24T08:00:00Z"
    condition = {"type": "OnHold", "status": "True", "reason": "Held", "message": said, "lastTransitionTime": now}
    async with cluster.client() as client:
        for name, spec in (("held", {}), ("below", {"parent": "held"})):
            await client.create(raw(QUEUES), {"metadata": {"name": name}, "spec": spec})
            await client.patch(raw(QUEUES), name, {"status": {"conditions": [condition]}}, subresource="status")
    async with cluster.client(names.CONTROLLER_USER) as client:
        await client.create(raw(GANGS), {"metadata": {"name": "runs", "namespace": "ml"}, "spec": {"size": 1}})
        status = {
            "phase": "Running",
            "reason": "MembersRun",
            "message": "1 of 1 members run",
            "conditions": [condition],
        }
        await client.patch(raw(GANGS), "runs", {"status": status}, namespace="ml", subresource="status")
    listed = await call(cluster, "queues")
    assert listed.stdout.count(said) == 1, listed.output
    [line] = [
        line for line in (await call(cluster, "gangs", "-n", "ml")).stdout.splitlines() if line.startswith("runs")
    ]
    assert said in line
    assert said in (await call(cluster, "explain", "queue/below")).stdout
    assert said[1:] in (await call(cluster, "explain", "gang/runs", "-n", "ml")).stdout
    resumed = await call(cluster, "resume", "queue", "below")
    assert f"queue below is not on hold; but {said}" in resumed.stdout
