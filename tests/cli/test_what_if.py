"""`fairlead what-if` on a snapshot file: tables and JSON, every kind of change, and clear errors without a traceback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from msgspec.structs import replace

from fairlead.engine.forecast.what_if import ChangeError
from fairlead.engine.types.settings import FlavorQuota, FlavorSpec, QueueSpec
from fairlead.history.facts.snapshot_file import dump
from fairlead.ui.what_if import world as reading
from fairlead.ui.what_if.answer import answer
from fairlead.ui.what_if.question import Question
from fairlead.ui.what_if.workloads import read
from tests.support.commands import invoke
from tests.support.engine.objects import claim_spec, device_request, gang, gpu
from tests.support.engine.world import World, h100_world

NOW = 1_000_000.0
JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: tune, namespace: ml}
spec:
  parallelism: 2
  completions: 2
  template:
    metadata: {annotations: {fairlead.dev/gang: tune}}
    spec:
      restartPolicy: Never
      containers:
      - {name: main, image: busybox, resources: {limits: {nvidia.com/gpu: 8}}}
"""


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    """Two nodes, each held by a gang with an hour left; one gang of two nodes waits."""
    world = h100_world(2)
    world.flavors = (FlavorSpec(name="h100", device_selector='device.driver == "gpu.fairlead.dev"'),)
    world.queues = (QueueSpec(name="team", uid="team", quotas=(FlavorQuota(flavor="h100", deserved=16),)),)
    world.now = NOW - 3600
    running = [
        gang(f"run-{n}", 1, claim_spec(device_request(8)), queue="team", run_s=7200.0, created=1.0) for n in (0, 1)
    ]
    world.carry_out(world.decide(*running), running)
    waiting = gang("waits", 2, claim_spec(device_request(8)), queue="team", created=NOW)
    path = tmp_path / "snapshot.json"
    path.write_bytes(dump(world.snapshot(waiting), NOW))
    return path


def call(*words: object) -> tuple[int, str, str]:
    done = invoke(["what-if", *map(str, words)])
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return done.exit_code, done.stdout, done.stderr


def as_json(*words: object) -> dict[str, object]:
    code, out, err = call(*words, "-o", "json")
    assert (code, err) == (0, "")
    found: dict[str, object] = json.loads(out)
    return found


def start(found: dict[str, object], future: str, name: str) -> float | None:
    gangs = {each["gang"]: each["p50Seconds"] for each in found[future]["gangs"]}  # type: ignore[index]
    return gangs.get(name)


@pytest.mark.parametrize("nodes", ["2xhgx-h100", "2xnode-00000"])
def test_added_nodes_let_a_gang_start_now(snapshot: Path, nodes: str):
    found = as_json("--snapshot", snapshot, "--add-nodes", nodes)
    assert start(found, "before", "ml/waits") == pytest.approx(3600, abs=5)
    assert start(found, "after", "ml/waits") == 0
    assert (found["before"]["devices"], found["after"]["devices"]) == (16, 32)  # type: ignore[index]
    code, out, _ = call("--snapshot", snapshot, "--add-nodes", nodes)
    assert code == 0
    assert "ml/waits" in out and "sooner" in out and "A forecast:" in out


def test_a_removed_node_stops_its_gang(snapshot: Path):
    found = as_json("--snapshot", snapshot, "--remove", "node-00001")
    (evicted,) = found["after"]["evicted"]  # type: ignore[index]
    assert evicted["why"] == "node node-00001 is removed"
    _, out, _ = call("--snapshot", snapshot, "--remove", "node-00001")
    assert "Evicted with the change: ml/run-" in out
    assert "cannot run" in out


def test_a_quota_and_a_submitted_job_combine(snapshot: Path, tmp_path: Path):
    job = tmp_path / "job.yaml"
    job.write_text(JOB.replace("fairlead.dev/gang: tune", "fairlead.dev/gang: tune, fairlead.dev/queue: team"))
    found = as_json("--snapshot", snapshot, "--queue", "team.deserved=8", "-f", job)
    assert start(found, "before", "ml/tune") is None
    assert start(found, "after", "ml/tune") is not None
    (queue,) = found["after"]["queues"]  # type: ignore[index]
    assert queue["flavors"][0]["deserved"] == "8"


ANY = """
apiVersion: fairlead.dev/v1alpha1
kind: TenancyPolicy
metadata: {name: mixed}
spec: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAMESPACE}}, models: any}
"""


