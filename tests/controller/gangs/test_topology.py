"""Ranks and subgroups of members, where they come from, and what is told of levels; then all of it on the sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from fairlead.api import names
from fairlead.controller.gangs.admission.requests import members_to_place
from fairlead.controller.gangs.held.placement import placement
from fairlead.kube import core, resources
from fairlead.ui.model.explanations import gang_explanation
from tests.controller.conftest import NAMESPACE, Bench
from tests.controller.gang_views import NOW, Objects, asked, claim, pod, problem_of, view

HOST, RACK = "kubernetes.io/hostname", "example.com/rack"
GROUPS = {names.SUBGROUP_SIZE: "2", names.SUBGROUP_TOPOLOGY: f"required:{RACK}"}


def member(name: str, *, owner: str = "", labels: Mapping[str, str] | None = None, **more: Any) -> core.Pod:
    notes = {names.GANG: "g", names.GANG_SIZE: "4"} | more.pop("notes", {})
    owners = [{"kind": "Job", "name": owner, "uid": f"uid-{owner}", "controller": True}] if owner else []
    made: core.Pod = pod(name, annotations=notes, labels=dict(labels or {}), ownerReferences=owners, **more)
    return made


def indexed(number: int, **more: Any) -> core.Pod:
    notes = {names.COMPLETION_INDEX: str(number)} | more.pop("notes", {})
    return member(f"p{number}", owner="job", notes=notes, **more)


def ranks_of(*pods: core.Pod) -> dict[str, int]:
    gang = view(*pods)
    return {each.pod.metadata.name: gang.ranks[each.uid] for each in gang.members if each.uid in gang.ranks}


class TestRanks:
    def test_of_an_indexed_job(self):
        assert ranks_of(indexed(11), indexed(2)) == {"p11": 11, "p2": 2}

    def test_of_a_stateful_set_by_its_label(self):
        assert ranks_of(member("s-10", labels={names.STATEFULSET_INDEX: "10"})) == {"s-10": 10}

    def test_of_a_job_set_whose_jobs_come_one_after_the_other(self):
        pods = [
            member(
                f"j{job}-{index}",
                owner=f"j{job}",
                labels={names.JOBSET_JOB_INDEX: str(job)},
                notes={names.COMPLETION_INDEX: str(index)},
            )
            for job in (3, 2)
            for index in (1, 0)
        ]
        assert ranks_of(*pods) == {"j2-0": 0, "j2-1": 1, "j3-0": 2, "j3-1": 3}

    def test_of_a_leader_worker_set_though_its_pods_are_a_stateful_sets(self):
        def worker(group: int, number: int) -> core.Pod:
            labels = {names.LWS_GROUP_INDEX: str(group), names.LWS_WORKER_INDEX: str(number)}
            if number:
                labels[names.STATEFULSET_INDEX] = str(number - 1)
            return member(f"w{group}-{number}", labels=labels, notes={names.LWS_SIZE: "4"})

        assert ranks_of(worker(5, 0), worker(5, 1), worker(6, 0)) == {"w5-0": 0, "w5-1": 1, "w6-0": 4}

    def test_of_several_jobs_each_keeps_its_own_together(self):
        pods = [member(f"{job}{n}", owner=job, notes={names.COMPLETION_INDEX: str(n)}) for job in "ab" for n in (0, 1)]
        assert ranks_of(*pods) == {"a0": 0, "a1": 1, "b0": 2, "b1": 3}

    def test_of_kubeflow_the_master_comes_before_the_workers(self):
        def replica(kind: str, number: int) -> core.Pod:
            labels = {names.KUBEFLOW_TYPE: kind, names.KUBEFLOW_INDEX: str(number)}
            return member(f"{kind}-{number}", owner="train", labels=labels)

        pods = [replica("worker", 1), replica("master", 0), replica("worker", 0)]
        assert ranks_of(*pods) == {"master-0": 0, "worker-0": 2, "worker-1": 3}
        assert ranks_of(*(each for each in pods if "worker" in each.metadata.name)) == {"worker-0": 0, "worker-1": 1}

    def test_of_a_pod_group_of_kueue_also_by_a_label_that_it_names(self):
        pods = [member(f"p{n}", labels={names.KUEUE_POD_INDEX: str(n)}) for n in (1, 0)]
        assert ranks_of(*pods) == {"p0": 0, "p1": 1}
        other = {names.KUEUE_POD_INDEX_LABEL: "example.com/rank"}
        assert ranks_of(member("q", labels={"example.com/rank": "3"}, notes=other)) == {"q": 3}

    @pytest.mark.parametrize("text", ["", "x", "-1", "٣", "1" * 11])
    def test_of_an_index_that_is_none_there_is_none(self, text: str):
        assert ranks_of(member("p", notes={names.COMPLETION_INDEX: text})) == {}

    def test_members_without_an_index_have_none(self):
        gang = view(member("a"), member("b"))
        request = asked(gang)
        assert {each.rank for each in request.members} == {None}


class TestSubgroups:
    def test_they_are_made_by_rank(self):
        gang = view(*(indexed(number, notes=GROUPS) for number in (3, 0, 2, 1)))
        request = asked(gang)
        assert request.subgroup_topology == GROUPS[names.SUBGROUP_TOPOLOGY]
        assert [(each.rank, each.subgroup) for each in request.members] == [(0, "0"), (1, "0"), (2, "1"), (3, "1")]

    def test_or_named_by_a_label(self):
        notes = {names.SUBGROUP_TOPOLOGY: f"required:{RACK}"}
        gang = view(*(member(name, labels={names.SUBGROUP: name[0]}, notes=notes) for name in ("a1", "b1", "a2")))
        assert sorted(gang.subgroups.values()) == ["a", "a", "b"]

    def test_or_by_a_leader_worker_set_that_has_subgroups_of_its_own(self):
        notes = {names.SUBGROUP_TOPOLOGY: f"required:{RACK}"}
        labels = {names.LWS_GROUP_INDEX: "1", names.LWS_WORKER_INDEX: "0", names.LWS_SUBGROUP_INDEX: "0"}
        assert view(member("w", labels=labels, notes=notes)).subgroups == {"uid-w": "1-0"}

    def test_a_member_that_is_in_none_is_a_problem_that_names_it(self):
        assert "member astray is in no subgroup: it has no index" in problem_of(
            view(indexed(0, notes=GROUPS), member("astray", notes=GROUPS))
        )

    def test_one_of_which_nothing_runs_joins_a_gang_that_runs_whole(self):
        """Alone its first member might choose a rack that has no room for the second."""
        running = [
            indexed(n, notes=GROUPS | {names.GANG_SIZE: "2"}, gated=False, phase="Running", node="n1", claim=f"c{n}")
            for n in (0, 1)
        ]
        waiting = [indexed(n, notes=GROUPS | {names.GANG_SIZE: "2"}) for n in (5, 2, 3, 4)]
        held = [claim(f"c{n}", f"p{n}", node="n1", reserved=[f"p{n}"]) for n in (0, 1)]
        gang = view(*running, *waiting, objects=_objects(held))
        assert [each.pod.metadata.name for each in members_to_place(gang)] == ["p2", "p3"]
        request = asked(gang)
        assert request.placed_subgroups == (("0", "n1"), ("0", "n1"))
        assert (len(request.members), request.size <= 4) == (2, True)

    def test_one_of_which_some_run_is_joined_by_one_member(self):
        running = [
            indexed(0, notes=GROUPS | {names.GANG_SIZE: "1"}, gated=False, phase="Running", node="n1", claim="c0")
        ]
        waiting = [indexed(n, notes=GROUPS | {names.GANG_SIZE: "1"}) for n in (1, 2, 3)]
        gang = view(*running, *waiting, objects=_objects([claim("c0", "p0", node="n1", reserved=["p0"])]))
        assert [each.pod.metadata.name for each in members_to_place(gang)] == ["p1"]


def _objects(held: list[Any]) -> Objects:
    return Objects(claims=held)


def test_the_placement_says_which_ranks_are_where_and_how_far_apart():
    notes = {names.TOPOLOGY: f"required:zone, preferred:{RACK}"}
    pods = [indexed(n, notes=notes, gated=False, phase="Running", node=f"n{n // 2}", claim=f"c{n}") for n in range(4)]
    held = [claim(f"c{n}", f"p{n}", node=f"n{n // 2}", reserved=[f"p{n}"]) for n in range(4)]
    gang = view(*pods, objects=_objects(held))
    labels = {"zone": {"n0": "z", "n1": "z"}, RACK: {"n0": "r0", "n1": "r1"}}
    found = placement(gang, lambda label, node: labels[label].get(node))
    assert [(each.level, each.asked, each.domains, each.apart) for each in found] == [
        ("zone", "required", 1, 0),
        (RACK, "preferred", 2, 1),
        (HOST, "", 2, 1),
    ]
    assert found[1].where == ("z>r0: 2 members, ranks 0-1", "z>r1: 2 members, ranks 2-3")


# -- on the sandbox: two hosts of eight GPUs, pods of two


async def racks(bench: Bench, **rack_of: str) -> None:
    for node, rack in rack_of.items():
        await bench.client.patch(resources.NODES, node, {"metadata": {"labels": {RACK: rack}}})


async def job(
    bench: Bench, numbers: list[int], *, notes: dict[str, str] | None = None, template: str = "two"
) -> list[str]:
    """The pods of an Indexed Job, made in this order."""
    pods = [f"g-{number}" for number in numbers]
    for name, number in zip(pods, numbers, strict=True):
        annotations = {names.COMPLETION_INDEX: str(number), **(notes or {})}
        await bench.pod(name, template=template, gang="g", size=len(numbers), annotations=annotations)
    return pods


def lines(bench: Bench, title: str) -> tuple[str, ...]:
    raw = bench.gangs.get(f"{NAMESPACE}/g")
    parts = () if raw is None else gang_explanation(raw, now=NOW).parts
    found = [part.lines for part in parts if part.title == title]
    return found[0] if found else ()


async def test_subgroups_stay_in_their_rack_and_a_gang_that_waits_says_which_level_is_short(bench: Bench):
    await bench.template("two", 2)
    await racks(bench, h1="r1", h2="r2")
    notes = {names.SUBGROUP_SIZE: "3", names.SUBGROUP_TOPOLOGY: f"required:{RACK}"}
    async with bench.controller():
        pods = await job(bench, [4, 1, 2, 5, 0, 3], notes=notes)
        await bench.until(lambda: bench.running(pods), "all run")
        found = [bench.get(f"g-{number}") for number in range(6)]
        on = [pod.spec.node_name for pod in found if pod is not None]
        assert on == [on[0]] * 3 + [on[5]] * 3
        await bench.until(lambda: bool(lines(bench, "Placement")), "the Gang says where they are")
        assert f"{RACK} (required of each subgroup): 2 domains" in lines(bench, "Placement")[0]
        await bench.delete(pods)
        await bench.until(lambda: not bench.allocated() and not bench.gangs.all(), "all is gone")
        pods = await job(bench, [0, 1, 2, 3, 4, 5, 6, 7, 8], notes=notes)
        await bench.until(lambda: bench.status("g").get("phase") == "Waiting", "it waits")
        said = f"level {RACK} (required of each subgroup): 3 subgroups of 3, each in one of 2 domains: room for 2 (r1 1, r2 1), 1 short"
        await bench.until(lambda: said in lines(bench, "In detail"), "and says why")
