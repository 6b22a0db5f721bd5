"""A stock kubectl drives the apiserver. Skipped where there is none."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from fairlead.sandbox.apiserver.server import ApiServer

KUBECTL = shutil.which("kubectl")
pytestmark = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")

MANIFEST = """
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, labels: {app: web}}
data: {mode: fast, size: small}
---
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  containers:
  - {name: main, image: example/web, ports: [{containerPort: 80}], env: [{name: A, value: b}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: many}
spec:
  replicas: 2
  selector: {matchLabels: {app: many}}
  template:
    metadata: {labels: {app: many}}
    spec: {containers: [{name: main, image: example/many}]}
"""
CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Gadget, plural: gadgets, singular: gadget, shortNames: [gd]}
  versions:
  - name: v1
    served: true
    storage: true
    additionalPrinterColumns: [{name: Size, type: integer, jsonPath: .spec.size}]
    schema:
      openAPIV3Schema:
        type: object
        description: A thing that does something.
        properties: {spec: {type: object, properties: {size: {type: integer, minimum: 1}}}}
"""


class Kubectl:
    """kubectl with a kubeconfig and caches of its own."""

    def __init__(self, server: ApiServer, directory: Path) -> None:
        self._server = server
        self._directory = directory

    async def __call__(self, *words: str, stdin: str = "", user: str = "admin", code: int = 0) -> str:
        config = self._directory / f"{user}.yaml"
        config.write_text(self._server.kubeconfig(user))
        assert KUBECTL is not None
        process = await asyncio.create_subprocess_exec(
            KUBECTL,
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={"KUBECONFIG": str(config), "HOME": str(self._directory), "PATH": "/usr/bin:/bin"},
        )
        output, _ = await process.communicate(stdin.encode())
        assert process.returncode == code, output.decode()
        return output.decode()


@pytest.fixture
async def kubectl(tmp_path):
    async with ApiServer(workdir=tmp_path / "server") as server:
        (tmp_path / "kubectl").mkdir()
        yield Kubectl(server, tmp_path / "kubectl")


async def test_apply_creates_changes_and_leaves_alone(kubectl):
    assert await kubectl("apply", "-f", "-", stdin=MANIFEST) == (
        "configmap/settings created\npod/web created\ndeployment.apps/many created\n"
    )
    changed = MANIFEST.replace("mode: fast, ", "").replace("replicas: 2", "replicas: 3")
    assert await kubectl("apply", "-f", "-", stdin=changed) == (
        "configmap/settings configured\npod/web unchanged\ndeployment.apps/many configured\n"
    )
    found = json.loads(await kubectl("get", "cm", "settings", "-o", "json"))
    assert found["data"] == {"size": "small"}


async def test_server_side_apply_conflicts_forces_and_takes_over_from_client_side(kubectl):
    await kubectl("apply", "-f", "-", stdin=MANIFEST)
    output = await kubectl("apply", "--server-side", "-f", "-", stdin=MANIFEST)
    assert "configmap/settings serverside-applied" in output
    assert "Warning" not in output
    other = MANIFEST.replace("mode: fast", "mode: slow")
    output = await kubectl("apply", "--server-side", "--field-manager=other", "-f", "-", stdin=other, code=1)
    assert 'conflict with "kubectl": .data.mode' in output
    await kubectl("apply", "--server-side", "--field-manager=other", "--force-conflicts", "-f", "-", stdin=other)
    assert await kubectl("get", "cm", "settings", "-o", "jsonpath={.data.mode}") == "slow"


async def test_what_kubectl_prints_it_gets_in_every_output(kubectl):
    await kubectl("apply", "-f", "-", stdin=MANIFEST)
    table = await kubectl("get", "pods,deployments")
    assert "pod/web" in table
    assert "0/1" in table
    assert "0/2" in table
    assert "NOMINATED NODE" in await kubectl("get", "pods", "-o", "wide")
    assert (await kubectl("get", "pods", "-o", "name")).strip() == "pod/web"
    assert "kind: Pod" in await kubectl("get", "pod", "web", "-o", "yaml")
    assert (
        await kubectl("get", "pod", "web", "-o", "custom-columns=N:.metadata.name", "--no-headers")
    ).strip() == "web"
    assert await kubectl("get", "pods", "-l", "app!=web") == "No resources found in default namespace.\n"
    assert "web" in await kubectl("get", "pods", "-A", "--field-selector", "status.phase=Pending", "--show-labels")


async def test_describe_wait_patch_label_scale_and_delete(kubectl):
    await kubectl("apply", "-f", "-", stdin=MANIFEST)
    assert "example/web" in await kubectl("describe", "pod", "web")
    assert "condition met" in await kubectl("wait", "--for=jsonpath={.status.phase}=Pending", "pod/web", "--timeout=5s")
    assert "timed out" in await kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=1s", code=1)
    await kubectl("patch", "cm", "settings", "-p", '{"data":{"more":"1"}}')
    await kubectl("patch", "cm", "settings", "--type=json", "-p", '[{"op":"remove","path":"/data/size"}]')
    await kubectl("label", "cm", "settings", "tier=gold")
    assert (
        await kubectl("get", "cm", "-l", "tier=gold", "-o", "jsonpath={.items[0].data}") == '{"mode":"fast","more":"1"}'
    )
    assert "scaled" in await kubectl("scale", "deployment", "many", "--replicas=5")
    assert await kubectl("get", "deployment", "many", "-o", "jsonpath={.spec.replicas}") == "5"
    assert (await kubectl("delete", "pod", "web", "--wait=true")).startswith(
        'pod "web" deleted'
    )  # 1.34 adds from where
    assert "not found" in await kubectl("get", "pod", "web", code=1)


async def test_explain_and_validation_know_the_fields(kubectl):
    assert "containers" in await kubectl("explain", "pod.spec")
    assert "deviceClassName" in await kubectl("explain", "resourceclaim.spec.devices.requests.exactly")
    output = await kubectl("apply", "-f", "-", stdin=MANIFEST.replace("replicas: 2", "replicass: 2"), code=1)
    assert 'unknown field "spec.replicass"' in output


async def test_can_i_asks_the_server(kubectl):
    assert await kubectl("auth", "can-i", "create", "pods") == "yes\n"
    assert await kubectl("auth", "can-i", "create", "pods", user="guest", code=1) == "no\n"
    await kubectl("create", "clusterrolebinding", "guests", "--clusterrole=edit", "--user=guest")
    assert await kubectl("auth", "can-i", "create", "pods", user="guest") == "yes\n"
    assert "resourceclaims.resource.k8s.io" not in await kubectl("auth", "can-i", "--list", "--as=nobody")
    assert "guest" in await kubectl("auth", "whoami", user="guest")


async def test_commands_that_write_protobuf_work(kubectl):
    for words in (
        ("create", "namespace", "team"),
        ("create", "serviceaccount", "runner", "-n", "team"),
        ("create", "deployment", "d", "--image=x", "--replicas=0"),
        ("create", "job", "j", "--image=x", "--", "sleep", "3"),
        ("create", "quota", "q", "--hard=pods=1"),
        ("create", "role", "r", "--verb=get", "--resource=pods"),
        ("create", "pdb", "p", "--selector=a=b", "--min-available=50%"),
        ("create", "priorityclass", "high", "--value=10"),
    ):
        assert "created" in await kubectl(*words)
    assert await kubectl("get", "deployment", "d", "-o", "jsonpath={.spec.replicas}") == "0"


async def test_custom_resources_are_like_built_in_ones(kubectl):
    await kubectl("apply", "-f", "-", stdin=CRD)
    await kubectl("wait", "--for=condition=Established", "crd/gadgets.example.com", "--timeout=5s")
    gadget = "apiVersion: example.com/v1\nkind: Gadget\nmetadata: {name: g}\nspec: {size: 3}\n"
    assert "created" in await kubectl("apply", "-f", "-", stdin=gadget)
    assert (await kubectl("get", "gd", "--no-headers")).split() == ["g", "3"]
    assert "should be greater than or equal to 1" in await kubectl(
        "apply", "-f", "-", stdin=gadget.replace("size: 3", "size: 0"), code=1
    )
    assert "A thing that does something." in await kubectl("explain", "gadget")
    await kubectl("delete", "crd", "gadgets.example.com")
    assert "NotFound" in await kubectl("get", "gadgets", code=1)
