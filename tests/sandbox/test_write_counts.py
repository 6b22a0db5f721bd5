"""What a pod costs a stock cluster, counted as a real apiserver counts it: eight writes, as measured on 1.36.2."""

from collections import Counter

from fairlead.api import names
from fairlead.kube.client import Client
from fairlead.kube.resources import PODS, VALIDATING_POLICY_BINDINGS
from fairlead.sandbox.apiserver.assembly import put
from fairlead.sandbox.apiserver.state import Completed
from fairlead.sandbox.cluster import Cluster
from fairlead.sandbox.controllers.manager import ManagerOptions
from fairlead.sandbox.objects import node_name_of
from tests.support.engine.objects import gpu
from tests.support.sandbox import View, cluster, pod, template, until

PATIENT = ManagerOptions(node_grace_s=1e6)
READS = {"get", "list", "watch"}


def add_node(made: Cluster) -> None:
    """A node with one GPU and no kubelet: pods are bound to it, and nothing more becomes of them."""
    state = made.server.state
    room = {"cpu": "8", "memory": "64Gi", "pods": "10"}
    status = {"capacity": room, "allocatable": room, "conditions": [{"type": "Ready", "status": "True"}]}
    put(state, "", "v1", "nodes", {"metadata": {"name": "n"}, "status": status})
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": names.DRIVER, "nodeName": "n", "pool": pool, "devices": [gpu(0)]}
    put(state, "resource.k8s.io", "v1", "resourceslices", {"metadata": {"name": "n-gpus"}, "spec": spec})


def count(made: Cluster) -> Counter[str]:
    """Writes from now on about pods and claims, by verb, resource and writer."""
    seen: Counter[str] = Counter()

    def note(request: Completed) -> None:
        if request.verb not in READS and request.resource in {"pods", "resourceclaims", "events"}:
            where = request.resource + (f"/{request.subresource}" if request.subresource else "")
            seen[f"{request.verb} {where} {request.user.name.rpartition(':')[2]} {request.code}"] += 1

    made.server.state.on_completed = note
    return seen


async def bound(client: Client, name: str) -> bool:
    return bool(node_name_of(await View(client).pod(name)))


async def test_a_pod_with_a_template_costs_eight_writes() -> None:
    async with cluster(run_programs=False, manager=PATIENT) as made, made.client() as client:
        await client.delete(VALIDATING_POLICY_BINDINGS, "fairlead-allocation-fence")
        add_node(made)
        await made.apply([template("one")])
        seen = count(made)
        await client.create(PODS, pod("p", claim="one"))
        await until(lambda: seen["create events kube-scheduler 201"] == 1)
        assert seen == {
            "create pods admin 201": 1,
            "create resourceclaims resource-claim-controller 201": 1,
            "apply pods/status resource-claim-controller 200": 1,
            "update resourceclaims kube-scheduler 200": 1,
            "update resourceclaims/status kube-scheduler 200": 1,
            "patch pods/status kube-scheduler 200": 1,
            "create pods/binding kube-scheduler 201": 1,
            "create events kube-scheduler 201": 1,
        }
        assert "nominatedNodeName" not in (await View(client).pod("p"))["status"]
