"""A stock kubectl works on the sandbox: what a user does all day, done through the real client.

Skips where there is no kubectl. Each test has a server of its own; no control loops run, so what they would do (finish
pods, empty namespaces) is not asked for.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from fairlead.sandbox.apiserver.server import ApiServer

KUBECTL = shutil.which("kubectl")
pytestmark = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")

POD = """
apiVersion: v1
kind: Pod
metadata: {name: train, namespace: ml, labels: {app: train}}
spec:
  schedulingGates: [{name: example.com/queue}]
  containers:
  - name: main
    image: busybox:1
    command: [sleep, "10"]
    resources: {limits: {cpu: "1", memory: 1Gi}, claims: [{name: gpu}]}
  resourceClaims: [{name: gpu, resourceClaimTemplateName: one-gpu}]
"""
NODE = """
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {node-role.kubernetes.io/worker: ""}}
status:
  capacity: {cpu: "8", memory: 32Gi, pods: "110"}
  conditions: [{type: Ready, status: "True", reason: KubeletReady}]
  addresses: [{type: InternalIP, address: 10.0.0.1}]
  nodeInfo: {kubeletVersion: v1.36.2, osImage: Debian, kernelVersion: "6.1", containerRuntimeVersion: containerd://2}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: n1, namespace: kube-node-lease}
spec: {holderIdentity: n1, leaseDurationSeconds: 40}
"""
CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: queues.example.com}
spec:
  group: example.com
  scope: Cluster
  names: {kind: Queue, plural: queues, shortNames: [q], categories: [fair]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns:
    - {name: Weight, type: integer, jsonPath: .spec.weight}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            description: What the queue deserves.
            properties: {weight: {type: integer, minimum: 0, description: Its share of the surplus.}}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
"""


@dataclass
class Kubectl:
    """Runs kubectl against one server. A non-zero exit is an error unless `fails`."""

    config: Path
    directory: Path

    async def __call__(self, *arguments: str, stdin: str = "", fails: bool = False) -> str:
        assert KUBECTL is not None
        process = await asyncio.create_subprocess_exec(
            KUBECTL,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, "KUBECONFIG": str(self.config), "HOME": str(self.directory)},
        )
        output, _ = await asyncio.wait_for(process.communicate(stdin.encode()), 60)
        text = output.decode()
        assert (process.returncode != 0) == fails, f"kubectl {' '.join(arguments)}: {text}"
        return text

    async def apply(self, *documents: str, server_side: bool = False) -> str:
        extra = ["--server-side"] if server_side else []
        return await self("apply", *extra, "-f", "-", stdin="\n---\n".join(documents))

    async def json(self, *arguments: str) -> Any:
        return json.loads(await self(*arguments, "-o", "json"))


@pytest.fixture
async def kubectl(tmp_path: Path) -> AsyncIterator[Kubectl]:
    async with ApiServer(workdir=tmp_path) as server:
        config = tmp_path / "kubeconfig"
        config.write_text(server.kubeconfig())
        run = Kubectl(config, tmp_path)
        await run("create", "namespace", "ml")
        yield run


async def test_apply_creates_then_changes_then_leaves_alone(kubectl: Kubectl) -> None:
    assert "pod/train created" in await kubectl.apply(POD)
    assert "pod/train unchanged" in await kubectl.apply(POD)
    assert "pod/train configured" in await kubectl.apply(POD.replace("busybox:1", "busybox:2"))
    assert await kubectl("get", "pod", "train", "-n", "ml", "-o", "jsonpath={.spec.containers[0].image}") == "busybox:2"
    assert "-    image: busybox:2" in await kubectl("diff", "-f", "-", stdin=POD, fails=True)


@pytest.mark.slow
async def test_get_prints_pods_in_every_form(kubectl: Kubectl) -> None:
    await kubectl.apply(POD)
    rows = (await kubectl("get", "pods", "-n", "ml")).splitlines()
    assert rows[0].split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert rows[1].split()[:4] == ["train", "0/1", "SchedulingGated", "0"]
    wide = (await kubectl("get", "pods", "-n", "ml", "-o", "wide")).splitlines()
    assert wide[0].endswith("NOMINATED NODE   READINESS GATES")
    assert await kubectl("get", "pods", "-n", "ml", "-o", "name") == "pod/train\n"
    shown = yaml.safe_load(await kubectl("get", "pod", "train", "-n", "ml", "-o", "yaml"))
    assert shown["status"]["conditions"][0]["reason"] == "SchedulingGated"
    assert (await kubectl.json("get", "pods", "-n", "ml", "-l", "app=train"))["items"][0]["kind"] == "Pod"
    columns = "custom-columns=NAME:.metadata.name,QOS:.status.qosClass"
    assert (await kubectl("get", "pods", "-n", "ml", "-o", columns)).split() == ["NAME", "QOS", "train", "Guaranteed"]
    assert "train" in await kubectl("get", "pods", "-A", "--field-selector", "status.phase=Pending")
    assert "pod/train" in await kubectl("get", "all", "-n", "ml")


