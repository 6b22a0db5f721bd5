"""Tenants by the real helm on a sandbox: listed in an upgrade, the same to the command, and kept when they leave the values."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
import yaml

from fairlead.api import names
from fairlead.kube import errors, resources
from fairlead.sandbox.cluster import Cluster, ClusterOptions
from tests.support.commands import invoke
from tests.support.kubernetes import of_this_run

from .conftest import CHART, run_helm

NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": names.NAMESPACE}}
TENANT: dict[str, Any] = {
    "name": "ml",
    "queues": [{"name": "ml", "flavors": [{"flavor": "h100", "deserved": 8}]}],
    "admins": ["group:ml-admins"],
    "quota": {"gpus": {"gpu.fairlead.dev": 8}, "cpu": 64},
}


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_tenants_come_with_an_upgrade_and_keep_their_namespaces(helm, tmp_path):
    values, file = tmp_path / "values.yaml", tmp_path / "ml.yaml"
    values.write_text(yaml.safe_dump({"tenants": [TENANT]}))
    file.write_text(yaml.safe_dump(TENANT))
    options = ClusterOptions(workdir=tmp_path / "c", nodes=(), run_programs=False, install=False, release=of_this_run())
    async with Cluster(options) as cluster:
        await cluster.apply([NAMESPACE])
        code, said = await run_helm(helm, cluster, "install", "fairlead", str(CHART), "--values", str(values))
        assert (code, "unable to build kubernetes objects" in said) == (1, True), said
        code, said = await run_helm(helm, cluster, "upgrade", "fairlead", str(CHART), "--install")
        assert code == 0, said
        code, said = await run_helm(helm, cluster, "upgrade", "fairlead", str(CHART), "--values", str(values))
        assert code == 0, said
        queue = await cluster.admin.get(resources.QUEUES, "ml")
        assert queue["spec"]["flavors"] == [{"flavor": "h100", "deserved": 8, "weight": 1}]

        words = ["tenant", "create", "-f", str(file), "-o", "json", "--kubeconfig", str(cluster.kubeconfig())]
        done = await asyncio.to_thread(lambda: invoke(words))
        assert done.exit_code == 0, done.output
        assert {each["outcome"] for each in json.loads(done.stdout)} == {"unchanged"}

        code, said = await run_helm(helm, cluster, "upgrade", "fairlead", str(CHART), "--reset-values")
        assert code == 0, said
        with pytest.raises(errors.NotFound):
            await cluster.admin.get(resources.QUEUES, "ml")
        kept = await cluster.admin.get(resources.NAMESPACES, "ml")
        assert kept.metadata.labels[names.TENANT] == "ml"
