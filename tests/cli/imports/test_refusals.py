"""What cannot be imported: every fault names file, document, object, field, value and the next step, and nothing is printed."""

import pytest

from fairlead.cli.imports.model import RefusedError, System
from tests.cli.imports.support import read
from tests.support.commands import invoke

KUEUE = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: {kind}\nmetadata: {{name: {name}}}\nspec: {spec}\n"
FLAVOR = KUEUE.format(kind="ResourceFlavor", name="h100", spec="{}")
QUOTA = "resourceGroups: [{coveredResources: [nvidia.com/gpu], flavors: [{name: FLAVOR, resources: [{name: nvidia.com/gpu, AMOUNTS}]}]}]"


def kueue(kind: str, name: str, spec: str) -> str:
    return KUEUE.format(kind=kind, name=name, spec=spec)


def cluster_queue(amounts: str = "nominalQuota: 8", *, flavor: str = "h100", more: str = "") -> str:
    return kueue("ClusterQueue", "team", f"{{{more}{QUOTA.replace('FLAVOR', flavor).replace('AMOUNTS', amounts)}}}")


def volcano(
    name: str, spec: str = "{}", api_version: str = "scheduling.volcano.sh/v1beta1", kind: str = "Queue"
) -> str:
    return f"apiVersion: {api_version}\nkind: {kind}\nmetadata: {{name: {name}}}\nspec: {spec}\n"


def kai(name: str, spec: str = "{}") -> str:
    return volcano(name, spec, "scheduling.run.ai/v2")


def partitions(queues: str, more: str = "") -> str:
    return f"partitions: [{{name: default, {more}queues: {queues}}}]"