@pytest.mark.parametrize("where", ["file", "cluster"])
def test_models_are_those_of_the_tenancy_policies(tmp_path: Path, where: str):
    world = World()
    for node, product in (("a", "H100"), ("b", "A100")):
        world.add_node(node, [gpu(minor, product=product) for minor in range(8)])
    job = yaml.safe_load(JOB)

    def first(namespace: str) -> float | None:
        policy = yaml.safe_load(ANY.replace("NAMESPACE", namespace))
        submit = (job, policy) if where == "file" else (job,)
        asked = Question(submit=submit, horizon_s=3600.0)
        read = reading.World(snapshot=world.snapshot(), now=NOW, policies=[policy] if where == "cluster" else [])
        return answer(asked, read).after.starts["ml/tune"].p50_s

    assert first("ml") == 0
    assert first("other") is None, "of another namespace: its devices come from one model, and it never fits"


RAY = """
apiVersion: ray.io/v1
kind: RayCluster
metadata: {name: rollouts, namespace: ml, annotations: {fairlead.dev/members: MEMBERS}}
spec:
  headGroupSpec:
    template:
      spec: {containers: [{name: head, image: ray, resources: {requests: {cpu: "5"}}}]}
  workerGroupSpecs:
  - groupName: gpu
    replicas: 2
    minReplicas: 2
    template:
      spec: {containers: [{name: worker, image: ray, resources: {requests: {cpu: "2"}, limits: {nvidia.com/gpu: 4}}}]}
"""


@pytest.mark.parametrize(("members", "starts"), [("devices", 0), ("all", None)])
def test_a_head_that_waits_with_its_workers_needs_a_place_too(members: str, starts: float | None):
    """Two workers leave 4 of 8 cpu, and the head asks for 5."""
    world = World()
    world.add_node("a", [gpu(minor) for minor in range(8)], allocatable={"cpu": "8"})
    asked = Question(submit=(yaml.safe_load(RAY.replace("MEMBERS", members)),), horizon_s=3600.0)
    found = answer(asked, reading.World(snapshot=world.snapshot(), now=NOW))
    assert found.after.starts["ml/rollouts"].p50_s == starts


def policy_of(**spec: object) -> dict[str, object]:
    return {
        "kind": "TenancyPolicy",
        "metadata": {"name": "whole"},
        "spec": {"namespaceSelector": {}, "members": "all", **spec},
    }


def queue_of(name: str, **spec: object) -> dict[str, object]:
    return {"kind": "Queue", "metadata": {"name": name}, "spec": spec}


@pytest.mark.parametrize(
    ("policies", "queues", "starts"),
    [
        ([policy_of()], [], None),
        ([policy_of(mode="Warn")], [], 0),
        ([policy_of(maxDevicesPerClaim=1)], [], None),
        ([], [queue_of("team", namespaceSelector={}, parent="dept"), queue_of("dept", members="all")], None),
        ([], [queue_of("team", namespaceSelector={}), queue_of("dept", members="all")], 0),
    ],
    ids=["a policy", "one that warns", "with a rule that what-if does not judge", "the queue above", "another queue"],
)
def test_members_without_devices_are_those_of_the_clusters_defaults(
    policies: list[dict[str, object]], queues: list[dict[str, object]], starts: float | None
):
    world = World()
    world.add_node("a", [gpu(minor) for minor in range(8)], allocatable={"cpu": "8"})
    ray = yaml.safe_load(RAY)
    del ray["metadata"]["annotations"]
    read = reading.World(snapshot=world.snapshot(), now=NOW, policies=policies, queues=queues)
    assert answer(Question(submit=(ray,), horizon_s=3600.0), read).after.starts["ml/rollouts"].p50_s == starts


HIGH = """
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 100
"""


def job_of_class(tmp_path: Path, more: str = "") -> Path:
    job = tmp_path / "job.yaml"
    job.write_text(JOB.replace("restartPolicy: Never", "restartPolicy: Never\n      priorityClassName: high") + more)
    return job


def test_a_priority_class_in_the_file_counts(snapshot: Path, tmp_path: Path):
    """Both need both nodes: the one of higher priority goes first, though the other waits longer."""
    job = job_of_class(tmp_path, HIGH)
    job.write_text(job.read_text().replace("gang: tune", "gang: tune, fairlead.dev/queue: team"))
    found = as_json("--snapshot", snapshot, "-f", job)
    tune, waits = (start(found, "after", name) for name in ("ml/tune", "ml/waits"))
    assert tune is not None
    assert waits is None or tune < waits
    job.write_text(job.read_text().replace("value: 100", "value: -1"))
    found = as_json("--snapshot", snapshot, "-f", job)
    tune, waits = (start(found, "after", name) for name in ("ml/tune", "ml/waits"))
    assert waits is not None
    assert tune is None or tune > waits


def test_a_priority_class_that_is_not_known_is_refused(snapshot: Path, tmp_path: Path):
    code, out, err = call("--snapshot", snapshot, "-f", job_of_class(tmp_path))
    assert (code, out) == (1, "")
    assert "PriorityClass high is not known: a snapshot has none; add its manifest to the file" in err


def pod_priority(spec: dict[str, object], *classes: dict[str, object]) -> tuple[int, bool]:
    return read([], cluster=classes, unread="").of("Pod ml/a", spec)


