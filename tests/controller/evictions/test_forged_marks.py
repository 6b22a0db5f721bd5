"""Marks of an eviction that got onto pods past the policy on them: without the decision in the Gang's status they hold and decide nothing.

The policy is not bound here, as where `policies.controllerPods` is false: a tenant writes what it likes of its pods.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from fairlead.api import names
from fairlead.controller.gangs.membership import decisions
from fairlead.controller.gangs.membership.decisions import Decision
from fairlead.kube import errors, timestamps
from fairlead.kube.resources import GANGS, PODS, QUEUES, VALIDATING_POLICY_BINDINGS, raw
from tests.controller.conftest import NAMESPACE, Bench
from tests.support.teams import OTHER, borrowers, evicted, standing, teams
from tests.support.tenants import EDITOR, OWNER, bind_tenants

FAR = "2099-01-01T00:00:00Z"
NOW = 1_800_000_000.0
OPEN = {"spec": {"namespaceSelector": None}}
QUEUE = {names.QUEUE: OTHER}


async def tenants(bench: Bench) -> None:
    await bind_tenants(bench.client)
    await bench.client.delete(VALIDATING_POLICY_BINDINGS, "fairlead-controller-pods")


async def forge(bench: Bench, name: str, at: str = FAR, **mark: Any) -> None:
    text = json.dumps({"for": "", "whole": True, "why": "x", **mark})
    body = {"metadata": {"annotations": {names.EVICT_AT: at, names.EVICTION: text}}}
    async with bench.cluster.client(EDITOR) as tenant:
        await tenant.patch(raw(PODS), name, body, namespace=NAMESPACE)


@pytest.mark.core
async def test_a_forged_place_holds_no_device(bench: Bench) -> None:
    await teams(bench)
    await tenants(bench)
    await bench.template("one", 1)
    await bench.client.patch(QUEUES, OTHER, OPEN)
    async with bench.controller():
        await bench.pod("runs", template="one", annotations=QUEUE)
        await bench.until(lambda: bench.running(["runs"]), "a pod that got a device as any")
        pod = bench.get("runs")
        assert pod is not None
        node = "h1" if pod.spec.node_name == "h2" else "h2"
        devices = [f"{names.DRIVER}/{node}/gpu-{number}" for number in range(8)]
        place = {"node": node, "devices": devices}
        await forge(bench, "runs", kind="Move", **{"for": f"{NAMESPACE}/greedy"}, place=place)
        await bench.pod("own", template="eight", namespace=OTHER, annotations=QUEUE)
        await bench.until(lambda: standing(bench, OTHER, "own") == "Running", "eight devices are free for it")


async def test_a_forged_eviction_is_no_reason_to_go_first(bench: Bench) -> None:
    await teams(bench)
    await tenants(bench)
    await bench.template("one", 1)
    await bench.client.patch(QUEUES, OTHER, OPEN)
    async with bench.controller():
        await bench.pod("victim", template="one", annotations=QUEUE)
        await bench.until(lambda: bench.running(["victim"]), "a pod of the tenant's")
    victim = bench.get("victim")
    assert victim is not None
    await bench.pod("older", template="eight", namespace=OTHER, annotations=QUEUE)
    await bench.pod("first", template="eight", namespace=OTHER, annotations=QUEUE)
    await asyncio.sleep(1.1)  # creation times are whole seconds
    await bench.pod("greedy", template="eight", annotations=QUEUE)
    await forge(bench, "victim", kind="Reclaim", **{"for": f"{NAMESPACE}/greedy"})
    reserved = {"status": {"reservedUntil": timestamps.seconds(time.time() + 600)}}
    async with bench.cluster.client(OWNER) as tenant:
        meta = {"name": "greedy", "namespace": NAMESPACE}
        with pytest.raises(errors.Forbidden, match=r"only the Fairlead controller writes the status of Gangs"):
            await tenant.create(raw(GANGS), {"metadata": meta, "spec": {"size": 1}}) and await tenant.patch(
                raw(GANGS), "greedy", reserved, namespace=NAMESPACE, subresource="status"
            )
    async with bench.controller():
        await bench.until(
            lambda: "Running" in {standing(bench, OTHER, name) for name in ("older", "first")}, "an older one runs"
        )
        assert bench.gated(["greedy"])


async def test_a_forged_mark_keeps_no_gang_from_being_evicted(bench: Bench) -> None:
    """A pod that is to go in 2099 would count as leaving: others would wait for its devices, and reclaim none."""
    await teams(bench)
    await tenants(bench)
    async with bench.controller():
        await borrowers(bench)
        for name in ("one", "two"):
            await forge(bench, name, kind="Reclaim")
        await bench.pod("owner", template="eight", namespace=OTHER)
        await bench.until(lambda: standing(bench, OTHER, "owner") == "Running", "what it deserves is reclaimed")
        assert len(evicted(bench)) == 1


# -- what is read of the records -----------------------------------------------------------------------------------------

MOVE = Decision(kind="Move", at=NOW, beneficiary="ml/x", place=frozenset({("n1", ("d/n1/gpu-0",))}))


def test_a_decision_is_read_back() -> None:
    assert decisions.decisions({"status": {"evictions": [MOVE.to_json()]}}) == (MOVE,)


@pytest.mark.parametrize(
    "written", [None, {}, [None], [{"kind": "Move"}], [{"kind": "Move", "at": "x"}], "x", [{"at": FAR, "kind": 1, "place": 3}]]
)  # fmt: skip
def test_a_decision_that_cannot_be_read_is_none(written: Any) -> None:
    assert decisions.decisions({"status": {"evictions": written}}) == ()


@pytest.mark.parametrize(
    ("kind", "at", "beneficiary", "place"),
    [
        ("Reclaim", NOW, "ml/x", None),
        ("Move", NOW + 1, "ml/x", None),
        ("Move", NOW, "ml/y", None),
        ("Move", NOW, "ml/x", ("n2", ("d/n1/gpu-0",))),
        ("Move", NOW, "ml/x", ("n1", ("d/n1/gpu-1",))),
    ],
)
def test_a_mark_that_says_otherwise_does_not_follow_it(
    kind: str, at: float, beneficiary: str, place: decisions.Place | None
) -> None:
    assert MOVE.says("Move", NOW, "ml/x", ("n1", ("d/n1/gpu-0",)))
    assert not MOVE.says(kind, at, beneficiary, place)


@pytest.mark.parametrize("until", [FAR, "x", 7, None])
def test_an_absurd_reservation_is_none(until: Any) -> None:
    assert decisions.reserved_until({"status": {"reservedUntil": until}}, NOW) == 0.0
    assert decisions.reserved_until({"status": {"reservedUntil": timestamps.seconds(NOW + 9)}}, NOW) == NOW + 9
