"""Sample configurations of the four systems, written after their documentation: what becomes of them, line by line.

A golden file is what the command prints: look at the difference, then write it anew with RECORD=1.
"""

import json
import os
from pathlib import Path

import pytest
import yaml

from fairlead.cli.imports.model import RefusedError, System
from tests.cli.imports.support import GOLDEN, SAMPLES, SYSTEMS, check, lost, objects, quota, read, sample, spec, tree
from tests.support.commands import invoke


def run(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
    done = invoke(["import", *arguments], input=stdin)
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_sample_becomes_what_was_reviewed(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """And that is valid, the engine takes it, JSON has the same, and every note is on standard error and in the YAML."""
    monkeypatch.chdir(SAMPLES)
    code, out, err = run("--from", system, f"{system}.yaml")
    assert code == 0
    for suffix, text in (("yaml", out), ("notes", err)):
        path = GOLDEN / f"{system}.{suffix}"
        if os.environ.get("RECORD"):
            path.write_text(text)
        assert text == path.read_text()
    imported = read(system, sample(system))
    check(imported, system)
    assert imported.queues and imported.flavors and imported.lost
    code, as_json, _ = run("--from", system, f"{system}.yaml", "-o", "json")
    found = json.loads(as_json)
    assert (code, found["items"]) == (0, [each for each in yaml.safe_load_all(out) if each])
    levels = [note["level"] for note in found["notes"]]
    assert levels.count("noEqual") == err.count("no equal: ") > 0
    written = {(each["kind"], each["metadata"]["name"]) for each in found["items"]}
    assert {(note["about"]["kind"], note["about"]["name"]) for note in found["notes"] if note["about"]} <= written
    _, out, err = run("--from", system, "-", stdin=sample(system))
    comments = " ".join(line.removeprefix("#").strip() for line in out.splitlines() if line.startswith("#"))
    assert all(note.text in " ".join(err.split()) and note.text in comments for note in imported.notes)


def test_strict_is_for_programs(tmp_path: Path) -> None:
    path = tmp_path / "queue.yaml"
    plain = "apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {name: a}\nspec: {capability: {nvidia.com/gpu: 8}}\n"
    path.write_text(plain)
    assert run("--from", "volcano", "--strict", str(path))[0] == 0
    path.write_text(plain.replace("spec: {", "spec: {affinity: {x: 1}, "))
    assert run("--from", "volcano", str(path))[0] == 0
    assert run("--from", "volcano", "--strict", str(path))[0] == 1


def test_a_directory_is_read_in_the_order_of_its_files_and_one_document_in_each_form_says_the_same(
    tmp_path: Path,
) -> None:
    """In however many files the objects lie, and in what order: the objects and their order are the same."""
    whole = [each for each in yaml.safe_load_all(sample("kueue")) if each]
    for index, each in enumerate(reversed(whole)):
        (tmp_path / f"{index:02}.json").write_text(json.dumps(each))
    (tmp_path / "README.md").write_text("not read")
    _, apart, _ = run("--from", "kueue", str(tmp_path))
    _, together, _ = run("--from", "kueue", "-", stdin=json.dumps({"kind": "List", "apiVersion": "v1", "items": whole}))
    as_it_is = [each for each in yaml.safe_load_all(run("--from", "kueue", str(SAMPLES / "kueue.yaml"))[1]) if each]
    assert [each for each in yaml.safe_load_all(apart) if each] == as_it_is
    assert [each for each in yaml.safe_load_all(together) if each] == as_it_is


def test_kueue_a_root_borrows_from_nobody_and_what_is_not_listed_is_forbidden() -> None:
    imported = read("kueue", sample("kueue"))
    queues = tree(imported).queues
    assert queues["company"].bounds("h100") == (32,)
    assert queues["cloud"].bounds("gpu") == (16,)
    assert queues["cloud"].bounds("h100") == (0,)
    assert queues["language"].bounds("h100") == (24,)
    assert queues["research"].deserved("h100") == 8 + 16 + 8, "a cohort's own quota comes on top of its members'"


def test_kueue_devices_belong_to_one_flavor() -> None:
    """On-demand and spot nodes are one flavor here, and it leaves the H100s and A100s to theirs: none is charged twice."""
    from fractions import Fraction

    from fairlead.cel import DeviceView, Outcome, compile_selector
    from fairlead.kube import nulls
    from fairlead.kube.resource import Device

    flavors = {
        name: each["spec"] for (kind, name), each in objects(read("kueue", sample("kueue"))).items() if kind == "Flavor"
    }
    for product, flavor in (
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA L40S", "gpu"),
    ):
        attributes = {"type": {"string": "gpu"}, "productName": {"string": product}}
        view = DeviceView.of("gpu.fairlead.dev", nulls.convert({"name": "gpu-0", "attributes": attributes}, Device))
        taken = [
            name
            for name, each in flavors.items()
            if "deviceSelector" in each
            and compile_selector(each["deviceSelector"]).verdict(view).outcome is Outcome.MATCH
        ]
        assert taken == [flavor]
    assert Fraction(quota(read("kueue", sample("kueue")), "cloud", "gpu")["deserved"]) == 4 + 12


def test_volcano_a_guarantee_is_not_lent() -> None:
    queues = tree(read("volcano", sample("volcano"))).queues
    assert (queues["speech"].deserved("gpu"), queues["speech"].kept("gpu")) == (32, 8)
    assert (queues["serving"].deserved("gpu"), queues["serving"].kept("gpu")) == (4, 4)


def test_yunikorn_is_read_from_its_config_map_too() -> None:
    data = {"queues.yaml": sample("yunikorn"), "service.schedulingInterval": "1s"}
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "yunikorn-configs", "namespace": "y"},
        "data": data,
    }
    assert objects(read("yunikorn", json.dumps(config_map))) == objects(read("yunikorn", sample("yunikorn")))


