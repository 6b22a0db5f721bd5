"""The shapes themselves, against what the controllers' documentation says of names, labels and owners; and that docs name their versions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from fairlead.api import crds
from tests.support.shapes import (
    argo_workflows,
    jobset,
    kubeflow_trainer,
    kuberay,
    kubernetes,
    leader_worker_set,
    notebooks,
)
from tests.support.shapes.base import Controller, Obj
from tests.support.shapes.site import COLUMNS, load
from tests.support.shapes.systems import CONTROLLERS, OTHERS

ROOT = Path(__file__).parents[2]


def nothing(kind: str, namespace: str, name: str) -> Obj:
    raise KeyError((kind, namespace, name))


def of(folder: str, kind: str, file: str = "claim.yaml") -> Obj:
    found = next(each for each in load(f"{folder}/{file}") if each["kind"] == kind)
    return {**found, "metadata": {**found["metadata"], "uid": "u"}}


def test_jobs_of_a_jobset_have_its_names_indexes_and_subdomain() -> None:
    made = list(jobset.jobs(of("09-jobset", "JobSet"), nothing))
    assert [job["metadata"]["name"] for job in made] == ["llama-driver-0", "llama-workers-0", "llama-workers-1"]
    pod = made[2]["spec"]["template"]
    prefix = "jobset.sigs.k8s.io"
    assert pod["metadata"]["labels"][f"{prefix}/job-global-index"] == "2"
    assert pod["metadata"]["labels"][f"{prefix}/job-index"] == "1"
    assert pod["metadata"]["annotations"][f"{prefix}/jobset-name"] == "llama"
    assert pod["spec"]["subdomain"] == "llama"
    assert [owner["kind"] for owner in made[2]["metadata"]["ownerReferences"]] == ["JobSet"]


@pytest.mark.parametrize("ordered", [{"startupPolicy": {"startupPolicyOrder": "InOrder"}}, {}])
def test_a_jobset_in_order_begins_with_its_first_jobs(ordered: dict[str, Any]) -> None:
    found = of("09-jobset", "JobSet")
    found["spec"] = {**found["spec"], **ordered}
    assert len(list(jobset.jobs(found, nothing))) == (1 if ordered else 3)


def test_a_leader_and_its_workers_are_of_two_stateful_sets() -> None:
    lws = of("10-leaderworkerset", "LeaderWorkerSet")
    (leaders,) = leader_worker_set.leaders(lws, nothing)
    stored = {**leaders, "metadata": {**leaders["metadata"], "uid": "s"}}
    pods = list(kubernetes.pods_of_stateful_set(stored, nothing))
    for pod in pods:
        leader_worker_set.labelled(pod)
    assert [pod["metadata"]["name"] for pod in pods] == ["serve-0", "serve-1"]
    (group,) = leader_worker_set.workers(pods[1], lambda *_: lws)
    (worker,) = kubernetes.pods_of_stateful_set({**group, "metadata": {**group["metadata"], "uid": "w"}}, nothing)
    leader_worker_set.labelled(worker)
    labels = worker["metadata"]["labels"]
    assert (worker["metadata"]["name"], labels[leader_worker_set.WORKER], labels[leader_worker_set.GROUP]) == (
        "serve-1-1",
        "1",
        "1",
    )
    assert labels[leader_worker_set.KEY] == pods[1]["metadata"]["labels"][leader_worker_set.KEY]
    env = {each["name"]: each["value"] for each in worker["spec"]["containers"][0]["env"]}
    assert env == {"LWS_LEADER_ADDRESS": "serve-1.serve.language", "LWS_GROUP_SIZE": "2", "LWS_WORKER_INDEX": "1"}


@pytest.mark.parametrize(
    ("resources", "processes"),
    [
        ({"limits": {"nvidia.com/gpu": 2}, "requests": {"cpu": "8"}}, "auto"),
        ({"requests": {"cpu": "8"}, "claims": [{"name": "gpu"}]}, "8"),
        ({}, "1"),
    ],
)
def test_trainer_counts_gpus_in_limits_only(resources: Obj, processes: str) -> None:
    runtime, job = of("11-kubeflow-training", "TrainingRuntime"), of("11-kubeflow-training", "TrainJob")
    (replicated,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    replicated["template"]["spec"]["template"]["spec"]["containers"][0]["resources"] = resources
    del job["spec"]["trainer"]["numProcPerNode"]
    (made,) = kubeflow_trainer.jobset(job, lambda *_: runtime)
    spec = made["spec"]["replicatedJobs"][0]["template"]["spec"]
    env = {each["name"]: each["value"] for each in spec["template"]["spec"]["containers"][0]["env"]}
    assert (env["PET_NPROC_PER_NODE"], env["PET_NNODES"], spec["parallelism"]) == (processes, "2", 2)
    assert made["metadata"]["annotations"] == {"fairlead.dev/topology": "preferred:kubernetes.io/hostname"}


def test_trainer_ignores_claims_of_a_train_job() -> None:
    runtime = of("11-kubeflow-training", "TrainingRuntime", "legacy.yaml")
    job = of("11-kubeflow-training", "TrainJob", "legacy.yaml")
    job["spec"]["trainer"]["resourcesPerNode"] = {"claims": [{"name": "gpu"}]}
    (made,) = kubeflow_trainer.jobset(job, lambda *_: runtime)
    (container,) = made["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"]
    assert not container.get("resources")


@pytest.mark.parametrize(("file", "said"), [("claim.yaml", True), ("claim.yaml", False), ("legacy.yaml", False)])
def test_ray_is_told_of_gpus_by_its_parameters_or_limits(file: str, *, said: bool) -> None:
    found = of("12-ray", "RayCluster", file)
    (group,) = found["spec"]["workerGroupSpecs"]
    group["rayStartParams"] = {"num-gpus": "2"} if said else {}
    _, *workers = kuberay.pods(found, nothing)
    (command,) = {worker["spec"]["containers"][0]["args"][0] for worker in workers}
    assert ("--num-gpus=2" in command) == (said or file == "legacy.yaml")


def test_a_stateful_set_makes_its_first_pod_first() -> None:
    template: Obj = {"metadata": {}, "spec": {"containers": []}}
    found = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "s", "namespace": "n"}}
    spec: Obj = {"replicas": 3, "template": template}
    assert len(list(kubernetes.pods_of_stateful_set({**found, "spec": spec}, nothing))) == 1
    parallel = {**spec, "podManagementPolicy": "Parallel"}
    assert len(list(kubernetes.pods_of_stateful_set({**found, "spec": parallel}, nothing))) == 3


def test_a_workflows_pods_are_named_by_a_hash_of_the_node() -> None:
    """FNV-1a of 32 bits, whose test vectors are its authors'."""
    assert [argo_workflows._hash(text) for text in ("", "a", "foobar")] == [0x811C9DC5, 0xE40C292C, 0xBF9CF968]
    names = [pod["metadata"]["name"] for pod in argo_workflows.pods(of("15-pipelines", "Workflow"), nothing)]
    assert len(names) == 2, "the task that depends on others comes later"
    assert all(name.startswith("evaluate-score-") for name in names)


