"""A cluster with something of everything under way: what an upgrade meets."""

from __future__ import annotations

from typing import Any

from fairlead.api import names
from fairlead.kube.resources import FLAVORS, PRIORITY_CLASSES, QUEUES
from fairlead.sandbox.cluster import Cluster
from tests.support.sandbox import FOREVER, View, gang_of, job, pod, template, until

GRACE = {names.CHECKPOINT_GRACE: "6s"}
VICTIMS = ("victim-0", "victim-1")


def evicted_by(gang: dict[str, Any]) -> bool:
    """Whether a leader noted that it evicted the gang: an earlier one in an annotation, which this version passes over."""
    noted = (gang.get("status") or {}).get("lastEviction") or gang["metadata"].get("annotations", {})
    return bool(noted)


async def quotas(made: Cluster, view: View) -> None:
    spec = {"deviceSelector": f"device.driver == '{names.DRIVER}'", "measure": "Devices"}
    await view.client.create(FLAVORS, {"metadata": {"name": "gpu"}, "spec": spec})
    queue = {
        "flavors": [{"flavor": "gpu", "deserved": 8}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}},
    }
    await view.client.create(QUEUES, {"metadata": {"name": "team"}, "spec": queue})
    for name, value in (("batch", 1), ("urgent", 100)):
        await view.client.create(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
    await made.apply([template("two", count=2), template("four", count=4), template("eight", count=8)])


async def begin(made: Cluster, view: View) -> None:
    """`stays` of a Job and `legacy` run, with two GPUs each, and `victim` with twice two, which is marked for eviction for `rush`; `waits`
    waits for all eight.
    """
    stays = pod("stays", claim="two", command=FOREVER, annotations=gang_of("stays"), priorityClassName="urgent")
    legacy = pod("legacy", command=FOREVER, priorityClassName="urgent")
    legacy["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": 2}}
    await made.apply([job("stays", stays, size=1), legacy])
    await view.phase("legacy", "Running", timeout_s=60.0)
    await view.gang("stays", "Running", timeout_s=60.0)
    marks = gang_of("victim", 2) | GRACE
    await made.apply(
        [pod(name, claim="two", command=FOREVER, annotations=marks, priorityClassName="batch") for name in VICTIMS]
    )
    for name in VICTIMS:
        await view.phase(name, "Running", timeout_s=60.0)
    rush = gang_of("rush", 1)
    await made.apply([pod("rush", claim="four", command=FOREVER, annotations=rush, priorityClassName="urgent")])
    await made.apply([pod("waits", claim="eight", annotations=gang_of("waits", 1), priorityClassName="batch")])

    async def marked() -> bool:
        found = [await view.pod(name) for name in VICTIMS]
        return all(names.EVICTION in each["metadata"]["annotations"] for each in found)

    await until(marked, timeout_s=60.0, what="the eviction is under way")