def test_yunikorn_a_fixed_rule_that_comes_first_makes_the_queue_of_pods_that_name_none() -> None:
    text = """
    partitions:
    - name: default
      placementrules: [{name: provided}, {name: fixed, value: root.all}]
      queues: [{name: all, resources: {max: {nvidia.com/gpu: 3}}}]
    """
    assert spec(read("yunikorn", text), "all")["namespaceSelector"] == {}


def test_the_words_of_a_manifest_of_kueue_find_their_queue_by_the_namespace() -> None:
    """Pods keep the label of their LocalQueue; where that would lead elsewhere, a line says so."""
    imported = read("kueue", sample("kueue"))
    assert not any("LocalQueue" in each and "metadata.name" in each for each in lost(imported))
    second = "\n---\napiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue\nmetadata: {name: side, namespace: nlp}\nspec: {clusterQueue: vision}\n"
    both = read("kueue", sample("kueue") + second)
    assert [each for each in lost(both) if "LocalQueue nlp/" in each] == [
        "LocalQueue nlp/default metadata.name",
        "LocalQueue nlp/side metadata.name",
    ]
    assert ("TenancyPolicy", "language") not in objects(both), "its node labels would bind the other queue's pods"
    named = read("kueue", sample("kueue") + second.replace("side", "cloud"))
    assert any("would be in the Queue cloud" in note.text for note in named.notes)


def test_kueue_without_devices_says_that_nothing_is_bounded() -> None:
    quota = (
        "resourceGroups: [{coveredResources: [cpu], flavors: [{name: any, resources: [{name: cpu, nominalQuota: 8}]}]}]"
    )
    text = f"""
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {{name: batch}}
spec: {{{quota}}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {{name: any}}
"""
    imported = read("kueue", text)
    assert [each.spec.measure for each in imported.flavors] == ["Resource"]
    assert "ClusterQueue batch spec.resourceGroups" in lost(imported)


def kueue_resources(*flavors: str, **labels: str) -> str:
    made = [
        f"apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata: {{name: {name}}}\nspec: {{nodeLabels: {{pool: {value}}}}}"
        for name, value in labels.items()
    ]
    made.append("apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata: {name: any}")
    group = f"resourceGroups: [{{coveredResources: [cpu], flavors: [{', '.join(flavors)}]}}]"
    return "\n---\n".join(
        [*made, f"apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueue\nmetadata: {{name: batch}}\nspec: {{{group}}}"]
    )