@pytest.mark.slow
async def test_nodes_are_described_cordoned_and_tainted(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", "-", stdin=NODE)
    row = (await kubectl("get", "nodes", "-o", "wide")).splitlines()[1].split()
    assert row[:3] == ["n1", "Ready", "worker"]
    assert row[4:6] == ["v1.36.2", "10.0.0.1"]
    await kubectl("cordon", "n1")
    await kubectl("taint", "node", "n1", "a=b:NoSchedule")
    assert "Ready,SchedulingDisabled" in await kubectl("get", "nodes")
    described = await kubectl("describe", "node", "n1")
    assert "HolderIdentity:  n1" in described
    assert "a=b:NoSchedule" in described


@pytest.mark.slow
async def test_describe_shows_a_pods_events(kubectl: Kubectl) -> None:
    await kubectl.apply(POD)
    uid = await kubectl("get", "pod", "train", "-n", "ml", "-o", "jsonpath={.metadata.uid}")
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "e", "namespace": "ml"},
        "regarding": {"kind": "Pod", "name": "train", "namespace": "ml", "apiVersion": "v1", "uid": uid},
        "reason": "Waiting",
        "action": "Admit",
        "type": "Warning",
        "note": "waits for 4 GPUs",
        "eventTime": "2026-11-20T10:00:00.000000Z",
        "reportingController": "example.com/controller",
        "reportingInstance": "controller-0",
    }
    await kubectl("create", "-f", "-", stdin=json.dumps(event))
    assert "waits for 4 GPUs" in await kubectl("describe", "pod", "train", "-n", "ml")
    assert "pod/train" in await kubectl("get", "events", "-n", "ml")
    assert "waits for 4 GPUs" in await kubectl("events", "-n", "ml", "--for", "pod/train")


async def test_three_kinds_of_patch(kubectl: Kubectl) -> None:
    await kubectl.apply(POD)
    pod = ("patch", "pod", "train", "-n", "ml")
    await kubectl(*pod, "--type=merge", "-p", '{"metadata":{"labels":{"a":"1"}}}')
    await kubectl(*pod, "-p", '{"spec":{"containers":[{"name":"main","image":"busybox:3"}]}}')
    await kubectl(*pod, "--type=json", "-p", '[{"op":"remove","path":"/spec/schedulingGates"}]')
    shown = await kubectl.json("get", "pod", "train", "-n", "ml")
    assert shown["metadata"]["labels"] == {"app": "train", "a": "1"}
    assert shown["spec"]["containers"][0]["image"] == "busybox:3"
    assert shown["spec"]["containers"][0]["command"] == ["sleep", "10"]
    assert "schedulingGates" not in shown["spec"]
    answer = await kubectl(*pod, "-p", '{"spec":{"nodeName":"n1"}}', fails=True)
    assert "pod updates may not change fields other than" in answer


async def test_commands_that_write_protobuf_work(kubectl: Kubectl) -> None:
    for words in (
        ("create", "serviceaccount", "runner", "-n", "ml"),
        ("create", "deployment", "d", "--image=x", "--replicas=0"),
        ("create", "job", "j", "--image=x", "--", "sleep", "3"),
        ("create", "quota", "q", "--hard=pods=1"),
        ("create", "pdb", "p", "--selector=a=b", "--min-available=50%"),
        ("create", "priorityclass", "high", "--value=10"),
    ):
        assert "created" in await kubectl(*words)
    assert "scaled" in await kubectl("scale", "deployment", "d", "--replicas=5")
    assert await kubectl("get", "deployment", "d", "-o", "jsonpath={.spec.replicas}") == "5"


@pytest.mark.slow
async def test_explain_reads_the_published_schemas(kubectl: Kubectl) -> None:
    text = await kubectl("explain", "pod.spec.schedulingGates")
    assert "FIELD: schedulingGates <[]PodSchedulingGate>" in text
    text = await kubectl("explain", "resourceclaims.spec.devices.requests.exactly")
    assert "GROUP:      resource.k8s.io" in text
    assert "deviceClassName\t<string> -required-" in text
    assert "backoffLimit\t<integer>" in await kubectl("explain", "job", "--recursive")


async def test_a_custom_kind_is_as_good_as_a_built_in_one(kubectl: Kubectl) -> None:
    await kubectl.apply(CRD)
    await kubectl("wait", "crd/queues.example.com", "--for=condition=Established", "--timeout=20s")
    queue = "apiVersion: example.com/v1\nkind: Queue\nmetadata: {name: a}\nspec: {weight: 3}\n"
    assert "queue.example.com/a created" in await kubectl.apply(queue)
    assert "queue.example.com/a configured" in await kubectl.apply(queue.replace("3", "4"))
    assert (await kubectl("get", "q")).split()[:5] == ["NAME", "WEIGHT", "AGE", "a", "4"]
    assert "What the queue deserves." in await kubectl("explain", "queue.spec")
    answer = await kubectl("apply", "-f", "-", stdin=queue.replace("3", "-1"), fails=True)
    assert "spec.weight in body should be greater than or equal to 0" in answer
    await kubectl("delete", "crd", "queues.example.com")
    assert "could not find the requested resource" in await kubectl("get", "queues", fails=True)
