"""Manifests of other systems on the sandbox: they run unchanged, as gangs and in the queue that they name."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairlead.api import names
from fairlead.controller.gangs.membership.members import GroupClaim, GroupTerms
from fairlead.controller.watch import optional, other_systems
from fairlead.controller.watch.other_systems import terms
from fairlead.kube import resources
from fairlead.kube.resources import CRDS, GANGS, QUEUES, Raw, Resource
from fairlead.sandbox.release import NEWEST, Release
from tests.controller.conftest import NAMESPACE, Bench, benches

GROUPS: Resource[Raw] = Resource(
    group="scheduling.x-k8s.io", version="v1alpha1", plural="podgroups", kind="PodGroup", namespaced=True, type=dict
)


NATIVE: Resource[Raw] = dataclasses.replace(GROUPS, group="scheduling.k8s.io", version="v1beta1")
PRIORITIES: Resource[Raw] = other_systems.PRIORITIES


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    """With the gates on that keep `schedulingGroup` in pods; the objects themselves are served as custom resources."""
    gates = {"GenericWorkload": True, "DRAWorkloadResourceClaims": True}
    async with benches(tmp_path, release=Release.of(NEWEST.minor, gates)) as made:
        yield made


async def serve(bench: Bench, kind: Resource[Raw]) -> None:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": kind.version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    singular = kind.kind.lower()
    approved = {"api-approved.kubernetes.io": "unapproved, a stand-in for what Kubernetes 1.37 serves by itself"}
    body = {
        "metadata": {"name": f"{kind.plural}.{kind.group}", "annotations": approved},
        "spec": {
            "group": kind.group,
            "names": {"plural": kind.plural, "singular": singular, "kind": kind.kind, "listKind": f"{kind.kind}List"},
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [version],
        },
    }
    await bench.client.create(resources.raw(CRDS), body)


async def test_an_api_that_comes_and_goes_while_we_lead_is_noticed(bench: Bench, monkeypatch, caplog):
    """Long before the next regular look it is not: the watch's first failure asks again."""
    monkeypatch.setattr(optional, "DISCOVERY_S", 0.2)
    caplog.set_level("INFO", "fairlead")
    await bench.template("one")
    label = {names.COSCHEDULING_GROUP_LABEL: "train"}
    missed = f"PodGroup {NAMESPACE}/train of scheduling.x-k8s.io does not exist"
    group = {"metadata": {"name": "train", "namespace": NAMESPACE}, "spec": {"minMember": 2}}
    async with bench.controller():
        await bench.pod("w-0", template="one", labels=label)
        await bench.until(lambda: bench.status("train").get("message", "").startswith(missed), "the group is missed")
        await serve(bench, GROUPS)
        await bench.client.create(GROUPS, group)
        await bench.until(lambda: "1 of 2 members" in bench.status("train").get("message", ""), "its size is read")
        await bench.pod("w-1", template="one", labels=label)
        await bench.until(lambda: bench.running(["w-0", "w-1"]), "both run")
        monkeypatch.setattr(optional, "DISCOVERY_S", 60.0)
        await asyncio.sleep(0.3)
        await bench.client.delete(resources.raw(CRDS), "podgroups.scheduling.x-k8s.io")
        await bench.pod("late", template="one", labels=label | {names.COSCHEDULING_GROUP_LABEL: "other"})
        await bench.until(lambda: "does not exist" in bench.status("other").get("message", ""), "it is missed again")
        monkeypatch.setattr(optional, "DISCOVERY_S", 0.2)
        assert bench.running(["w-0", "w-1"]), "what runs is left alone"
    said = [r.getMessage() for r in caplog.records if "podgroups.scheduling.x-k8s.io" in r.getMessage()]
    assert [text for text in said if "served" in text] == [
        "podgroups.scheduling.x-k8s.io are served in v1alpha1, and read",
        "podgroups.scheduling.x-k8s.io are no longer served in v1alpha1",
    ]
    assert len(said) <= 4, said


async def test_a_gang_that_runs_goes_on_whatever_becomes_of_its_group(bench: Bench):
    """A PodGroup that asks for more, that goes, and a member that leaves the group: no pod is evicted for it."""
    await serve(bench, GROUPS)
    await bench.client.create(GROUPS, {"metadata": {"name": "train", "namespace": NAMESPACE}, "spec": {"minMember": 2}})
    await bench.template("one")
    pods = ["w-0", "w-1"]
    async with bench.controller(gang_timeout_s=2.0):
        for name in pods:
            await bench.pod(name, template="one", labels={names.COSCHEDULING_GROUP_LABEL: "train"})
        await bench.until(lambda: bench.status("train").get("phase") == "Running", "it runs")
        await bench.client.patch(GROUPS, "train", {"spec": {"minMember": 4}}, namespace=NAMESPACE)
        await bench.until(lambda: "2 of 4 members" in bench.status("train").get("message", ""), "more are asked for")
        await asyncio.sleep(2.5)
        assert bench.running(pods)
        leave = {"metadata": {"labels": {names.COSCHEDULING_GROUP_LABEL: None}}}
        await bench.client.patch(resources.PODS, "w-1", leave, namespace=NAMESPACE)
        await bench.until(lambda: bench.status("w-1").get("phase") == "Running", "it is one by itself")
        await asyncio.sleep(2.5)
        assert bench.running(pods)
        await bench.client.delete(GROUPS, "train", NAMESPACE)
        await bench.until(lambda: bench.status("train").get("phase") == "Running", "what is left of it runs")
        assert bench.running(pods)


