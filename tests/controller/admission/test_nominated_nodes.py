"""Room on nodes for gangs that wait: which pods are nominated, when that gives way, and what kube-scheduler does with it (sandbox)."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from fairlead.api import names
from fairlead.controller.book.book import Book, GangState
from fairlead.controller.commit.nominated_nodes import REFUSED_S, NominatedNodes
from fairlead.controller.commit.part import Tasks
from fairlead.controller.gangs.membership.gangs import Gang, GangId
from fairlead.controller.gangs.membership.members import Member, Stage
from fairlead.controller.options import ControllerOptions
from fairlead.engine.types.plan import Assignment, Reservation
from fairlead.engine.types.values import PodRef
from fairlead.kube import core, errors, resources
from fairlead.kube.client import Patch
from fairlead.kube.timing import Time
from tests.controller.autoscaling.test_autoscaler_contracts import DEMAND, gated_pod
from tests.controller.conftest import Bench, benches
from tests.support.parts import shared
from tests.support.teams import OTHER, standing, teams


class Cluster:
    """The caches and the writer of one term, as far as nominations need them."""

    def __init__(self) -> None:
        self.gangs: dict[GangId, Gang] = {}
        self.pods: dict[str, core.Pod] = {}
        self.writes: list[tuple[str, str]] = []
        self.book = Book()
        self.refuses = False
        self.now = 0.0
        self.triggers = SimpleNamespace(gang=lambda _: None)

    def latest(self, pod: core.Pod) -> core.Pod:
        return self.pods[pod.metadata.uid]

    async def nominate(self, pod: core.Pod, node: str) -> None:
        if self.refuses:
            raise errors.Forbidden("may not change its status", status=403)
        self.writes.append((pod.metadata.name, node))
        status = msgspec.structs.replace(self.latest(pod).status, nominated_node_name=node)
        self.set(msgspec.structs.replace(self.latest(pod), status=status))

    def set(self, pod: core.Pod) -> None:
        self.pods[pod.metadata.uid] = pod
        for gang_id, gang in self.gangs.items():
            members = tuple(replace(m, pod=self.pods[m.uid]) if m.uid in self.pods else m for m in gang.members)
            self.gangs[gang_id] = replace(gang, members=members)

    def add(self, name: str, pods: int, *, nominated: str = "") -> Reservation:
        """A gang that waits, and a place for each of its pods on a node of its own: n0, n1, …"""
        members = []
        for number in range(pods):
            raw = gated_pod(f"{name}-{number}")
            raw["status"]["nominatedNodeName"] = nominated
            pod = msgspec.convert(raw, core.Pod)
            self.pods[pod.metadata.uid] = pod
            members.append(Member(pod=pod, stage=Stage.GATED, claims=()))
        self.gangs["ml", name] = Gang(id=("ml", name), size=pods, members=tuple(members))
        at = tuple(
            Assignment(pod=PodRef(uid=m.uid, namespace="ml", name=m.pod.metadata.name), node=f"n{number}")
            for number, m in enumerate(members)
        )
        nodes = tuple(sorted(each.node for each in at))
        return Reservation(
            namespace="ml", name=name, uid="u", queue="q", nodes=nodes, kind="Blocked", assignments=at
        )  # fmt: skip

    def release(self, name: str, node: str, *, bound: bool) -> None:
        """All its pods are pinned to the node, without a gate."""
        pin = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [pin]}}
        gang = self.gangs["ml", name]
        members = []
        for member in gang.members:
            raw = msgspec.to_builtins(member.pod)
            raw["spec"] |= {
                "schedulingGates": [],
                "affinity": {"nodeAffinity": required},
                "nodeName": node if bound else "",
            }
            pod = msgspec.convert(raw, core.Pod)
            self.pods[pod.metadata.uid] = pod
            members.append(replace(member, pod=pod, stage=Stage.RELEASED))
        self.gangs["ml", name] = replace(gang, members=tuple(members))


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def term(cluster: Cluster, *, enabled: bool = True) -> tuple[NominatedNodes, Tasks]:
    time = Time(clock=lambda: cluster.now, wall=lambda: cluster.now)
    options = ControllerOptions(nominate_nodes=enabled)
    parts = shared(caches=cluster, writer=cluster, book=cluster.book, time=time, options=options)
    return NominatedNodes(parts), parts.tasks


async def synced(nominated: NominatedNodes, tasks: Tasks, *reservations: Reservation) -> None:
    nominated._book.replace(GangState.reservation, {(each.namespace, each.name): each for each in reservations})
    nominated.sync()
    await tasks.finish(1.0)


async def test_each_pod_of_a_reservation_is_nominated_once_and_no_more_when_the_place_is_another_or_gone(
    cluster: Cluster,
):
    place = cluster.add("wide", 2)
    nominated, tasks = term(cluster)
    for _ in range(2):
        await synced(nominated, tasks, place)
    assert cluster.writes == [("wide-0", "n0"), ("wide-1", "n1")]
    moved = replace(
        place, assignments=tuple(msgspec.structs.replace(each, node="n7") for each in place.assignments[:1])
    )
    await synced(nominated, tasks, moved)
    assert cluster.writes[2:] == [("wide-0", "n7"), ("wide-1", "")]
    await synced(nominated, tasks)
    await synced(nominated, tasks)
    assert cluster.writes[4:] == [("wide-0", "")]


async def test_no_pod_is_nominated_to_a_node_while_another_gangs_pods_are_on_their_way_there(cluster: Cluster):
    """Beside the held place the engine may have let another gang start, which kube-scheduler would refuse there."""
    place = cluster.add("wide", 2)
    cluster.add("small", 1)
    nominated, tasks = term(cluster)
    await synced(nominated, tasks, place)
    cluster.book["ml", "small"].busy = True
    await nominated.make_way(("ml", "small"), {"n0"})
    assert cluster.writes[2:] == [("wide-0", "")], "before it is released"
    await synced(nominated, tasks, place)
    cluster.book["ml", "small"].busy = None
    cluster.release("small", "n0", bound=False)
    await synced(nominated, tasks, place)
    assert len(cluster.writes) == 3, "it is not bound yet"
    cluster.release("small", "n0", bound=True)
    await synced(nominated, tasks, place)
    assert cluster.writes[3:] == [("wide-0", "n0")]


async def test_a_gang_does_not_make_way_for_itself_and_is_left_alone_while_it_is_released(cluster: Cluster):
    place = cluster.add("wide", 1)
    nominated, tasks = term(cluster)
    await synced(nominated, tasks, place)
    cluster.book["ml", "wide"].busy = True
    await nominated.make_way(("ml", "wide"), {"n0"})
    await synced(nominated, tasks)
    assert cluster.writes == [("wide-0", "n0")], "kube-scheduler removes it when it binds"


async def test_a_new_leader_takes_back_what_it_does_not_want_and_knows_which_pods_are_on_their_way(cluster: Cluster):
    cluster.add("old", 1, nominated="n5")
    place = cluster.add("wide", 1)
    cluster.add("small", 1)
    cluster.release("small", "n0", bound=False)
    nominated, tasks = term(cluster)
    await synced(nominated, tasks, place)
    assert cluster.writes == [("old-0", "")]
    cluster.release("small", "n0", bound=True)
    await synced(nominated, tasks, place)
    assert cluster.writes[1:] == [("wide-0", "n0")]


async def test_without_the_flag_nothing_is_nominated_and_what_was_is_taken_back(cluster: Cluster):
    place = cluster.add("wide", 1, nominated="n0")
    nominated, tasks = term(cluster, enabled=False)
    await synced(nominated, tasks, place)
    await synced(nominated, tasks, place)
    assert cluster.writes == [("wide-0", "")]


async def test_a_pod_that_autoscalers_are_shown_is_not_nominated_for_they_pass_those_over(cluster: Cluster):
    place = cluster.add("train", 1)
    nominated, tasks = term(cluster)
    cluster.book["ml", "train"].demand = DEMAND
    await synced(nominated, tasks, place)
    assert cluster.writes == []
    cluster.book["ml", "train"].demand = replace(DEMAND, mode="Placeholder")
    await synced(nominated, tasks, place)
    assert cluster.writes == [("train-0", "n0")]


async def test_a_refusal_is_said_once_with_the_next_step_and_not_tried_for_each_pod(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
):
    place = cluster.add("wide", 3)
    nominated, tasks = term(cluster)
    cluster.refuses = True
    for cluster.now in (0.0, 1.0, REFUSED_S, 2 * REFUSED_S):
        await synced(nominated, tasks, place)
    (said,) = [each.getMessage() for each in caplog.records if "nominatedNodeName" in each.getMessage()]
    assert "pod ml/wide-0" in said
    assert "set controller.nominateNodes=true in the chart's values" in said
    cluster.refuses, cluster.now = False, 3 * REFUSED_S
    await synced(nominated, tasks, place)
    assert len(cluster.writes) == 3


# -- on the sandbox ---------------------------------------------------------------------------------------------------

POLICIES = resources.Resource(
    group="admissionregistration.k8s.io", version="v1", plural="validatingadmissionpolicies",
    kind="ValidatingAdmissionPolicy", namespaced=False, type=dict,
)  # fmt: skip
FORBIDS = " && object.?status.?nominatedNodeName.orValue('') == ''"


async def allow(bench: Bench) -> None:
    """As the chart's controller.nominateNodes does."""
    policy = await bench.client.get(POLICIES, "fairlead-controller-pods")
    texts = [each["expression"] for each in policy["spec"]["validations"]]
    assert any(FORBIDS in text for text in texts)
    rules = [each | {"expression": each["expression"].replace(FORBIDS, "")} for each in policy["spec"]["validations"]]
    body = {"spec": policy["spec"] | {"validations": rules}}
    await bench.client.patch(POLICIES, "fairlead-controller-pods", body, kind=Patch.MERGE)