def test_a_notebook_that_was_stopped_has_no_pod() -> None:
    notebook = of("17-notebooks", "Notebook")
    said = {"kubeflow-resource-stopped": "now", "notebooks.kubeflow.org/x": "y", "fairlead.dev/queue": "q"}
    notebook["metadata"]["annotations"] = said
    (stopped,) = notebooks.stateful_set(notebook, nothing)
    assert stopped["spec"]["replicas"] == 0
    assert "notebooks.kubeflow.org/x" not in stopped["spec"]["template"]["metadata"]["annotations"]
    assert stopped["spec"]["template"]["metadata"]["annotations"]["fairlead.dev/queue"] == "q"


@pytest.mark.parametrize("controller", CONTROLLERS, ids=lambda controller: controller.name)
def test_the_docs_list_each_controller_with_the_version_that_its_sources_have(controller: Controller) -> None:
    assert controller.sources
    assert all(source.startswith("https://") for source in controller.sources)
    assert any(re.search(rf"/v?{re.escape(controller.version)}/", source) for source in controller.sources)
    text = (ROOT / "docs" / "examples.md").read_text()
    listed = dict(re.findall(r"^\| ([^|]+?) \| ([0-9.]+) \|", text, re.MULTILINE))
    name = controller.name if controller in OTHERS else "Deployment, ReplicaSet, StatefulSet"
    assert listed.get(name) == controller.version


def test_the_docs_list_every_example_once() -> None:
    folders = sorted(path.name for path in (ROOT / "examples").iterdir() if path.is_dir())
    listed = re.findall(r"^\| \[([0-9]{2}-[a-z0-9-]+)\]", (ROOT / "docs" / "examples.md").read_text(), re.MULTILINE)
    assert listed == folders
    assert len({folder[:2] for folder in folders}) == len(folders), "each has a number of its own"


def test_each_readme_names_the_versions_of_its_systems() -> None:
    for controller in OTHERS:
        readmes = "".join(path.read_text() for path in (ROOT / "examples").glob("*/README.md"))
        assert controller.version in readmes, controller.name


def test_the_columns_are_those_of_kubectl_get_gangs() -> None:
    (gang,) = (each for each in crds.DEFINITIONS if each.plural == "gangs")
    assert ("NAME", *(name.upper() for name, *_ in gang.columns)) == (*COLUMNS, "AGE")
