"""helm and kubectl for the tests of the manifests; where they are missing, the tests say how to get them."""

from __future__ import annotations

import asyncio
import datetime as dt
import functools
import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.api import names
from fairlead.sandbox.cluster import Cluster
from fairlead.webhook.certificates import authority
from tests.support import quick_yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "manifests" / "chart"
HELM_3 = "1.34"
"""The release of Kubernetes whose tools have it: lock/tools-1.34.txt."""

Objects = list[dict[str, Any]]
QUEUE = quick_yaml.load(
    "{apiVersion: fairlead.dev/v1alpha1, kind: Queue, metadata: {name: everyone}, spec: {namespaceSelector: {}, flavors: []}}"
)
JOB = quick_yaml.load("""
apiVersion: batch/v1
kind: Job
metadata: {name: train, namespace: default}
spec:
  parallelism: 2
  completions: 2
  template:
    metadata: {annotations: {fairlead.dev/gang: train}}
    spec:
      restartPolicy: Never
      containers:
        - {name: main, image: busybox, command: [sleep, infinity], resources: {limits: {nvidia.com/gpu: "2"}}}
""")
"""A gang of two pods that run until they are ended."""


def issued() -> dict[str, Any]:
    """The Secret that cert-manager would write for the chart's Certificate."""
    hosts = authority.service_hosts(f"{names.NAMESPACE}/fairlead-webhook")
    made = authority.new_material(hosts, dt.datetime.now(dt.UTC))
    data = {"tls.crt": made.server.certificate, "tls.key": made.server.key, "ca.crt": made.bundle}
    metadata = {"name": "fairlead-webhook-certificate", "namespace": names.NAMESPACE}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data}


async def run_helm(helm: str, cluster: Cluster, *words: str) -> tuple[int | None, str]:
    """Helm as the cluster's admin: its exit code, and what it said."""
    command = (helm, *words, "--namespace", names.NAMESPACE, "--kubeconfig", str(cluster.kubeconfig()))
    environment = {**os.environ, "HOME": str(cluster.options.workdir)}
    done = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, env=environment
    )
    out, _ = await done.communicate()
    return done.returncode, out.decode()


def _tool(name: str) -> str:
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is neither beside this Python nor in PATH; run: python tools/fetch.py")
    return found


def tool_of(release: str, name: str) -> str:
    """helm or kubectl of another release of Kubernetes than the usual ones."""
    found = Path(sys.executable).parent.parent / "tools" / release / name
    if not found.exists():
        pytest.skip(f"{name} of Kubernetes {release} is not in {found.parent}; run: python tools/fetch.py")
    return str(found)


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A directory whose path leaves room for unix sockets."""
    with tempfile.TemporaryDirectory(prefix="fl-", dir="/tmp") as path:
        yield Path(path)


@pytest.fixture(scope="session", params=["4", pytest.param("3", marks=pytest.mark.slow)], ids=["helm4", "helm3"])
def helm(request: pytest.FixtureRequest) -> str:
    """Each major version: 4 as lock/tools.txt has it, and in `make slow` 3."""
    major: str = request.param
    found = tool_of(HELM_3, "helm") if major == "3" else _tool("helm")
    version = subprocess.run(
        [found, "version", "--template", "{{.Version}}"], capture_output=True, text=True, check=True
    )
    if not version.stdout.startswith(f"v{major}"):
        pytest.skip(f"helm is {version.stdout}, not version {major}; run: python tools/fetch.py")
    return found


@pytest.fixture(scope="session")
def kubectl() -> str:
    return _tool("kubectl")


@pytest.fixture(scope="session")
def template(helm: str) -> Callable[..., Objects]:
    """`helm template` with values, as objects of one's own; the same values are rendered and read once a process."""

    @functools.cache
    def objects(given: str, hooks: bool, namespace: str) -> bytes:
        done = rendered(helm, given, hooks=hooks, namespace=namespace)
        assert done.returncode == 0, done.stderr
        return pickle.dumps([document for document in quick_yaml.load_all(done.stdout) if document])

    def run(
        *, values: Path | dict[str, Any] | None = None, hooks: bool = False, namespace: str = "fairlead-system"
    ) -> Objects:
        given = values.read_text() if isinstance(values, Path) else json.dumps(values or {})
        found: Objects = pickle.loads(objects(given, hooks, namespace))
        return found

    return run


@pytest.fixture(scope="session")
def refusal(helm: str) -> Callable[..., str]:
    """What `helm template` says when it refuses."""

    def run(values: dict[str, Any], *, namespace: str = "fairlead-system") -> str:
        done = rendered(helm, json.dumps(values), hooks=False, namespace=namespace)
        assert done.returncode != 0
        return done.stderr

    return run


def rendered(helm: str, values: str, *, hooks: bool, namespace: str) -> subprocess.CompletedProcess[str]:
    command = [helm, "template", "fairlead", str(CHART), "--namespace", namespace, "--values", "-"]
    command += [] if hooks else ["--no-hooks"]
    return subprocess.run(command, capture_output=True, text=True, input=values, check=False)
