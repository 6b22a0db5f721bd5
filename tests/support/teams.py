"""Two teams on a bench of sixteen GPUs, each of which deserves half: one borrows what the other does not use."""

from __future__ import annotations

from fairlead.kube import resources
from fairlead.kube.resources import FLAVORS, NAMESPACES, QUEUES
from tests.controller.conftest import NAMESPACE, Bench

OTHER = "vision"


async def teams(bench: Bench, **lender: object) -> None:
    """Queue `ml` for namespace ml, which borrows; queue `vision` for namespace vision."""
    spec = {"deviceSelector": "device.driver == 'gpu.fairlead.dev'", "measure": "Devices"}
    await bench.client.create(FLAVORS, {"metadata": {"name": "gpu"}, "spec": spec})
    await bench.client.create(NAMESPACES, {"metadata": {"name": OTHER}})
    for team, more in ((NAMESPACE, lender), (OTHER, {})):
        selector = {"matchLabels": {"kubernetes.io/metadata.name": team}}
        body = {"flavors": [{"flavor": "gpu", "deserved": 8}], "namespaceSelector": selector} | more
        await bench.client.create(QUEUES, {"metadata": {"name": team}, "spec": body})
    await bench.template("eight", 8)
    template = await bench.client.get(resources.raw(resources.RESOURCE_CLAIM_TEMPLATES), "eight", NAMESPACE)
    copy = {"metadata": {"name": "eight", "namespace": OTHER}, "spec": template["spec"]}
    await bench.client.create(resources.raw(resources.RESOURCE_CLAIM_TEMPLATES), copy)


def standing(bench: Bench, namespace: str, name: str) -> str:
    pod = bench.pods.get(f"{namespace}/{name}")
    return "" if pod is None else pod.status.phase


async def borrowers(bench: Bench, **more: object) -> None:
    """Pods `one` and `two` of eight GPUs each."""
    for name in ("one", "two"):
        await bench.pod(name, template="eight", **more)  # type: ignore[arg-type]
    await bench.until(lambda: bench.running(["one", "two"]), "both run")
    await bench.until(lambda: bench.status("two").get("phase") == "Running", "and their status is Running")


def evicted(bench: Bench) -> list[str]:
    return [name for name in ("one", "two") if bench.get(name) is None]
