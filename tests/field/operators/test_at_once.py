"""What operators do acts at once on a cluster where nothing else happens, and shows: each is an input of the decision that wakes it.

Before each the cluster is left alone for longer than the controller's own pauses, so that nothing that came before asks for the decision.
Bound: 5 s on a machine that others use, too, where 2 s are promised; a lost wake-up takes a minute, or comes never.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from fairlead.api import names
from fairlead.kube.resources import DEVICE_TAINT_RULES, GANGS, NODES, QUEUES, TENANCY_POLICIES, raw
from tests.controller.admission.test_taint_rules import serve_rules
from tests.controller.conftest import NAMESPACE, Bench, benches
from tests.support.teams import OTHER, standing, teams

pytestmark = pytest.mark.slow

Json = dict[str, Any]
BOUND_S = 5.0
QUIET_S = 3.0
HOLD = {"spec": {"hold": {"evict": True, "reason": "an incident"}}}
RESUME: Json = {"spec": {"hold": None}}
LONG = {names.MIN_RUNTIME: "400d"}


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with benches(tmp_path) as made:
        await teams(made)
        await serve_rules(made)
        async with made.controller():
            yield made


async def at_once(bench: Bench, what: str, act: Any, *effects: Callable[[], bool]) -> None:
    await asyncio.sleep(QUIET_S)
    began = time.monotonic()
    await act
    for effect in effects:
        await bench.until(effect, f"the effect of {what}", BOUND_S - (time.monotonic() - began))


async def pods(bench: Bench, *named: str, **more: Any) -> None:
    for name in named:
        await bench.pod(name, template="eight", **more)


def gone(bench: Bench, *named: str) -> Callable[[], bool]:
    return lambda: all(bench.get(name) is None for name in named)


def runs(bench: Bench, *named: str) -> Callable[[], bool]:
    return lambda: bench.running(named)


def says(bench: Bench, name: str, reason: str) -> Callable[[], bool]:
    return lambda: bench.status(name).get("reason") == reason


async def test_a_hold_of_a_gang_and_its_end(bench: Bench) -> None:
    await pods(bench, "one", "two")
    await bench.until(runs(bench, "one", "two"), "both run")
    patch = bench.client.patch
    await at_once(bench, "hold", patch(raw(GANGS), "two", HOLD, namespace=NAMESPACE), gone(bench, "two"))
    await pods(bench, "two")
    await bench.until(says(bench, "two", "OnHold"), "it is held")
    await at_once(bench, "resume", patch(raw(GANGS), "two", RESUME, namespace=NAMESPACE), runs(bench, "two"))


async def test_a_hold_of_a_queue_and_its_end(bench: Bench) -> None:
    await pods(bench, "one", "two")
    await bench.until(runs(bench, "one", "two"), "both run")
    await at_once(bench, "hold", bench.client.patch(QUEUES, NAMESPACE, HOLD), gone(bench, "one", "two"))
    await pods(bench, "one", "two")
    await bench.until(says(bench, "two", "OnHold"), "they are held")
    await at_once(bench, "resume", bench.client.patch(QUEUES, NAMESPACE, RESUME), runs(bench, "one", "two"))
    held = {"spec": {"hold": {"reason": "from now on"}}}
    await at_once(bench, "hold", bench.client.patch(QUEUES, NAMESPACE, held), _queue_says(bench, "OnHold"))


def _queue_says(bench: Bench, kind: str) -> Callable[[], bool]:
    def found() -> bool:
        stored = bench.cluster.server.state.list("fairlead.dev", "queues")
        [queue] = [each for each in stored if each["metadata"]["name"] == NAMESPACE]
        conditions = {each["type"]: each["status"] for each in queue.get("status", {}).get("conditions", ())}
        return conditions.get(kind) == "True"

    return found


@pytest.mark.parametrize("what", ["cordon", "taint"])
async def test_nodes_that_are_cordoned_or_tainted_and_come_back(bench: Bench, what: str) -> None:
    taint = {"key": "example.com/maintenance", "effect": "NoSchedule"}
    out: Json = {"unschedulable": True} if what == "cordon" else {"taints": [taint]}
    back: Json = {"unschedulable": None} if what == "cordon" else {"taints": None}
    for node in ("h1", "h2"):
        await bench.client.patch(NODES, node, {"spec": out})
    await pods(bench, "one")
    await bench.until(lambda: bool(bench.status("one").get("message")), "it waits")
    await at_once(bench, what, bench.client.patch(NODES, "h1", {"spec": back}), runs(bench, "one"))


async def test_a_device_that_is_drained_and_undrained(bench: Bench) -> None:
    def rule(effect: str) -> Json:
        taint = {"key": "example.com/maintenance", "effect": effect}
        return {
            "metadata": {"name": effect.lower()},
            "spec": {"deviceSelector": {"driver": names.DRIVER}, "taint": taint},
        }

    rules = raw(DEVICE_TAINT_RULES)
    await pods(bench, "one")
    await bench.until(runs(bench, "one"), "it runs")
    await at_once(bench, "NoExecute", bench.client.create(rules, rule("NoExecute")), gone(bench, "one"))
    await bench.client.delete(rules, "noexecute")
    await bench.client.create(rules, rule("NoSchedule"))
    await pods(bench, "one")
    await bench.until(lambda: "maintenance" in str(bench.status("one")), "it waits")
    await at_once(bench, "undrain", bench.client.delete(rules, "noschedule"), runs(bench, "one"))


@pytest.mark.parametrize("who", ["queue", "policy"])
async def test_a_bound_of_what_protects_victims(bench: Bench, who: str) -> None:
    await pods(bench, "one", "two", annotations=LONG)
    await bench.until(runs(bench, "one", "two"), "both run")
    await bench.pod("owner", template="eight", namespace=OTHER)
    await bench.until(
        lambda: (bench.gangs.get(f"{OTHER}/owner") or {}).get("status", {}).get("reason") == "VictimsProtected",
        "its owner waits",
    )
    bound = {"maxMinRuntime": "1s"}
    if who == "queue":
        act: Any = bench.client.patch(QUEUES, NAMESPACE, {"spec": bound})
    else:
        selector = {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}
        body = {"metadata": {"name": "bounds"}, "spec": {"namespaceSelector": selector, **bound}}
        act = bench.client.create(TENANCY_POLICIES, body)
    await at_once(bench, "bound", act, lambda: standing(bench, OTHER, "owner") == "Running")


async def test_what_a_queue_deserves(bench: Bench) -> None:
    def deserved(count: int) -> Json:
        return {"spec": {"flavors": [{"flavor": "gpu", "deserved": count}]}}

    await bench.client.patch(QUEUES, OTHER, deserved(0))
    await pods(bench, "one", "two")
    await bench.until(runs(bench, "one", "two"), "both run")
    await bench.pod("owner", template="eight", namespace=OTHER)
    await bench.until(lambda: bool((bench.gangs.get(f"{OTHER}/owner") or {}).get("status")), "its owner waits")
    await at_once(
        bench,
        "deserved",
        bench.client.patch(QUEUES, OTHER, deserved(8)),
        lambda: standing(bench, OTHER, "owner") == "Running",
    )


async def test_a_pod_that_is_evicted_by_hand(bench: Bench) -> None:
    """The gang behind it starts as soon as its devices are free."""
    await pods(bench, "one", "two")
    await bench.until(runs(bench, "one", "two"), "both run")
    await pods(bench, "three")
    await bench.until(lambda: bool(bench.status("three").get("message")), "the third waits")
    await at_once(bench, "evict", bench.client.evict("one", NAMESPACE), gone(bench, "one"), runs(bench, "three"))