async def test_pods_beyond_a_native_groups_min_count_join_it_and_its_priority_counts(bench: Bench):
    """Elastic surplus: two start together, the third does not wait for more of them and none of them for it."""
    await serve(bench, NATIVE)
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}, "priorityClassName": "high", "priority": 700}
    await bench.client.create(NATIVE, {"metadata": {"name": "train", "namespace": NAMESPACE}, "spec": spec})
    await bench.template("one")
    await bench.template("eight", 8)
    group = {"podGroupName": "train"}
    async with bench.controller():
        await bench.pod("other", template="eight")
        await bench.until(lambda: bench.running(["other"]), "it has one of two nodes")
        await bench.pod("w-0", template="one", schedulingGroup=group)
        await bench.until(lambda: "1 of 2 members" in bench.status("train").get("message", ""), "its size is read")
        for name in ("w-1", "w-2"):
            await bench.pod(name, template="one", schedulingGroup=group)
        await bench.pod("w-3", template="eight", schedulingGroup=group)  # there is no room for this one
        await bench.until(lambda: bench.running(["w-0", "w-1", "w-2"]), "minCount run, and one that fits beside them")
        await bench.until(lambda: bench.status("train")["phase"] == "Running", "and the gang says so")
        assert bench.gated(["w-3"])
        await bench.delete(["w-2"])
        await bench.until(lambda: bench.get("w-2") is None, "one of the surplus goes")
        assert bench.running(["w-0", "w-1"])


async def test_the_claim_of_a_native_group_is_allocated_once_for_all_its_pods(bench: Bench):
    """Here the test is kube-controller-manager with DRAWorkloadResourceClaims: it makes the group's claim and names it."""
    await serve(bench, NATIVE)
    entry = {"name": "gpu", "resourceClaimTemplateName": "of-the-group"}
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}, "resourceClaims": [entry]}
    made = await bench.client.create(NATIVE, {"metadata": {"name": "train", "namespace": NAMESPACE}, "spec": spec})
    async with bench.controller():
        for name in ("w-0", "w-1"):
            await bench.pod(name, template="of-the-group", schedulingGroup={"podGroupName": "train"})
        waits = "the claim of PodGroup ml/train for its entry gpu is not made yet"
        await bench.until(lambda: waits in bench.status("train").get("message", ""), "none is made for a single pod")
        owner: Raw = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "name": "train"}
        owner |= {"uid": made["metadata"]["uid"], "controller": True}
        exactly = {"deviceClassName": names.GPU_CLASS, "allocationMode": "ExactCount", "count": 1}
        claim = {
            "metadata": {"name": "train-gpu-x7k2q", "namespace": NAMESPACE, "ownerReferences": [owner]},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
        }
        await bench.client.create(resources.raw(resources.RESOURCE_CLAIMS), claim)
        status = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "train-gpu-x7k2q"}]}
        await bench.client.patch(NATIVE, "train", {"status": status}, namespace=NAMESPACE)
        await bench.until(lambda: not any(map(bench.gated, (["w-0"], ["w-1"]))), "both are released")
    (allocated,) = bench.allocated()
    assert allocated.metadata.name == "train-gpu-x7k2q"
    assert {each.name for each in allocated.status.reserved_for} == {"w-0", "w-1"}
    assert len(bench.claims.all()) == 1


async def test_kueues_priority_class_counts_as_soon_as_it_exists(bench: Bench):
    await serve(bench, PRIORITIES)
    await bench.template("all", 8)
    everyone = {"metadata": {"name": "everyone"}, "spec": {"namespaceSelector": {}}}
    await bench.client.create(QUEUES, everyone)
    async with bench.controller():
        for name in ("first", "second"):
            await bench.pod(name, template="all")
        await bench.until(lambda: bench.running(["first", "second"]), "they have all devices of both nodes")
        await bench.pod("low", template="all")
        await bench.until(lambda: bench.status("low").get("position") == 1, "it waits alone")
        await bench.pod("high", template="all", labels={names.KUEUE_PRIORITY: "high"})
        missing = "there is no WorkloadPriorityClass 'high'; the pods' priority counts"
        await bench.until(lambda: missing in bench.status("high").get("message", ""), "the class is missed")
        assert bench.status("high").get("position") == 2
        await bench.client.create(PRIORITIES, {"metadata": {"name": "high"}, "value": 10_000})
        await bench.until(lambda: bench.status("high").get("position") == 1, "it goes first")
        assert missing not in bench.status("high")["message"]


