"""manifests/base agrees with the names in the code, and grants no more than it says."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from fairlead.api import names
from tests.support import quick_yaml

BASE = Path(__file__).parents[2] / "manifests" / "base"
LISTED = [name for name in quick_yaml.load((BASE / "kustomization.yaml").read_text())["resources"] if name != "../crds"]
DOCUMENTS: list[dict[str, Any]] = [doc for name in LISTED for doc in quick_yaml.load_all((BASE / name).read_text())]


def find(kind: str, name: str) -> dict[str, Any]:
    (found,) = (doc for doc in DOCUMENTS if doc["kind"] == kind and doc["metadata"]["name"] == name)
    return found


def test_every_file_is_listed() -> None:
    assert sorted(LISTED) == sorted(path.name for path in BASE.glob("*.yaml") if path.name != "kustomization.yaml")


def test_the_classes_are_those_of_the_code() -> None:
    for name, type_ in ((names.GPU_CLASS, "gpu"), (names.MIG_CLASS, "mig")):
        spec = find("DeviceClass", name)["spec"]
        assert f"'{names.DRIVER}'" in spec["selectors"][0]["cel"]["expression"]
        assert f".type == '{type_}'" in spec["selectors"][0]["cel"]["expression"]
        assert "extendedResourceName" not in spec


@pytest.mark.parametrize("account", [names.DRIVER_ACCOUNT, names.WEBHOOK_ACCOUNT, names.CONTROLLER_ACCOUNT])
def test_each_program_has_an_account_with_its_role(account: str) -> None:
    assert find("ServiceAccount", account)["metadata"]["namespace"] == names.NAMESPACE
    binding = find("ClusterRoleBinding", account)
    assert binding["roleRef"]["name"] == account
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account, "namespace": names.NAMESPACE}]


def test_no_role_has_a_wildcard() -> None:
    for doc in DOCUMENTS:
        for rule in doc.get("rules", ()) if doc["kind"] in {"Role", "ClusterRole"} else ():
            assert "*" not in [*rule["verbs"], *rule["resources"], *rule["apiGroups"]], doc["metadata"]["name"]


def test_only_the_controller_may_allocate_and_only_the_webhook_may_read_its_secret() -> None:
    holders = {
        doc["metadata"]["name"]
        for doc in DOCUMENTS
        if doc["kind"] == "ClusterRole" and any("resourceclaims/binding" in rule["resources"] for rule in doc["rules"])
    }
    assert holders == {names.CONTROLLER_ACCOUNT}
    # A role of tenants' admins is bound in their namespaces only.
    bound = {doc["roleRef"]["name"] for doc in DOCUMENTS if doc["kind"] == "ClusterRoleBinding"}
    for doc in DOCUMENTS:
        if doc["kind"] == "ClusterRole" and doc["metadata"]["name"] in bound:
            assert not any("secrets" in rule["resources"] for rule in doc["rules"])


def test_of_claims_the_driver_writes_the_status_of_its_own_devices() -> None:
    claims = {
        resource: (rule["verbs"], rule.get("resourceNames"))
        for rule in find("ClusterRole", names.DRIVER_ACCOUNT)["rules"]
        for resource in rule["resources"]
        if resource.startswith("resourceclaims")
    }
    assert claims == {
        "resourceclaims": (["get", "list", "watch"], None),
        "resourceclaims/status": (["patch"], None),
        "resourceclaims/driver": (["associated-node:patch"], [names.DRIVER]),
    }


def test_every_policy_is_bound_and_fails_closed() -> None:
    policies = {doc["metadata"]["name"] for doc in DOCUMENTS if doc["kind"] == "ValidatingAdmissionPolicy"}
    bound = {doc["spec"]["policyName"] for doc in DOCUMENTS if doc["kind"] == "ValidatingAdmissionPolicyBinding"}
    assert (
        policies
        == bound
        == {
            "fairlead-allocation-fence",
            "fairlead-controller-pods",
            "fairlead-driver-slices",
            "fairlead-gangs",
            "fairlead-holds",
            "fairlead-namespaces",
            "fairlead-operator-queues",
            "fairlead-operator-slices",
            "fairlead-pod-bindings",
            "fairlead-webhook-configurations",
            "fairlead-webhook-secret",
        }
    )
    for name in policies:
        assert find("ValidatingAdmissionPolicy", name)["spec"]["failurePolicy"] == "Fail"
    for name in ("fairlead-driver-slices", "fairlead-allocation-fence"):
        policy = yaml.safe_dump(find("ValidatingAdmissionPolicy", name))
        assert names.DRIVER_USER in policy
        assert names.DRIVER in policy


def test_a_policy_looks_at_what_breaks_one_of_its_rules() -> None:
    found = 0
    for policy in (doc["spec"] for doc in DOCUMENTS if doc["kind"] == "ValidatingAdmissionPolicy"):
        breaks = [
            " ".join(each["expression"].split())
            for each in policy.get("matchConditions", ())
            if each["name"] == "breaks-a-rule"
        ]
        rules = (f"({each['expression'].strip()})" for each in policy["validations"])
        found += len(breaks)
        assert all(each.endswith(f"!({' '.join(' && '.join(rules).split())})") for each in breaks)
    assert found == 2


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kustomize_builds_it() -> None:
    built = subprocess.run(["kubectl", "kustomize", BASE], capture_output=True, text=True, check=True)
    kinds = [doc["kind"] for doc in quick_yaml.load_all(built.stdout)]
    assert kinds.count("CustomResourceDefinition") == 4
    assert len(kinds) == len(DOCUMENTS) + 4


def lost(written: Any, read: Any, path: str = "") -> list[str]:
    """Paths that the official client's models do not know: a real apiserver would drop or refuse them."""
    if isinstance(written, dict):
        here = [f"{path}.{key}" for key in written if key not in read]
        return here + [p for key in written if key in read for p in lost(written[key], read[key], f"{path}.{key}")]
    if isinstance(written, list):
        return [p for i, (a, b) in enumerate(zip(written, read, strict=True)) for p in lost(a, b, f"{path}[{i}]")]
    return [] if written == read else [path]


@pytest.mark.slow
def test_every_field_is_known_to_the_official_models() -> None:
    from kubernetes import client

    crds = [quick_yaml.load(path.read_text()) for path in (BASE.parent / "crds").glob("fairlead.dev_*.yaml")]
    assert len(crds) == 4
    for document in (*DOCUMENTS, *crds):
        assert document["apiVersion"].rpartition("/")[2] == "v1"
        model = getattr(client, f"V1{document['kind']}")
        read = json.loads(model.from_dict(document).to_json())
        assert lost(document, read) == [], f"{document['kind']} {document['metadata']['name']}"
