"""Each example of examples/08 to 20, and 25, applied whole: `kubectl get gangs` shows what its README says, and each pod holds its devices.

The pods are those that the example's controller would make (`tests.support.shapes`); webhook and controller are the real ones.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from fairlead.api import names
from fairlead.kube import errors, resources
from fairlead.kube.resources import GANGS, Raw, raw
from fairlead.sandbox.objects import phase_of, results_of
from tests.support.sandbox import until
from tests.support.shapes import kubespawner, mlflow
from tests.support.shapes.base import Obj
from tests.support.shapes.site import COLUMNS, Site, load

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROOT = Path(__file__).parents[2] / "examples"
Row = tuple[str, ...]


def files(folder: str) -> list[Obj]:
    """The claim's form and the legacy one."""
    return [each for file in ("claim.yaml", "legacy.yaml") for each in load(f"{folder}/{file}")]


def mlflow_runs(folder: str) -> list[Obj]:
    """What `mlflow run` makes of the two Job templates."""
    made = [
        mlflow.submitted(
            load(f"{folder}/{form}.yaml")[0], project=f"train-{form}", image="train:1", command=["python", "train.py"]
        )
        for form in ("claim", "legacy")
    ]
    return [*load(f"{folder}/template.yaml"), *made]


def servers(folder: str) -> list[Obj]:
    """The Notebooks, and the pods of two users of two hubs with these settings."""
    pods = [
        kubespawner.pod(kubespawner.settings(ROOT / folder / f"{form}.py"), user)
        for form, user in (("claim", "ada"), ("legacy", "grace"))
    ]
    return [*files(folder), *pods]


@dataclass(frozen=True, kw_only=True)
class Example:
    """What must be true of an example: how many devices each of its pods holds, by the beginning of the pod's name."""

    folder: str
    devices: dict[str, int]
    namespaces: tuple[str, ...] = ("language",)
    objects: Callable[[str], list[Obj]] = files
    besides: Callable[[Site], Awaitable[None]] | None = None
    """What else must be true when it runs."""


async def parts(site: Site) -> None:
    """Each of the six pods has a part of its own, a quarter of a GPU where it said `nvidia.com/gpu.shared`, and several have parts of one."""
    claims = [claim for claim in await site.allocated() if claim["metadata"]["name"].startswith("shared-")]
    results = [result for claim in claims for result in results_of(claim)]
    assert len({result["shareID"] for result in results}) == 6
    assert len({(result["pool"], result["device"]) for result in results}) < 6
    consumed = sorted(result["consumedCapacity"]["memory"] for result in results)
    assert consumed.count("10Gi") == 4 and len({*consumed}) == 2, consumed


