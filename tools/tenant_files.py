"""What `render` writes from the source of tenants' objects (lib/fairlead/api/tenant_objects.py).

For the chart: what is fixed for every tenant, as a file that its template reads, and the schema of a description in values.schema.json. For
kustomize: two components. That of a tenant takes its parameters from a ConfigMap `fairlead-tenant` of the kustomization that names it:
each value of EXAMPLE occurs once there, and wherever it stands in the objects a replacement puts the parameter.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from fairlead.api.tenant import Tenant
from fairlead.api.tenant_objects import fixed, objects, shared_objects

CHART_FILE = Path("chart/files/tenant.yaml")
SCHEMA = Path("chart/values.schema.json")
PARAMETERS = {
    "name": "team",
    "flavor": "h100",
    "deserved": "8",
    "gpus": "16",
    "cpu": "128",
    "memory": "1Ti",
    "admins": "team-admins",
    "members": "team-members",
}
"""Keys of the ConfigMap, and what stands in their places in tenant.yaml."""
EXAMPLE = {
    "name": PARAMETERS["name"],
    "queues": [
        {"name": PARAMETERS["name"], "flavors": [{"flavor": PARAMETERS["flavor"], "deserved": PARAMETERS["deserved"]}]}
    ],
    "admins": [f"group:{PARAMETERS['admins']}"],
    "members": [f"group:{PARAMETERS['members']}"],
    "quota": {
        "gpus": {"gpu.fairlead.dev": int(PARAMETERS["gpus"])},
        "cpu": PARAMETERS["cpu"],
        "memory": PARAMETERS["memory"],
    },
}
HEAD = "# Written from lib/fairlead/api/tenant_*.py: change it there, then run `make manifests`.\n"
TENANT = """\
# The baseline of one team (docs/tenants.md). Its parameters are the literals of a ConfigMap that is not applied itself:
#
#   configMapGenerator:
#     - name: fairlead-tenant
#       literals: [name=ml, flavor=h100, deserved=8, gpus=16, cpu=128, memory=1Ti, admins=ml-admins, members=ml]
#       options: {disableNameSuffixHash: true, annotations: {config.kubernetes.io/local-config: "true"}}
#   components: [manifests/components/tenant]
#
# `admins` and `members` are groups. Whatever else differs is a patch. Roles come with Fairlead, priority classes with
# components/priority-classes, which one kustomization of a cluster names.
apiVersion: kustomize.config.k8s.io/v1alpha1
kind: Component
resources: [tenant.yaml]
"""
PRIORITY_CLASSES = """\
# Priority classes that all tenants share (docs/tenants.md).
apiVersion: kustomize.config.k8s.io/v1alpha1
kind: Component
resources: [priorityclasses.yaml]
"""


def chart_files(manifests: Path) -> dict[Path, str]:
    """What the chart's template reads: written before it is rendered."""
    schema = json.loads((manifests / SCHEMA).read_text())
    described = Tenant.model_json_schema(by_alias=True, ref_template="#/definitions/{model}")
    parts = described.pop("$defs")
    schema["properties"]["tenants"] = {"type": "array", "items": {"$ref": "#/definitions/Tenant"}}
    schema["definitions"] = {"Tenant": described, **parts}
    return {
        manifests / CHART_FILE: HEAD + _yaml(fixed()),
        manifests / SCHEMA: json.dumps(schema, indent=2, ensure_ascii=False) + "\n",
    }


def components(manifests: Path) -> dict[Path, str]:
    tenant = Tenant.read(EXAMPLE)
    own = objects(tenant)
    priorities = [each for each in shared_objects(tenant) if each["kind"] == "PriorityClass"]
    folder = manifests / "components"
    return {
        folder / "tenant" / "kustomization.yaml": HEAD + TENANT + _yaml({"replacements": list(_replacements(own))}),
        folder / "tenant" / "tenant.yaml": HEAD + _documents(own),
        folder / "priority-classes" / "kustomization.yaml": HEAD + PRIORITY_CLASSES,
        folder / "priority-classes" / "priorityclasses.yaml": HEAD + _documents(priorities),
    }


def _replacements(found: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    kinds = [each["kind"] for each in found]
    for key, value in PARAMETERS.items():
        targets = []
        for obj in found:
            paths = [path for path, leaf in _leaves(obj) if leaf == value]
            alone = kinds.count(obj["kind"]) == 1
            select = {"kind": obj["kind"]} | ({} if alone else {"name": obj["metadata"]["name"]})
            if paths:
                targets.append({"select": select, "fieldPaths": paths})
        yield {
            "source": {"kind": "ConfigMap", "name": "fairlead-tenant", "fieldPath": f"data.{key}"},
            "targets": targets,
        }


def _leaves(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value below a node, with its path as kustomize writes it."""
    entries = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in entries:
        step = f"[{key}]" if "." in str(key) else str(key)
        yield from _leaves(value, f"{path}.{step}" if path else step)
    if not isinstance(node, dict | list):
        yield path, node


def _documents(found: list[dict[str, Any]]) -> str:
    return "---\n".join(_yaml(each) for each in found)


def _yaml(value: Any) -> str:
    plain = json.loads(json.dumps(value))  # no anchors
    text: str = yaml.safe_dump(plain, sort_keys=False, width=4096, allow_unicode=True)
    return text
