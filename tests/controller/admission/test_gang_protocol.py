"""The gang protocol from gate to release, on the sandbox. Not here: crashes (test_kill) and faults (test_faults)."""

import asyncio

import pytest

from fairlead.api import legacy, names
from fairlead.controller import reconcile
from fairlead.controller.gangs.claims.claims import names_used
from fairlead.kube import core, resources
from fairlead.kube.client import Patch
from fairlead.kube.informer import Change
from tests.controller.conftest import NAMESPACE, Bench

BOTH = pytest.mark.parametrize("named", [False, True], ids=["generated", "named"])
"""Both ways of making claims keep the same protocol."""


@pytest.fixture
def named() -> bool:
    return True


@pytest.mark.core
@BOTH
async def test_a_single_pod_gets_its_device_and_runs(bench: Bench):
    await bench.template("one")
    async with bench.controller():
        await bench.pod("solo", template="one")
        await bench.until(lambda: bench.running(["solo"]), "the pod runs")
        (claim,) = bench.allocated()
        pod = bench.get("solo")
        assert pod is not None
        assert [reference.uid for reference in claim.status.reserved_for] == [pod.metadata.uid]
        assert claim.status.allocation is not None
        assert claim.status.allocation.allocation_timestamp is not None
        assert names.CLAIM_FINALIZER in claim.metadata.finalizers
        assert names_used(pod) == {"gpu": claim.metadata.name}
        assert len(bench.claims.all()) == 1
        if bench.named:
            assert bench.gangs.all() == []  # its pod shows all that there is to know
            return
        await bench.until(lambda: bench.status("solo").get("phase") == "Running", "its status is Running")
        assert bench.status("solo")["nodes"] == [pod.spec.node_name]


@pytest.mark.core
@BOTH
async def test_a_gang_of_eight_never_starts_with_seven(bench: Bench):
    await bench.template("two", 2)
    async with bench.controller():
        pods = await bench.gang("train", 8, template="two", members=7)
        said = "7 of 8 members exist; 1 member is still to be created"
        await bench.until(lambda: bench.status("train").get("message") == said, "the gang gathers")
        assert bench.gated(pods)
        assert bench.allocated() == []
        await bench.pod("train-7", template="two", gang="train", size=8)
        pods.append("train-7")
        await bench.until(lambda: bench.running(pods), "all eight run")
        assert bench.watchdog.held == 16
        await bench.until(lambda: bench.status("train").get("phase") == "Running", "its status is Running")


@BOTH
async def test_of_two_gangs_for_the_same_devices_one_runs_whole_and_the_other_waits_whole_with_its_reason(bench: Bench):
    await bench.template("one")
    async with bench.controller():
        red, blue = await asyncio.gather(bench.gang("red", 12, template="one"), bench.gang("blue", 12, template="one"))
        await bench.until(lambda: bench.running(red) or bench.running(blue), "one gang runs")
        running, waiting, name = (red, blue, "blue") if bench.running(red) else (blue, red, "red")
        assert bench.gated(waiting)
        assert len(bench.allocated()) == 12
        await bench.until(
            lambda: bench.status(name).get("phase") == "Waiting" and bench.status(name)["reason"] != "Queued",
            "the other has status Waiting, with its reason",
        )
        status = bench.status(name)
        assert status["reason"] == "DevicesInUse", status
        assert "12" in status["message"]
        await bench.event(name, "DevicesInUse")
        await bench.delete(running)
        await bench.until(lambda: bench.running(waiting), "the other runs when the first has ended")
        await bench.delete(waiting)
        await bench.until(lambda: bench.watchdog.held == 0, "everything is given back", 40)


async def test_members_that_disagree_on_the_size_are_not_admitted_and_the_status_names_both_sizes(bench: Bench):
    await bench.template("one")
    async with bench.controller():
        await bench.pod("a", template="one", gang="odd", size=2)
        await bench.pod("b", template="one", gang="odd", size=3)
        await bench.pod("c", template="one", gang="odd", size=3)
        await bench.until(lambda: bench.status("odd").get("reason") == "InvalidRequest", "the gang is refused")
        assert "disagree on the gang-size: a says 2, b says 3" in bench.status("odd")["message"]
        assert bench.gated(["a", "b", "c"])
        await bench.delete(["a"])
        await bench.until(lambda: bench.status("odd").get("reason") == "Gathering", "the rest agree")