CASES: list[tuple[System, tuple[str, ...], str]] = [
    ("kueue", (kueue("Cohort", "a", "{parentName: b}"), kueue("Cohort", "b", "{parentName: c}"), kueue("Cohort", "c", "{parentName: a}")),
     "in.yaml, document 1: Cohort a: spec.parentName: the parents form a cycle (a → b → c → a): remove the parent of one of them"),
    ("runai", (kai("a", "{parentQueue: b}"), kai("b", "{parentQueue: a}")),
     "in.yaml, document 1: Queue a: spec.parentQueue: the parents form a cycle (a → b → a): remove the parent of one of them"),
    ("volcano", (volcano("a"), volcano("a")), "in.yaml, document 2: Queue a: metadata.name: is also in in.yaml, document 1: remove one of the two"),
    ("yunikorn", (partitions("[{name: a}, {name: A}]"),),
     "in.yaml: queue root.a: partitions[0].queues[1].name: 'a' is also at in.yaml, with the same parent: rename one"),
    ("volcano", (volcano("a", kind="Quue"),),
     "in.yaml: Quue a: kind: 'Quue' is no kind of Volcano that is known; known are HyperNode, Job, PodGroup, Queue: correct it, or remove the object"),
    ("volcano", (volcano("a", api_version="scheduling.volcano.sh/v9"),),
     "in.yaml: Queue a: apiVersion: 'v9' is no version of scheduling.volcano.sh that is read; read are v1beta1: convert the object (kubectl get prints a version that the cluster serves)"),
    ("kueue", (cluster_queue("nominalQuota: eight"), FLAVOR),
     "in.yaml, document 1: ClusterQueue team: spec.resourceGroups[0].flavors[0].resources[0].nominalQuota: 'eight' is no quantity: write a number with an optional suffix, such as 8 or '500m'"),
    ("kueue", (cluster_queue("nominalQuota: -8"), FLAVOR),
     "in.yaml, document 1: ClusterQueue team: spec.resourceGroups[0].flavors[0].resources[0].nominalQuota: -8 is negative: write 0 or more"),
    ("volcano", (volcano("a", "{capability: {nvidia.com/gpu: true}}"),),
     "in.yaml: Queue a: spec.capability[nvidia.com/gpu]: True is no quantity: write a number with an optional suffix, such as 8 or '500m'"),
    ("runai", (kai("a", "{resources: {gpu: {quota: .inf, limit: -2}}}"),),
     "in.yaml: Queue a: spec.resources.gpu.limit: -2 is negative: write 0 or more, or -1 for no bound"),
    ("yunikorn", (partitions("[{name: a, resources: {max: {nvidia.com/gpu: '1.5'}}}]"),),
     "in.yaml: queue root.a: partitions[0].queues[0].resources.max[nvidia.com/gpu]: '1.5' is no quantity: write digits with an optional suffix, such as 8 or 64Gi"),
    ("kueue", (cluster_queue(),),
     "in.yaml: ClusterQueue team: spec.resourceGroups[0].flavors[0].name: there is no ResourceFlavor 'h100': add it to the files, or name one that exists"),
    ("kueue", (kueue("LocalQueue", "lq, namespace: ml", "{clusterQueue: tem}"), cluster_queue(), FLAVOR),
     "in.yaml, document 1: LocalQueue ml/lq: spec.clusterQueue: there is no ClusterQueue 'tem': add it to the files, or remove the LocalQueue"),
    ("kueue", (cluster_queue("nominalQuota: 8, borrowingLimit: 2"), FLAVOR),
     "in.yaml, document 1: ClusterQueue team: spec.resourceGroups: gpu: borrowingLimit and lendingLimit need a cohort: remove them, or write cohortName"),
    ("volcano", (volcano("a", "{parent: nobody}"),), "in.yaml: Queue a: spec.parent: there is no Queue 'nobody': add it to the files, or remove the field"),
    ("volcano", (volcano("a", "{deserved: {nvidia.com/gpu: 8}, capability: {nvidia.com/gpu: 4}}"),),
     "in.yaml: Queue a: spec: of gpu it may use 4 at most, less than the 8 that are guaranteed: raise the limit or lower what is guaranteed"),
    ("volcano", (volcano("a", "{priority: 100000000}"),),
     "in.yaml: Queue a: cannot be the Queue a: spec.priority: input should be less than or equal to 1000000, not 100000000; change it there, or leave it out"),
    ("runai", (kai("a", "{parentQueue: nobody}"),), "in.yaml: Queue a: spec.parentQueue: there is no Queue 'nobody': add it to the files, or remove the field"),
    ("runai", (volcano("p", "{department: d}", "run.ai/v2", "Project"),),
     "in.yaml: Project p: spec.department: there is no Department 'd': add it to the files, or remove the field"),
    ("runai", (kai("a", "{reclaimMinRuntime: soon}"),),
     "in.yaml: Queue a: spec.reclaimMinRuntime: 'soon' is no duration: write a number with a unit, such as 90s or 1h30m"),
    ("yunikorn", (partitions("[{name: a}]", "placementrules: [{name: fixed, value: root.b}], "),),
     "in.yaml: queues.yaml: partitions[0].placementrules[0].value: there is no queue 'root.b': write it, or name one that exists"),
    ("yunikorn", (partitions("[{name: 'a b'}]"),),
     "in.yaml: queue root.a b: partitions[0].queues[0].name: 'a b' is no name of a queue: use letters, digits and _:#/@-, at most 64"),
    ("kueue", (volcano("a"),),
     "the input: holds nothing of Kueue: name files with ClusterQueue, Cohort, LocalQueue, ResourceFlavor, Topology, WorkloadPriorityClass, or another system with --from"),
    ("yunikorn", ("{}",), "the input: holds no partitions: name a queues.yaml, the ConfigMap yunikorn-configs, or another system with --from"),
    ("kueue", ("- 1",), "in.yaml: 1 entries is no object: write apiVersion, kind, metadata and spec"),
    ("kueue", ("a: {b: 1}",), "in.yaml: apiVersion: is required: write it"),
    ("kueue", ("kind: [",), "in.yaml: while parsing a flow node"),
    ("volcano", (volcano("a", "{weight: 1, weight: 2}"),), "in.yaml: line 4: the key 'weight' stands twice in one mapping: remove one; correct the file"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("system", "texts", "said"), CASES, ids=lambda value: value[:70] if isinstance(value, str) else None
)
def test_a_fault_says_where_what_and_what_to_do(system: System, texts: tuple[str, ...], said: str) -> None:
    with pytest.raises(RefusedError) as refused:
        read(system, "---\n".join(texts))
    assert any(str(fault).startswith(said) for fault in refused.value.faults), str(refused.value)


def test_every_fault_is_told_at_once_and_nothing_is_printed(tmp_path) -> None:
    path = tmp_path / "queues.yaml"
    path.write_text("---\n".join([volcano("a", "{parent: x}"), volcano("b", "{weight: heavy}"), volcano("c", "[]")]))
    done = invoke(["import", "--from", "volcano", str(path)])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        f"{path}, document 1: Queue a: spec.parent: there is no Queue 'x': add it to the files, or remove the field",
        f"{path}, document 2: Queue b: spec.weight: 'heavy' is no whole number: write one, without quotes",
        f"{path}, document 3: Queue c: spec: 0 entries is no mapping: write fields with values",
        "nothing is imported: 3 faults",
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["no-such-file.yaml"], "no-such-file.yaml: cannot be read: No such file or directory; name a file, a directory or - for standard input"),
        (["EMPTY"], "holds no .yaml, .yml or .json file: name files"),
        (["BINARY"], "is no UTF-8 text"),
    ],
)  # fmt: skip
def test_files_that_cannot_be_read(arguments: list[str], said: str, tmp_path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00a")
    places = {"EMPTY": str(tmp_path / "empty"), "BINARY": str(tmp_path / "binary.yaml")}
    done = invoke(["import", "--from", "kueue", *(places.get(each, each) for each in arguments)])
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr


def test_files_and_a_cluster_are_not_read_together(tmp_path) -> None:
    (tmp_path / "k").write_text("")
    done = invoke(["import", "--from", "kueue", "a.yaml", "--kubeconfig", str(tmp_path / "k")])
    assert done.exit_code == 2
    assert "cannot be read together" in done.stderr