def test_priorities_are_those_that_the_apiserver_gives():
    high = {"metadata": {"name": "high"}, "value": 100, "preemptionPolicy": "Never"}
    usual = {"metadata": {"name": "usual"}, "value": 7, "globalDefault": True}
    assert pod_priority({"priorityClassName": "high"}, high, usual) == (100, False)
    assert pod_priority({"priorityClassName": "high", "preemptionPolicy": "PreemptLowerPriority"}, high) == (100, True)
    assert pod_priority({}, high, usual) == (7, True)
    assert pod_priority({}, high) == (0, True)
    assert pod_priority({"priority": 3}, usual) == (3, True)
    assert pod_priority({"priorityClassName": "system-node-critical"})[0] == 2_000_001_000
    with pytest.raises(ChangeError, match="the cluster has none of that name; it has usual"):
        pod_priority({"priorityClassName": "high"}, usual)


def test_samples_add_a_p90(snapshot: Path):
    found = as_json("--snapshot", snapshot, "--add-nodes", "1xhgx-h100", "--samples", "5")
    (gang_,) = (each for each in found["before"]["gangs"] if each["gang"] == "ml/waits")  # type: ignore[index]
    assert gang_["p90Seconds"] >= gang_["p50Seconds"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "nothing is changed: name nodes"),
        (("--remove", "nodule"), "node nodule: there is none of that name"),
        (("--add-nodes", "hgx-h100"), "--add-nodes hgx-h100: write a number"),
        (("--add-nodes", "0xhgx-h100"), "--add-nodes 0xhgx-h100: write a number"),
        (("--add-nodes", "4xnothing"), "has no node nothing, and there is no such profile"),
        (("--queue", "team"), "--queue team: write QUEUE.FIELD=VALUE"),
        (("--queue", "none.deserved=1"), "no queue is called none; there are: team"),
        (("--queue", "team.deserved=much"), "'much' is no number"),
        (("--queue", "team.deserved=-1"), "it is negative"),
        (("--queue", "team.a100.deserved=1"), "has no quota of flavor 'a100'; it has h100"),
        (("--remove", "node-00000", "--horizon", "0s"), "--horizon 0s: nothing starts in no time"),
        (("--remove", "node-00000", "--horizon", "soon"), "--horizon: 'soon' is no duration"),
        (("-f", "/nowhere.yaml"), "-f /nowhere.yaml: No such file or directory"),
    ],
)
def test_what_cannot_be_done_is_said(snapshot: Path, words: tuple[str, ...], text: str):
    code, out, err = call("--snapshot", snapshot, *words)
    assert code == 1
    assert text in err
    assert out == ""


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("metadata: {name: tune, namespace: ml}", "metadata: [tune]", "Job: metadata: \"['tune']\" is no object"),
        ("restartPolicy: Never", "restartPolicy: [Never]", "its pods cannot be read: Expected `str`, got `array` - at `$.spec.restartPolicy`"),
        (JOB, "kind: List\nitems: [1]", "job.yaml: items[0]: holds something that is no Kubernetes object"),
        (JOB, "kind: List\nitems: [{kind: Job, metadata: x}]", "items[0]: Job: metadata: 'x' is no object"),
        ("kind: Job", "kind: {a: b}", "holds something that is no Kubernetes object"),
    ],
)  # fmt: skip
def test_a_manifest_of_wrong_types_is_said(snapshot: Path, tmp_path: Path, old: str, new: str, text: str):
    (tmp_path / "job.yaml").write_text(JOB.replace(old, new))
    code, out, err = call("--snapshot", snapshot, "-f", tmp_path / "job.yaml")
    assert (code, out) == (1, "")
    assert text in err


def test_a_file_and_a_cluster_are_not_asked_together(snapshot: Path):
    code, _, err = call("--snapshot", snapshot, "--context", "prod", "--remove", "node-00000")
    assert code == 1
    assert "leave out either" in err


@pytest.mark.parametrize(
    ("data", "text"),
    [(b"", "no snapshot"), (b"{}", "no snapshot"), (b'{"format": "fairlead-snapshot", "version": 99}', "version: 99")],
)
def test_a_file_that_is_no_snapshot_is_refused(tmp_path: Path, data: bytes, text: str):
    path = tmp_path / "no.json"
    path.write_bytes(data)
    code, _, err = call("--snapshot", path, "--remove", "a")
    assert code == 1
    assert text in err


def test_a_snapshot_without_slices_is_refused(tmp_path: Path):
    world = h100_world(1)
    path = tmp_path / "empty.json"
    bare = replace(world.snapshot())
    for name in list(bare.inventory.slice_names()):
        bare.inventory.drop_slice(name)
    path.write_bytes(dump(bare, NOW))
    code, _, err = call("--snapshot", path, "--remove", "node-00000")
    assert code == 1
    assert "has no ResourceSlices" in err