@pytest.mark.parametrize("named", [False])
async def test_a_missing_template_is_named_and_a_legacy_one_is_made(bench: Bench):
    async with bench.controller():
        await bench.pod("lost", template="nowhere")
        await bench.until(lambda: "nowhere" in bench.status("lost").get("message", ""), "the template is missed")
        name = legacy.template_name(names.LEGACY_GPU, 2)
        await bench.pod("old", template=name)
        await bench.until(lambda: bench.running(["old"]), "the legacy request runs")
        assert bench.watchdog.held == 2
        made = await bench.client.get(resources.raw(resources.RESOURCE_CLAIM_TEMPLATES), name, NAMESPACE)
        assert made["spec"]["spec"]["devices"]["requests"][0]["exactly"]["count"] == 2
        await bench.template("nowhere")
        await bench.until(lambda: bench.running(["lost"]), "the template has come")


@pytest.mark.core
async def test_a_named_claim_is_shared_by_the_pods_that_use_it(bench: Bench):
    await bench.claim("shared", 4)
    async with bench.controller():
        pods = [f"user-{number}" for number in range(3)]
        for name in pods:
            await bench.pod(name, claim="shared", gang="users", size=3)
        await bench.until(lambda: bench.running(pods), "all three run")
        (claim,) = bench.allocated()
        assert {reference.name for reference in claim.status.reserved_for} == set(pods)
        assert len({pod.spec.node_name for name in pods if (pod := bench.get(name))}) == 1
        await bench.pod("late", claim="shared")
        await bench.until(lambda: bench.running(["late"]), "a fourth user joins")
        await bench.delete([*pods, "late"])
        await bench.until(lambda: bench.watchdog.held == 0, "the claim is given back")
        await bench.until(lambda: bench.claims.all()[0].metadata.finalizers == (), "its finalizer is gone too")


@pytest.mark.parametrize("named", [False])
async def test_a_claim_deleted_while_it_waits_is_recreated(bench: Bench):
    await bench.template("eight", 8)
    async with bench.controller():
        running = await bench.gang("first", 2, template="eight")
        await bench.until(lambda: bench.running(running), "the first gang runs")
        await bench.pod("second", template="eight")
        await bench.until(lambda: len(bench.claims.all()) == 3, "the claim controller made its claim")
        await bench.until(lambda: bench.status("second").get("phase") == "Waiting", "it waits")
        (claim,) = [claim for claim in bench.claims.all() if claim.status.allocation is None]
        await bench.client.delete(resources.RESOURCE_CLAIMS, claim.metadata.name, NAMESPACE)
        await bench.delete(running[:1])
        await bench.until(lambda: bench.running(["second"]), "the second gang runs")
        pod = bench.get("second")
        assert pod is not None
        name = pod.status.resource_claim_statuses[0].resource_claim_name
        assert name != claim.metadata.name
        await bench.until(lambda: len(bench.claims.all()) == 2, "no duplicate claim is left")


async def test_other_gates_are_waited_for_and_never_touched(bench: Bench):
    await bench.template("one")
    async with bench.controller():
        await bench.pod("shy", template="one", gates=(names.ADMISSION_GATE, "example.com/other"))
        await bench.until(lambda: "example.com/other" in bench.status("shy").get("message", ""), "the gate is named")
        assert bench.allocated() == []
        patch = [{"op": "remove", "path": "/spec/schedulingGates/1"}]
        await bench.client.patch(resources.PODS, "shy", patch, namespace=NAMESPACE, kind=Patch.JSON)
        await bench.until(lambda: bench.running(["shy"]), "the pod runs")


async def test_a_gated_pod_without_a_managed_claim_is_ungated_and_not_pinned(bench: Bench):
    async with bench.controller():
        await bench.pod("plain")
        await bench.until(lambda: bench.running(["plain"]), "the pod runs")
        pod = bench.get("plain")
        assert pod is not None
        assert pod.spec.affinity is None


@pytest.mark.parametrize("named", [False])
async def test_a_gang_object_lives_as_long_as_its_pods(bench: Bench):
    await bench.template("one")
    async with bench.controller():
        pods = await bench.gang("short", 2, template="one", sleep=0.2)
        await bench.until(lambda: bench.status("short").get("phase") == "Finished", "the gang has finished")
        status = bench.status("short")
        assert (status["members"], status["ready"]) == (2, 2)
        assert status["waitSeconds"] < 30
        await bench.until(lambda: bench.watchdog.held == 0, "its devices are given back")
        await bench.pod("solo", template="one", sleep=3)
        await bench.until(lambda: bench.status("solo").get("phase") == "Finished", "a gang of one finishes too")
        await bench.delete([*pods, "solo"])
        await bench.until(lambda: bench.gangs.all() == [], "the Gang objects are gone")


@pytest.mark.core
async def test_members_above_the_size_join_one_by_one_and_a_lost_member_is_replaced(bench: Bench):
    await bench.template("two", 2)
    async with bench.controller():
        pods = await bench.gang("elastic", 4, template="two", members=6)
        await bench.until(lambda: bench.running(pods), "all six run")
        await bench.delete(pods[:1])
        await bench.until(lambda: bench.get("elastic-0") is None, "one is gone")
        await bench.pod("elastic-0b", template="two", gang="elastic", size=4)
        await bench.until(lambda: bench.running(["elastic-0b"]), "its replacement runs")


