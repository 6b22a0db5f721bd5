"""Reading manifests: what kubectl would apply, in an order that works, or a complaint that names the file."""

import pytest

from fairlead.sandbox import files
from fairlead.sandbox.install import manifests

POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n"


def test_a_file_with_several_documents_and_a_list_gives_every_object(tmp_path):
    (tmp_path / "a.yaml").write_text(
        f"{POD}---\n---\napiVersion: v1\nkind: List\nitems:\n- {{apiVersion: v1, kind: Secret, metadata: {{name: s}}}}\n"
    )
    assert [m["kind"] for m in manifests.load(tmp_path / "a.yaml")] == ["Pod", "Secret"]


def test_a_kustomization_brings_in_its_resources_and_sets_their_namespace(tmp_path):
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "kustomization.yaml").write_text("resources: [../pod.yaml]\nnamespace: there\n")
    (tmp_path / "pod.yaml").write_text(POD.replace("name: p", "name: p, namespace: here"))
    (pod,) = manifests.load(tmp_path / "base")
    assert pod["metadata"]["namespace"] == "there"


def patched(tmp_path, patches):
    (tmp_path / "pod.yaml").write_text(POD)
    (tmp_path / "change.yaml").write_text("- {op: replace, path: /spec, value: {nodeName: n1}}\n")
    (tmp_path / "deep.yaml").write_text("- {op: replace, path: /spec/nodeName, value: n1}\n")
    (tmp_path / "kustomization.yaml").write_text(f"resources: [pod.yaml]\npatches: {patches}\n")
    return manifests.load(tmp_path)


def test_a_patch_deletes_an_object_or_replaces_a_field_of_it(tmp_path):
    delete = "{patch: '{$patch: delete, apiVersion: v1, kind: Pod, metadata: {name: p}}'}"
    assert patched(tmp_path, f"[{delete}]") == []
    replace = "{path: change.yaml, target: {version: v1, kind: Pod, name: p}}"
    assert patched(tmp_path, f"[{replace}]")[0]["spec"] == {"nodeName": "n1"}


@pytest.mark.parametrize(
    ("patch", "complaint"),
    [
        ("{path: deep.yaml, target: {version: v1, kind: Pod, name: p}}", "only `replace` of top-level fields"),
        ("{patch: '{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {}}'}", "only \\$patch: delete"),
        ("{path: change.yaml}", "only patch, or path with target"),
        ("{path: change.yaml, target: {version: v1, kind: Pod, name: q}}", "no resource is called .*'q'"),
    ],
)
def test_a_patch_that_is_not_understood_is_refused(tmp_path, patch, complaint):
    with pytest.raises(manifests.ManifestError, match=complaint):
        patched(tmp_path, f"[{patch}]")


def test_what_we_ship_can_be_read():
    kinds = [manifest["kind"] for manifest in manifests.load(files.find("manifests/base"))]
    assert kinds.count("CustomResourceDefinition") == 4
    assert "ValidatingAdmissionPolicy" in kinds


def test_a_kustomization_that_asks_for_more_is_refused_whole(tmp_path):
    (tmp_path / "kustomization.yaml").write_text("resources: []\nimages: []\n")
    with pytest.raises(manifests.ManifestError, match="images: not understood"):
        manifests.load(tmp_path)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("kind: Pod", "apiVersion is missing"),
        ("apiVersion: v1", "kind is missing"),
        ("- 1", "list is no object"),
        ("apiVersion: v1\nkind: Pod", "metadata.name is missing"),
        ("a: [", "cannot be read as YAML"),
    ],
)
def test_a_broken_manifest_is_named_with_what_it_lacks(tmp_path, text, complaint):
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(manifests.ManifestError, match=complaint) as caught:
        manifests.load(tmp_path / "x.yaml")
    assert "x.yaml" in str(caught.value)


def test_what_others_need_is_applied_first():
    kinds = ["Pod", "ClusterRole", "CustomResourceDefinition", "DeviceClass", "Namespace"]
    found = manifests.in_order([{"kind": kind} for kind in kinds])
    assert [m["kind"] for m in found] == ["Namespace", "CustomResourceDefinition", "ClusterRole", "Pod", "DeviceClass"]


def test_every_example_can_be_read():
    folders = sorted(path for path in files.find("examples").iterdir() if path.is_dir())
    assert len(folders) >= 7
    for folder in folders:
        assert manifests.load(folder)
        assert (folder / "README.md").exists()