async def test_a_missing_queue_of_kueues_is_named_in_the_reason(bench: Bench):
    await bench.template("one")
    await bench.client.create(QUEUES, {"metadata": {"name": "other"}, "spec": {}})
    async with bench.controller():
        await bench.pod("w", template="one", labels={names.KUEUE_QUEUE: "team"})
        await bench.until(lambda: bench.status("w").get("reason") == "UnknownQueue", "it waits")
        assert bench.status("w")["message"].startswith("There is no Queue 'team'"), bench.status("w")
        everywhere: Raw = {"spec": {"namespaceSelector": {}}}
        await bench.client.patch(QUEUES, "other", everywhere)
        await bench.until(lambda: bench.running(["w"]), "the namespace's queue takes it")
        await bench.until(lambda: bench.status("w").get("queue") == "other", "and says so")


async def test_kueues_queue_counts_where_there_is_one_of_that_name(bench: Bench):
    await bench.template("one")
    everyone = {"metadata": {"name": "everyone"}, "spec": {"namespaceSelector": {}}}
    await bench.client.create(QUEUES, everyone)

    label = {names.KUEUE_QUEUE: "team"}

    async def queue_of(pod: str) -> str:
        await bench.until(lambda: bench.status(pod).get("phase") == "Running", f"{pod} runs")
        found = await bench.client.get(GANGS, pod, NAMESPACE)
        return str(found["status"]["queue"])

    async with bench.controller():
        await bench.pod("before", template="one", labels=label)
        assert await queue_of("before") == "everyone"
        await bench.client.create(QUEUES, {"metadata": {"name": "team"}, "spec": {}})
        await bench.pod("after", template="one", labels=label)
        assert await queue_of("after") == "team"


@pytest.mark.parametrize(
    ("api", "spec", "size"),
    [
        ("scheduling.k8s.io", {"schedulingPolicy": {"gang": {"minCount": 4}}}, 4),
        ("scheduling.k8s.io", {"schedulingPolicy": {"basic": {}}}, 1),
        ("scheduling.volcano.sh", {"minMember": 3}, 3),
        ("scheduling.x-k8s.io", {"minMember": 5}, 5),
        ("scheduling.x-k8s.io", {}, 1),
        ("scheduling.x-k8s.io", {"minMember": -1}, 1),
        ("scheduling.x-k8s.io", {"minMember": "2"}, 1),
        ("scheduling.x-k8s.io", "nonsense", 1),
        ("scheduling.k8s.io", {"schedulingPolicy": ["gang"]}, 1),
    ],
    ids=str,
)
def test_a_podgroup_says_how_many_run_together(api, spec, size):
    assert terms(api, {"spec": spec}) == GroupTerms(size=size)


@pytest.mark.parametrize(
    ("constraints", "topology"),
    [
        ([{"key": "example.com/rack"}], "required:example.com/rack"),
        ([], None),
        ("rack", None),
        (["rack"], None),
        ([{"key": "no label/at/all"}], None),
    ],
    ids=str,
)
def test_a_native_podgroup_says_how_close_its_pods_are(constraints, topology):
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}, "schedulingConstraints": {"topology": constraints}}
    assert terms("scheduling.k8s.io", {"spec": spec}).topology == topology


def test_only_volcanos_podgroups_name_a_queue():
    spec = {"minMember": 2, "queue": "team"}
    assert terms("scheduling.volcano.sh", {"spec": spec}).queue == "team"
    assert terms("scheduling.volcano.sh", {"spec": {"queue": ""}}).queue is None
    assert terms("scheduling.x-k8s.io", {"spec": spec}).queue is None


def test_a_native_group_states_priority_preemption_and_claims():
    spec = {
        "schedulingPolicy": {"gang": {"minCount": 2}},
        "priorityClassName": "high",
        "priority": 700,
        "preemptionPolicy": "Never",
        "resourceClaims": [
            {"name": "gpu", "resourceClaimTemplateName": "one"},
            {"name": "nic", "resourceClaimTemplateName": "nic"},
            {"name": "shared", "resourceClaimName": "there"},
        ],
    }
    status = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "train-gpu-x"}, {"name": ["odd"]}]}
    found = terms("scheduling.k8s.io", {"spec": spec, "status": status})
    assert (found.priority, found.preempts) == (700, False)
    assert found.claims == (
        GroupClaim(name="gpu", template="one", claim="train-gpu-x"),
        GroupClaim(name="nic", template="nic"),
    )
    assert found.claim_of("gpu", "two") is None, "a pod's entry must match in name and template"


@pytest.mark.parametrize(
    ("more", "priority"),
    [
        ({"priority": 0}, None),
        ({"priorityClassName": "low", "priority": 0}, 0),
        ({"priorityClassName": "low", "priority": "5"}, None),
        ({"priorityClassName": "low"}, None),
    ],
    ids=str,
)
def test_a_native_group_without_a_class_leaves_the_priority_to_its_pods(more, priority):
    assert terms("scheduling.k8s.io", {"spec": more}).priority == priority