async def one_rack(site: Site) -> None:
    """Each gang is in one rack, and of its ranks at most one pair of neighbours is apart."""
    gangs = (await site.client.list(raw(GANGS), "language")).items
    for gang in gangs:
        rack, node = gang["status"]["placement"]
        assert (rack["level"], rack["asked"], rack["domains"]) == ("example.com/rack", "preferred", 1)
        assert (node["level"], node["apart"] <= 1) == ("kubernetes.io/hostname", True)
    nodes: dict[str, set[str]] = {}
    for pod in await site.pods("language"):
        index = int(pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"])
        job = pod["metadata"]["labels"]["batch.kubernetes.io/job-name"]
        nodes.setdefault(f"{job}/{index // 2}", set()).add(pod["spec"]["nodeName"])
    assert [len(each) for each in nodes.values()] == [1, 1, 1, 1], "a subgroup is on one node"


EXAMPLES = (
    Example(folder="08-topology", devices={"pipeline-": 2, "pipeline-legacy-": 2}, besides=one_rack),
    Example(
        folder="09-jobset",
        devices={"llama-workers-": 1, "llama-legacy-workers-": 1, "llama-driver-": 0, "llama-legacy-driver-": 0},
    ),
    Example(folder="10-leaderworkerset", devices={"serve-0": 2, "serve-1": 2, "serve-legacy-": 2}),
    Example(
        folder="11-kubeflow-training",
        devices={
            "bert-": 1,
            "resnet-": 1,
            "horovod-worker-": 1,
            "horovod-legacy-worker-": 1,
            "horovod-launcher-": 0,
            "horovod-legacy-launcher-": 0,
        },
    ),
    Example(
        folder="12-ray",
        devices={
            "explore-gpu-worker-": 2,
            "explore-legacy-gpu-worker-": 2,
            "explore-head-": 0,
            "explore-legacy-head-": 0,
            "tune-rpdbx-gpu-worker-": 2,
            "tune-legacy-g6z97-gpu-worker-": 2,
            "tune-rpdbx-head-": 0,
            "tune-legacy-g6z97-head-": 0,
        },
    ),
    Example(
        folder="13-kserve",
        devices={"llama-predictor-": 2, "llama-legacy-predictor-": 2, "detector-predictor-": 1, "detector-legacy-": 1},
    ),
    Example(folder="14-kubeai", devices={"model-llama-3.1-8b-": 2}, namespaces=("language", "vision")),
    Example(
        folder="15-pipelines",
        devices={
            "evaluate-score-": 1,
            "evaluate-by-patch": 1,
            "evaluate-legacy": 1,
            "finetune-": 2,
            "benchmark-pod": 1,
        },
    ),
    Example(folder="16-mlflow", devices={"train-claim-": 1, "train-legacy-": 1}, objects=mlflow_runs),
    Example(
        folder="17-notebooks",
        devices={"analysis-0": 1, "analysis-legacy-0": 1, "jupyter-ada": 1, "jupyter-grace": 1},
        objects=servers,
    ),
    Example(
        folder="18-sharing",
        devices={"mps-": 1, "slices-": 1, "shared-": 1, "shared-legacy-": 1},
        namespaces=("vision",),
        besides=parts,
    ),
    Example(
        folder="20-policies",
        devices={"thesis-": 1, "thesis-legacy-": 1},
        namespaces=("language-interns",),
        objects=load,
    ),
    Example(
        folder="25-members-without-gpus",
        devices={
            "rollouts-gpu-worker-": 2,
            "rollouts-head-": 0,
            "ring-worker-": 1,
            "ring-launcher-": 0,
        },
        objects=lambda folder: [*load(f"{folder}/ray.yaml"), *load(f"{folder}/mpi.yaml")],
    ),
)


ELASTIC = Example(folder="19-elastic-and-priorities", devices={})


@pytest.mark.one_in(13)
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.folder)
async def test_an_example_is_as_its_readme_says(site: Site, example: Example) -> None:
    objects = example.objects(example.folder)
    try:
        await site.apply(objects)
        await settled(site, example, running=len)
        for namespace in example.namespaces:
            await check_devices(site, example, namespace)
        if example.besides is not None:
            await example.besides(site)
    finally:
        await site.delete(objects)


@pytest.mark.slow
async def test_a_head_waits_for_the_gpus_of_its_workers(site: Site) -> None:
    busy, objects = load("03-two-gangs/jobs.yaml")[:2], load("25-members-without-gpus/ray.yaml")
    job = busy[1]["spec"]
    job |= {"parallelism": 14, "completions": 14}
    job["template"]["metadata"]["annotations"][names.GANG_SIZE] = "14"
    job["template"]["spec"]["containers"][0]["command"] = ["sleep", "600"]

    async def phase(namespace: str) -> str:
        return "".join(row[2] for row in await site.gangs(namespace))

    async def waits() -> bool:
        return await phase("language") == "Waiting"

    async def holds_the_gpus() -> bool:
        return await phase("vision") == "Running"

    try:
        await site.apply(busy)
        await until(holds_the_gpus, what="14 of 16 H100s are in use", timeout_s=60)
        await site.apply(objects)
        await until(waits, what="the RayCluster waits", timeout_s=60)
        pods = await site.pods("language")
        assert len(pods) == 3
        assert all(pod["spec"].get("schedulingGates") for pod in pods)
    finally:
        await site.delete([*busy, *objects])


@pytest.mark.slow
async def test_urgent_work_takes_the_surplus_of_an_elastic_gang(site: Site) -> None:
    first, second = (
        [each for name in names for each in load(f"{ELASTIC.folder}/{name}.yaml")]
        for names in (("priorities", "claim", "legacy"), ("urgent-claim", "urgent-legacy"))
    )
    try:
        await site.apply(first)
        grown = [(name, "language", "Running", "4", "8", "MembersRun", "") for name in ("elastic", "elastic-legacy")]

        async def is_grown() -> bool:
            return await site.gangs("language") == grown

        await until(is_grown, what="all sixteen run", timeout_s=100)
        await site.apply(second)
        await settled(site, ELASTIC, running=lambda pods: 16)
        waiting = [pod for pod in await site.pods("language") if phase_of(pod) == "Pending"]
        assert all(pod["metadata"]["name"].startswith("elastic-") for pod in waiting)
    finally:
        await site.delete([*first, *second])


