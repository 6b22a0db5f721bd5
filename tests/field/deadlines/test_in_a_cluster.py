"""Deadlines of Jobs and of Kubeflow's kinds are known to the decision while their pods wait; a pod's, which does not count yet, is not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from fairlead.controller.watch.other_systems import WORKLOADS, OtherSystems, kept_of_workload
from fairlead.engine.plan.decide import decide
from fairlead.engine.snapshot import Snapshot
from fairlead.engine.types.plan import Plan
from fairlead.history.recording.reader import Reader
from fairlead.history.recording.verify import Counts, differences
from fairlead.kube import timestamps
from fairlead.kube.resources import CRDS, PODS, Raw, Resource
from fairlead.kube.store import Change
from fairlead.kube.watching import MODIFIED
from tests.controller.admission.test_jobs_on_the_sandbox import job, status
from tests.controller.conftest import NAMESPACE, Bench, benches


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with benches(tmp_path, count=1) as made:
        await made.template("eight", 8)
        yield made


async def test_a_jobs_deadline_bounds_its_wait_and_a_pods_does_not(bench: Bench):
    spec: dict[str, Any] = {"parallelism": 1, "completions": 1, "completionMode": "Indexed"}
    async with bench.controller():
        holder = await bench.gang("holder", 1, template="eight")
        await bench.until(lambda: bench.running(holder), "the GPUs are in use")
        await job(bench, "bound", 1, command="serve", template="eight", activeDeadlineSeconds=900, **spec)
        await job(bench, "free", 1, command="serve", template="eight", pod={"activeDeadlineSeconds": 900}, **spec)
        await bench.until(lambda: bench.status("bound").get("phase") == "Waiting", "it waits")
        await bench.until(lambda: bench.status("free").get("phase") == "Waiting", "it waits")
        began = (await status(bench, "bound"))["startTime"]
    ends = decided_with(bench)
    assert ends["bound"] == timestamps.parse(began) + 900
    assert ends["free"] is None


def decided_with(bench: Bench) -> dict[str, float | None]:
    """The end of each gang, as the last decision that had it among those that wait was told."""
    ends: dict[str, float | None] = {}

    def seen(snapshot: Snapshot, now: float) -> Plan:
        ends.update({each.name: each.ends_by for each in snapshot.gangs})
        return decide(snapshot, now)

    assert not list(differences(Reader([bench.recording]), Counts(), decide=seen))
    return ends


def definition(workloads: Resource[Raw], version: str) -> dict[str, Any]:
    """Of one of Kubeflow's kinds, with any fields."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    served = {"name": version, "served": True, "storage": True, "schema": schema, "subresources": {"status": {}}}
    kind = {"kind": workloads.kind, "plural": workloads.plural}
    return {
        "metadata": {"name": f"{workloads.plural}.{workloads.group}"},
        "spec": {"group": workloads.group, "scope": "Namespaced", "names": kind, "versions": [served]},
    }


@pytest.mark.parametrize(("kind", "version"), [("PyTorchJob", "v1"), ("MPIJob", "v2beta1")])
async def test_the_deadline_of_kubeflows_kinds_bounds_the_wait_from_when_their_operator_began(
    bench: Bench, kind: str, version: str
):
    workloads: Resource[Raw] = WORKLOADS[kind][0]
    await bench.client.create(CRDS, definition(workloads, version))
    body = {"metadata": {"name": "train"}, "spec": {"runPolicy": {"activeDeadlineSeconds": 600}}}
    made = await bench.client.create(workloads, body, namespace=NAMESPACE)
    begun = {"status": {"startTime": "2026-11-27T10:00:00Z"}}
    await bench.client.patch(workloads, "train", begun, namespace=NAMESPACE, subresource="status")
    owner = {"apiVersion": f"kubeflow.org/{version}", "kind": kind, "name": "train", "controller": True}
    async with bench.controller():
        holder = await bench.gang("holder", 1, template="eight")
        await bench.until(lambda: bench.running(holder), "the GPUs are in use")
        for gang, uid in (("mine", made["metadata"]["uid"]), ("of-another", "of one that was deleted")):
            (pod,) = await bench.gang(gang, 1, template="eight")
            owners = {"metadata": {"ownerReferences": [owner | {"uid": uid}]}}
            await bench.client.patch(PODS, pod, owners, namespace=NAMESPACE)
        await bench.until(lambda: bench.status("mine").get("phase") == "Waiting", "it waits")
        await bench.until(lambda: bench.status("of-another").get("phase") == "Waiting", "it waits")
    ends = decided_with(bench)
    assert ends["mine"] == timestamps.parse("2026-11-27T10:10:00Z")
    assert ends["of-another"] is None


@pytest.mark.parametrize(
    ("limit_s", "began", "end"),
    [
        (600, "1970-01-01T00:01:00Z", 660.0),
        (0, "1970-01-01T00:01:00Z", 60.0),
        (600, None, None),
        (None, "1970-01-01T00:01:00Z", None),
        (-1, "1970-01-01T00:01:00Z", None),
        (True, "1970-01-01T00:01:00Z", None),
        ("600", "1970-01-01T00:01:00Z", None),
        (600, "yesterday", None),
        (10**400, "1970-01-01T00:00:00Z", timestamps.LAST_S),
    ],
)
def test_what_an_operators_object_says_of_its_end(limit_s: Any, began: Any, end: float | None):
    raw = {"spec": {"runPolicy": {"activeDeadlineSeconds": limit_s}}, "status": {"startTime": began}}
    assert kept_of_workload({"metadata": {"name": "t"}, **raw})["end"] == end


@pytest.mark.parametrize("raw", [{}, {"spec": None, "status": None}, {"spec": {"runPolicy": []}, "status": []}])
def test_an_object_without_a_run_policy_has_no_end(raw: dict[str, Any]):
    assert kept_of_workload({"metadata": {"name": "t"}, **raw})["end"] is None


def test_gangs_are_looked_at_when_the_end_of_a_workload_changes_and_only_then(monkeypatch: pytest.MonkeyPatch):
    known, handlers, told = OtherSystems(forecasts=False), list[Callable[[Change[Raw]], None]](), list[str]()
    for informer in known.informers:
        monkeypatch.setattr(informer, "subscribe", handlers.append)
    known.subscribe(lambda namespace, gang: None, told.append, told.append)
    waits = {"metadata": {"name": "t", "namespace": "ml"}, "spec": {"runPolicy": {"activeDeadlineSeconds": 600}}}
    begun = waits | {"status": {"startTime": "2026-11-27T10:00:00Z"}}
    for old, new, calls in ((None, waits, 0), (waits, begun, 1), (begun, begun, 0), (begun, None, 1), (waits, None, 0)):
        told.clear()
        handlers[-1](Change(MODIFIED, "ml/t", None if old is None else kept_of_workload(old), new))
        assert told == ["ml"] * calls
