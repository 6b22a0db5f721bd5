"""Imports of what a cluster has: every kind in a version that it serves, with lists alone; and what is said where that fails."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml

from fairlead.cli.imports import command
from fairlead.cli.imports.model import System
from fairlead.kube import resources
from fairlead.kube.client import Client
from fairlead.kube.resources import Resource
from fairlead.sandbox.apiserver.server import ApiServer
from tests.cli.imports.support import SAMPLES, sample
from tests.support.commands import invoke

PLURALS = {kind: plural for groups in command.GROUPS.values() for _, kinds in groups for kind, plural in kinds}


def definition(group: str, kind: str, versions: list[str]) -> dict[str, Any]:
    """A CRD that takes any fields, the first version stored."""
    plural = PLURALS[kind]
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced" if kind == "LocalQueue" else "Cluster",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "versions": [
                {"name": version, "served": True, "storage": index == 0, "schema": schema}
                for index, version in enumerate(versions)
            ],
        },
    }


def unpacked(text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for each in yaml.safe_load_all(text):
        items = each.get("items")
        implied = {"apiVersion": each["apiVersion"], "kind": each["kind"].removesuffix("List")}
        found += [each] if items is None else [{**implied, **item} for item in items]
    return found


async def write(client: Client, system: System) -> None:
    if system == "yunikorn":
        await client.create(resources.raw(resources.NAMESPACES), {"metadata": {"name": "yunikorn"}})
        maps: Resource[Any] = Resource(
            group="", version="v1", plural="configmaps", kind="ConfigMap", namespaced=True, type=dict
        )
        for name, key in (("yunikorn-configs", "queues.yaml"), ("yunikorn-defaults", "queues.yaml")):
            body = {"metadata": {"name": name, "namespace": "yunikorn"}, "data": {key: sample(system)}}
            await client.create(maps, body, namespace="yunikorn")
        return
    values = unpacked(sample(system))
    kinds: dict[tuple[str, str], list[str]] = {}
    for each in values:
        group, _, version = each["apiVersion"].partition("/")
        known = kinds.setdefault((group, each["kind"]), [])
        known += [version] if version not in known else []
    for (group, kind), versions in kinds.items():
        await client.create(resources.CRDS, definition(group, kind, versions))
    for namespace in sorted({each["metadata"]["namespace"] for each in values if "namespace" in each["metadata"]}):
        await client.create(resources.raw(resources.NAMESPACES), {"metadata": {"name": namespace}})
    for each in values:
        group, _, version = each["apiVersion"].partition("/")
        kind, namespace = each["kind"], each["metadata"].get("namespace")
        resource: Resource[Any] = Resource(
            group=group, version=version, plural=PLURALS[kind], kind=kind, namespaced=namespace is not None, type=dict
        )
        await client.create(resource, each, namespace=namespace) if namespace else await client.create(resource, each)


@pytest.mark.parametrize("system", ["kueue", "volcano", "yunikorn", "runai"])
async def test_a_cluster_is_imported_as_its_files_are(system: System, tmp_path: Path) -> None:
    async with ApiServer(workdir=tmp_path) as server:
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(server.kubeconfig())
        async with Client.connect(kubeconfig) as client:
            await write(client, system)
        arguments = ["import", "--from", system, "--kubeconfig", str(kubeconfig)]
        found = await asyncio.to_thread(invoke, arguments)
    from_files = invoke(["import", "--from", system, str(SAMPLES / f"{system}.yaml")])
    assert found.exit_code == 0, found.output
    assert [each for each in yaml.safe_load_all(found.stdout) if each] == [
        each for each in yaml.safe_load_all(from_files.stdout) if each
    ]


@pytest.mark.parametrize(("system", "said"), [
    ("kueue", "this cluster serves nothing of kueue.x-k8s.io: name another cluster with --kubeconfig, or files"),
    ("yunikorn", "this cluster has no ConfigMap yunikorn-configs: name another cluster with --kubeconfig, or a queues.yaml"),
    ("runai", "this cluster serves nothing of scheduling.run.ai and run.ai: name another cluster with --kubeconfig, or files"),
])  # fmt: skip
async def test_a_cluster_without_the_system_says_so(system: System, said: str, tmp_path: Path) -> None:
    async with ApiServer(workdir=tmp_path) as server:
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(server.kubeconfig())
        found = await asyncio.to_thread(invoke, ["import", "--from", system, "--kubeconfig", str(kubeconfig)])
    assert (found.exit_code, found.stdout) == (2, "")
    assert said in found.stderr


def test_no_cluster_at_all(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text("apiVersion: v1\nkind: Config\n")
    found = invoke(["import", "--from", "yunikorn", "--kubeconfig", str(path)])
    assert (found.exit_code, found.stdout) == (2, "")
    assert "no cluster to ask" in found.stderr