async def test_a_group_with_exclusive_placement_never_has_its_workers(site: Site) -> None:
    """Why `fairlead check` finds it: LeaderWorkerSet waits for the leader's node, the leader for its gang."""
    objects = load("10-leaderworkerset/legacy.yaml")
    objects[0]["metadata"]["annotations"] = {"leaderworkerset.sigs.k8s.io/exclusive-topology": "kubernetes.io/hostname"}
    try:
        await site.apply(objects)

        async def gathering() -> bool:
            rows = await site.gangs("language")
            return [(row[0], *row[2:5]) for row in rows] == [
                (f"serve-legacy-{number}", "Gathering", "2", "0") for number in (0, 1)
            ]

        await until(gathering)
        assert [pod["metadata"]["name"] for pod in await site.pods("language")] == ["serve-legacy-0", "serve-legacy-1"]
    finally:
        await site.delete(objects)


async def test_what_a_policy_refuses_is_what_its_readme_shows(site: Site) -> None:
    policy, jobs = load("20-policies/policy.yaml"), load("20-policies/legacy.yaml")
    jobs[0]["spec"] |= {"parallelism": 8, "completions": 8}
    readme = (ROOT / "20-policies" / "README.md").read_text()
    try:
        await site.apply(policy)

        async def known() -> bool:
            with contextlib.suppress(errors.NotFound):
                await site.client.delete(resources.JOBS, jobs[0]["metadata"]["name"], "language-interns")
            try:
                await site.apply(jobs)
            except errors.ApiError as error:
                said.append(str(error))
            return bool(said)

        said: list[str] = []
        await until(known, what="the webhook knows of the policy")
        assert f"```\n{said[0]}\n```" in readme, said[0]
    finally:
        await site.delete([*policy, *jobs])


async def settled(site: Site, example: Example, *, running: Callable[[list[Raw]], int]) -> None:
    """Wait until so many pods run, and the gangs are those of the README.

    A gang of one has a Gang object if it waited for more than three seconds, as on a busy machine: then it is in no README.
    """
    expected = shown(ROOT / example.folder / "README.md")
    pods: list[Raw] = []
    seen: list[Row] = []

    async def holds() -> bool:
        pods[:] = [pod for each in example.namespaces for pod in await site.pods(each)]
        seen[:] = sorted([row for each in example.namespaces for row in await site.gangs(each)])
        alone = {pod["metadata"]["name"] for pod in pods}
        told = [row for row in seen if row in expected or row[0] not in alone]
        made = all(any(pod["metadata"]["name"].startswith(begins) for pod in pods) for begins in example.devices)
        deployed = [each for namespace in example.namespaces for each in await site.deployments(namespace)]
        whole = all((each.get("status") or {}).get("replicas", 0) == each["spec"]["replicas"] for each in deployed)
        ready = sum(phase_of(pod) == "Running" for pod in pods) == running(pods)
        return made and whole and ready and told == expected

    try:
        await until(holds, timeout_s=100)
    except AssertionError:
        states = [(pod["metadata"]["name"], phase_of(pod)) for pod in pods]
        raise AssertionError(f"gangs {seen}, expected {expected}; pods {states}") from None


async def check_devices(site: Site, example: Example, namespace: str) -> None:
    seen: set[str] = set()
    for pod in await site.pods(namespace):
        name, held = pod["metadata"]["name"], await site.devices(pod)
        begins = max((each for each in example.devices if name.startswith(each)), key=len, default=None)
        assert begins is not None, f"{name} is no pod of the example"
        assert len(held) == example.devices[begins], f"{name} holds {held}"
        seen.add(begins)
    assert seen == {*example.devices}


def shown(readme: Path) -> list[Row]:
    """The rows of the table in a README that `kubectl get gangs` prints, by name, without the age."""
    lines = readme.read_text().splitlines()
    heads = [number for number, line in enumerate(lines) if re.match(r"NAME +QUEUE +PHASE", line)]
    if not heads:
        assert "No resources found" in readme.read_text(), f"{readme} does not show what kubectl get gangs prints"
        return []
    begins = [lines[heads[0]].index(column) for column in (*COLUMNS, "AGE")]
    table = itertools.takewhile(lambda line: line.strip("`").strip(), lines[heads[0] + 1 :])
    return sorted(tuple(line[begin:end].strip() for begin, end in itertools.pairwise(begins)) for line in table)
