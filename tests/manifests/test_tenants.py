"""Tenants: the chart's value, the kustomize component and the command make the same objects of one description."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from fairlead.api.tenant import Tenant
from fairlead.api.tenant_objects import objects, shared_objects
from tests.support import quick_yaml
from tests.support.commands import invoke

ROOT = Path(__file__).parents[2]
COMPONENTS = ROOT / "manifests" / "components"
Objects = list[dict[str, Any]]
FULL: dict[str, Any] = {
    "name": "ml",
    "namespaces": ["ml", "ml-dev"],
    "namespaceLabels": {"cost-center": "4711"},
    "queues": [
        {
            "name": "ml",
            "parent": "research",
            "namespaces": ["ml"],
            "flavors": [{"flavor": "h100", "deserved": 8, "limit": "16", "weight": 2.5}, {"flavor": "a100"}],
        },
        {"name": "shared", "create": False, "namespaces": ["ml-dev"]},
    ],
    "admins": ["group:oidc:ml-admins", "user:ann@example.com"],
    "members": ["group:ml", "serviceaccount:ci/runner"],
    "quota": {
        "gpus": {"gpu.fairlead.dev": 16, "mig.gpu.fairlead.dev": 0},
        "claims": 1000000,
        "pods": 0,
        "cpu": 256,
        "memory": "2Ti",
        "defaultCpu": 2,
    },
    "network": {
        "egress": [
            {"cidr": "10.20.0.0/16", "ports": [443, 9000]},
            {"namespace": "openshift-dns", "ports": [5353], "protocol": "UDP"},
            {"cidr": "fd00::/8"},
        ],
        "ingress": [{"namespace": "gateway", "ports": [8000]}],
    },
    "podSecurity": "baseline",
    "priorityClasses": "PerTenant",
}
DESCRIPTIONS: dict[str, dict[str, Any]] = {
    "least": {"name": "vision"},
    "full": FULL,
    "open": {"name": "open", "network": {"isolate": False}, "priorityClasses": "None", "podSecurity": "privileged"},
    "memory": {"name": "memory", "quota": {"memory": 1073741824, "gpus": {}}, "queues": [{"name": "memory-queue"}]},
}


def keyed(found: Objects) -> dict[tuple[str, str, str], dict[str, Any]]:
    """By kind, namespace and name."""
    by = {(each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each for each in found}
    assert len(by) == len(found)
    return by


def of_tenants(template: Any, *tenants: dict[str, Any]) -> Objects:
    """What the chart renders for these alone, without what only Helm reads."""
    without = keyed(template())
    more = [each for key, each in keyed(template(values={"tenants": list(tenants)})).items() if key not in without]
    for each in more:
        if each["kind"] == "Namespace":
            assert each["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    return more


@pytest.mark.parametrize("name", DESCRIPTIONS)
def test_the_chart_makes_the_objects_of_the_command(template, name, tmp_path):
    raw = DESCRIPTIONS[name]
    file = tmp_path / "tenant.yaml"
    file.write_text(yaml.safe_dump(raw))
    printed = invoke(["tenant", "create", "-f", str(file), "--dry-run"])
    assert printed.exit_code == 0, printed.output
    said = keyed(quick_yaml.load_all(printed.stdout))
    rendered = keyed(of_tenants(template, raw))
    shared = {key for key in said if key[0] == "ClusterRole" or (key[2].startswith("fairlead-") and not key[1])}
    assert {key: each for key, each in rendered.items() if key not in shared} == {
        key: each for key, each in said.items() if key not in shared
    }
    classes = {key for key in shared if key[0] == "PriorityClass"}
    assert classes == {key for key in rendered if key in shared}
    for key in classes:
        assert {**rendered[key], "metadata": {}} == {**said[key], "metadata": {}}


def test_the_roles_are_those_of_the_source(template):
    rendered = keyed(template())
    for each in shared_objects(Tenant.read({"name": "a"})):
        if each["kind"] == "ClusterRole":
            assert rendered["ClusterRole", "", each["metadata"]["name"]]["rules"] == each["rules"]


def test_several_tenants_share_their_priority_classes(template):
    found = of_tenants(template, {"name": "a"}, {"name": "b"}, {"name": "c", "priorityClasses": "PerTenant"})
    classes = sorted(each["metadata"]["name"] for each in found if each["kind"] == "PriorityClass")
    assert classes == ["c-high", "c-low", "c-normal", "fairlead-high", "fairlead-low", "fairlead-normal"]


@pytest.mark.parametrize(
    ("tenants", "said"),
    [
        ([{"name": "a"}, {"name": "a"}], 'tenant "a" stands there twice'),
        ([{"name": "a", "namespaces": ["x"]}, {"name": "b", "namespaces": ["x"]}], 'namespace "x" stands there twice'),
        ([{"name": "a", "queues": [{"name": "b"}]}, {"name": "b"}], 'queue "b" stands there twice (of tenants a and b)'),
        ([{"name": "a", "queues": [{"name": "x"}, {"name": "y"}]}], "with several queues each says which namespaces"),
        ([{"name": "a", "queues": [{"name": "x", "namespaces": ["z"]}]}], '"z" is none of its namespaces'),
        ([{"name": "a", "namespaces": ["a", "b"], "queues": [{"name": "x", "namespaces": ["a"]}]}], '"b" is bound to none'),
        ([{"name": "a", "queues": [{"name": "x", "create": False, "parent": "p"}]}], "is not created here"),
        ([{"name": "kube-system"}], "'not' failed"),
        ([{"name": "a", "queus": []}], "'queus' not allowed"),
        ([{"name": "a", "admins": ["bob"]}], "does not match pattern"),
        ([{"name": "a", "network": {"egress": [{"ports": [1]}]}}], "oneOf"),
        ([{"name": "a", "podSecurity": "strict"}], "value must be one of"),
    ],
)  # fmt: skip
def test_tenants_that_cannot_be_are_refused(refusal, tenants, said):
    assert said in refusal({"tenants": tenants})


def test_tenants_need_the_roles_that_their_bindings_name(refusal):
    said = refusal({"tenants": [{"name": "a"}], "userRoles": {"create": False}})
    assert "set userRoles.create=true" in said


def test_the_example_of_the_values_is_a_description():
    lines = (ROOT / "manifests" / "chart" / "values.yaml").read_text().splitlines()
    start = lines.index("#   - name: ml")
    commented = [line.removeprefix("#   ") for line in lines[start:] if line.startswith("#   ")]
    (raw,) = quick_yaml.load("\n".join(commented))
    assert objects(Tenant.read(raw))


def kustomized(kubectl: str, folder: Path, body: dict[str, Any], *components: str) -> Objects:
    for each in components:
        shutil.copytree(COMPONENTS / each, folder / each)
    (folder / "kustomization.yaml").write_text(yaml.safe_dump({**body, "components": list(components)}))
    built = subprocess.run([kubectl, "kustomize", folder], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return quick_yaml.load_all(built.stdout)


def parameters(**literals: str) -> dict[str, Any]:
    options = {"disableNameSuffixHash": True, "annotations": {"config.kubernetes.io/local-config": "true"}}
    each = {"name": "fairlead-tenant", "literals": [f"{key}={value}" for key, value in literals.items()]}
    return {"configMapGenerator": [{**each, "options": options}]}


def test_the_component_makes_the_objects_of_the_source(kubectl, tmp_path):
    given = {"name": "vision", "flavor": "a100", "deserved": "4", "gpus": "12", "cpu": "64", "memory": "512Gi"}
    built = kustomized(kubectl, tmp_path, parameters(**given, admins="vision-admins", members="everyone"), "tenant")
    raw = {
        "name": "vision",
        "queues": [{"name": "vision", "flavors": [{"flavor": "a100", "deserved": "4"}]}],
        "admins": ["group:vision-admins"],
        "members": ["group:everyone"],
        "quota": {"gpus": {"gpu.fairlead.dev": 12}, "cpu": "64", "memory": "512Gi"},
    }
    assert keyed(built) == keyed(objects(Tenant.read(raw)))


def test_the_components_of_priority_classes_and_of_a_tenant_go_together(kubectl, tmp_path):
    text = (COMPONENTS / "tenant" / "kustomization.yaml").read_text()
    literals = text[text.index("literals: [") :].partition("[")[2].partition("]")[0]
    given = dict(each.split("=") for each in literals.split(", "))
    built = kustomized(kubectl, tmp_path, parameters(**given), "tenant", "priority-classes")
    names = sorted(each["metadata"]["name"] for each in built if each["kind"] == "PriorityClass")
    assert names == ["fairlead-high", "fairlead-low", "fairlead-normal"]
    assert not [each for each in built if "team" in json.dumps(each)], "every placeholder has its parameter"