@BOTH
async def test_a_gang_whose_member_does_not_bind_is_rolled_back_whole(bench: Bench):
    await bench.template("two", 2)
    stuck = bench.cluster.server.faults.fail(
        500, verb="create", resource="pods", subresource="binding", name="torn-3", count=None
    )
    async with bench.controller(gang_timeout_s=3.0):
        excused: list[str] = []

        def note(change: Change[core.Pod]) -> None:
            condition = change.object.condition("DisruptionTarget")
            if condition is not None and condition.reason == "RolledBack":
                excused.append(change.object.metadata.name)

        bench.pods.subscribe(note)
        pods = await bench.gang("torn", 4, template="two")
        await bench.until(lambda: bench.running(pods[:3]), "three run, one cannot bind")
        await bench.until(lambda: all(bench.get(name) is None for name in pods), "the gang is rolled back")
        await bench.until(lambda: bench.watchdog.held == 0, "its devices are given back")
        await bench.event("torn", "RolledBack: 1 of its pods (torn-3) did not bind")
        await bench.event("torn-3", "RolledBack: 1 of its pods (torn-3) did not bind")
        said = [each for each in (await bench.client.list(resources.EVENTS, NAMESPACE)).items if "torn-3" in str(each)]
        assert any("has no controller that makes another: apply it again" in each["message"] for each in said)
        assert "torn-3" in excused  # a Job may tell it from a failure
        bench.cluster.server.faults.remove(stuck)
        again = await bench.gang("torn", 4, template="two")
        await bench.until(lambda: bench.running(again), "made again, it runs")


@pytest.mark.core
async def test_an_orphaned_allocation_is_cleared(bench: Bench, monkeypatch):
    monkeypatch.setattr(reconcile, "SWEEP_S", 0.3)
    await bench.claim("leak")
    (slice_,) = [s for s in (await bench.client.list(resources.RESOURCE_SLICES)).items if s.spec.node_name == "h1"]
    result = {
        "request": "gpu",
        "driver": names.DRIVER,
        "pool": slice_.spec.pool.name,
        "device": slice_.spec.devices[0].name,
    }
    body = {"status": {"allocation": {"devices": {"results": [result]}}}}
    async with bench.cluster.client(names.CONTROLLER_USER) as former:  # only a controller can have allocated it
        await former.patch(
            resources.RESOURCE_CLAIMS, "leak", body, namespace=NAMESPACE, subresource="status", kind=Patch.MERGE
        )
    await bench.until(lambda: bench.watchdog.held == 1, "an orphaned allocation exists")
    async with bench.controller():
        await bench.until(lambda: bench.watchdog.held == 0, "it is cleared")


@pytest.mark.parametrize("named", [False])
async def test_a_pod_made_to_name_another_claim_after_it_was_bound_names_the_allocated_one_again(bench: Bench):
    """The claim controller works from a cache, and may name its own claim late."""
    await bench.template("one")
    async with bench.controller():
        await bench.pod("solo", template="one")
        await bench.until(lambda: bench.running(["solo"]), "the pod runs")
        pod = bench.get("solo")
        assert pod is not None
        right = pod.status.resource_claim_statuses[0].resource_claim_name
        assert right is not None
        used = await bench.client.get(resources.raw(resources.RESOURCE_CLAIMS), right, NAMESPACE)
        late = {
            "metadata": {key: used["metadata"][key] for key in ("namespace", "annotations", "ownerReferences")}
            | {"name": "late"},
            "spec": used["spec"],
        }
        await bench.client.create(resources.RESOURCE_CLAIMS, late)
        wrong = {"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "late"}]}}
        patched = await bench.client.patch(resources.PODS, "solo", wrong, namespace=NAMESPACE, subresource="status")
        assert patched.status.resource_claim_statuses[0].resource_claim_name == "late"

        def named() -> str | None:
            now = bench.get("solo")
            assert now is not None
            return now.status.resource_claim_statuses[0].resource_claim_name

        await bench.until(lambda: named() == "late", "the wrong name is seen")
        await bench.until(lambda: named() == right, "the right one is named again")


async def test_gangs_that_share_a_claim_get_it_one_after_the_other(bench: Bench):
    await bench.claim("common", 2)
    async with bench.controller():
        pods = [f"p{number}" for number in range(5)]
        await asyncio.gather(*(bench.pod(name, claim="common") for name in pods))
        await bench.until(lambda: bench.running(pods), "all run")
        (claim,) = bench.allocated()
        assert {reference.name for reference in claim.status.reserved_for} == set(pods)
        assert bench.watchdog.held == 2