def test_kueue_quotas_of_what_pods_request_are_flavors_by_the_labels_of_their_nodes() -> None:
    """Of on-demand and spot nodes cpu has two Flavors, where their GPUs are one."""
    of = "{{name: {0}, resources: [{1}]}}".format
    text = kueue_resources(
        of("spot", '{name: cpu, nominalQuota: "1500m"}, {name: memory, nominalQuota: 64Gi, borrowingLimit: 1Gi}'),
        of("steady", "{name: cpu, nominalQuota: 8}, {name: example.com/hca, nominalQuota: 4}, {name: hugepages-2Mi, nominalQuota: 4Gi}"),
        spot="spot",
        steady="steady",
    )  # fmt: skip
    imported = read("kueue", text.replace("{name: batch}\nspec: {", "{name: batch}\nspec: {cohortName: all, "))
    found = objects(imported)
    assert found["Flavor", "spot-cpu"]["spec"] == {
        "measure": "Resource", "resourceName": "cpu", "nodeSelector": {"pool": "spot"}
    }  # fmt: skip
    assert quota(imported, "batch", "spot-cpu") == {"flavor": "spot-cpu", "deserved": "1500m"}
    assert quota(imported, "batch", "spot-memory") == {
        "flavor": "spot-memory", "deserved": "64Gi", "borrowingLimit": "1Gi"
    }  # fmt: skip
    assert found["Flavor", "steady-example.com-hca"]["spec"]["resourceName"] == "example.com/hca"
    (other,) = [note.text for note in imported.notes if "hugepages-2Mi" in note.text]
    assert "bound it with a ResourceQuota" in other


def test_kueue_flavors_of_one_resource_that_may_be_of_the_same_nodes_are_noted() -> None:
    of = "{{name: {0}, resources: [{{name: cpu, nominalQuota: 8}}]}}".format
    imported = read("kueue", kueue_resources(of("spot"), of("any"), spot="spot"))
    texts = [note.text for note in imported.notes if "a pod there is charged in each" in note.text]
    assert texts == [f"a node may have its labels and those of {other}: a pod there is charged in each; give them different values of one label" for other in ("cpu", "spot-cpu")]  # fmt: skip
    merged = read("kueue", kueue_resources(of("one"), of("two"), one="x", two="x"))
    assert quota(merged, "batch", "x-cpu") == {"flavor": "x-cpu", "deserved": 16, "limit": 16}
    assert any("one, two mean the same cpu, as their node labels are the same" in note.text for note in merged.notes)


def test_an_amount_of_a_resource_beyond_all_clusters_is_refused() -> None:
    of = "{name: any, resources: [{name: memory, nominalQuota: 1e30}]}"
    with pytest.raises(RefusedError, match="1e30' is more than 9223372036854775807"):
        read("kueue", kueue_resources(of))


def kai_queue(name: str, gpu: str, parent: str = "") -> str:
    above = f"parentQueue: {parent}, " if parent else ""
    return f"apiVersion: scheduling.run.ai/v2\nkind: Queue\nmetadata: {{name: {name}}}\nspec: {{{above}resources: {{gpu: {gpu}}}}}\n"


def test_kai_a_parent_without_bound_deserves_what_the_queues_below_it_do() -> None:
    """As KAI's own default configuration has it; with 0 there, the queues below would keep nothing from others."""
    endless = "{quota: -1, limit: -1, overQuotaWeight: 1}"
    texts = [
        kai_queue("top", endless),
        kai_queue("department", endless, "top"),
        kai_queue("bounded", "{quota: -1, limit: 4}", "top"),
        kai_queue("team", "{quota: 8, limit: 12}", "department"),
        kai_queue("other", "{quota: 6, limit: 12}", "bounded"),
        kai_queue("leaf", endless, "top"),
    ]
    imported = read("runai", "---\n".join(texts))
    names = ("top", "department", "bounded", "team", "other", "leaf")
    found = {name: quota(imported, name, "gpu")["deserved"] for name in names}
    assert found == {"top": 12, "department": 8, "bounded": 4, "team": 8, "other": 6, "leaf": 0}
    said = {note.source.name: note.text for note in imported.notes if note.path == "spec.resources.gpu.quota"}
    assert said["department"].startswith("-1: 8 is written, what the queues below it deserve")
    assert said["leaf"].startswith("-1: 0 is written, so it has what is left over")