def asks_cpu(cpu: int) -> dict[str, Any]:
    resources_ = {"requests": {"cpu": str(cpu)}}
    return {"containers": [{"name": "main", "image": "busybox", "command": ["serve"], "resources": resources_}]}


@pytest.mark.slow
async def test_the_cpu_of_a_gang_that_others_are_evicted_for_is_not_taken_by_pods_without_devices(tmp_path: Path):
    async with benches(tmp_path, count=1) as bench:
        await teams(bench, flavors=[{"flavor": "gpu", "deserved": 0}])
        await allow(bench)
        (node,) = (await bench.client.list(resources.NODES)).items
        cpu = int(node.status.allocatable["cpu"])
        async with bench.controller(nominate_nodes=True):
            await bench.pod("one", template="eight", annotations={names.CHECKPOINT_GRACE: "3s"})
            await bench.until(lambda: bench.running(["one"]), "the borrower runs")
            owner = asks_cpu(cpu - 4)
            owner["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
            await bench.pod("owner", template="eight", namespace=OTHER, **owner)

            def marked() -> bool:
                pod = bench.get("one")
                return pod is not None and names.EVICT_AT in pod.metadata.annotations

            await bench.until(marked, "the borrower is asked to leave")
            await bench.until(lambda: nominated_to(bench) == node.metadata.name, "the owner is nominated")
            await bench.pod("filler", gates=(), **asks_cpu(8))
            await bench.until(lambda: standing(bench, OTHER, "owner") == "Running", "the owner runs")
            assert nominated_to(bench) == ""
            filler = bench.get("filler")
            assert filler is not None
            assert not filler.spec.node_name


def nominated_to(bench: Bench) -> str:
    pod = bench.pods.get(f"{OTHER}/owner")
    return "" if pod is None else pod.status.nominated_node_name
