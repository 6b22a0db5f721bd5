"""Every query of every panel, variable and annotation gives something of a sandbox cluster under load, and every rule works.

A real Prometheus scrapes the cluster as the chart's ServiceMonitor would.
"""

from __future__ import annotations

import asyncio
import contextlib
import math

import pytest

from monitoring.__main__ import FOLDER
from tests.support import prometheus
from tests.support.observed import observed, traffic, work
from tests.support.panels import Key, expressions, others
from tests.support.prometheus import Server

TIMEOUT_S = 150.0
_SCALES = "no Flavor asks an autoscaler for nodes"
# What a cluster without a fault, a move and an autoscaler has nothing to show of. What stands here and is not empty fails.
EMPTY: dict[Key, str] = {
    ("fairlead-first-look", "Alerts", "Firing"): "nothing is wrong with it",
    ("fairlead-first-look", "Nodes with devices that are not healthy", "Devices"): "no device is tainted",
    ("fairlead-gpus", "Xids", "{{node}} {{device}} Xid {{xid}}"): "no GPU has reported an Xid",
    ("fairlead-cluster", "GPU time that moves cost", "{{cause}}"): "no gang moved",
    ("fairlead-waiting", "Gangs that lack nodes", "{{flavor}} {{state}}"): _SCALES,
    ("fairlead-waiting", "Asked of autoscalers", "{{flavor}}"): _SCALES,
    ("fairlead-waiting", "From the request for nodes to the start, p50 and p95", "{{flavor}} p50"): _SCALES,
    ("fairlead-waiting", "From the request for nodes to the start, p50 and p95", "{{flavor}} p95"): _SCALES,
    ("fairlead-waiting", "Requests for nodes that failed", "{{mode}}"): _SCALES,
    ("fairlead-itself", "Errors and recoveries", "error in {{where}}"): "the controller has met no error",
    ("fairlead-itself", "Errors and recoveries", "{{step}}"): "no admission was interrupted",
    ("fairlead-itself", "Requests that could not be judged", "{{status}}"): "the apiserver sends reviews only",
}


async def gives_something(server: Server, expression: str) -> bool:
    return any(not math.isnan(value) for _, value in await server.query(expression))


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_every_panel_shows_something_of_a_cluster_under_load_and_every_rule_can_be_evaluated():
    groups = prometheus.groups()
    wanted = {**dict(expressions(FOLDER)), **dict(others(FOLDER))}
    assert set(EMPTY) <= set(wanted)
    shown: set[Key] = set()
    async with observed(groups) as site:
        await work(site)
        busy = asyncio.create_task(traffic(site))
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TIMEOUT_S):
                    while shown < set(wanted) - set(EMPTY):
                        for key in set(wanted) - shown:
                            if await gives_something(site.server, wanted[key]):
                                shown.add(key)
                        await asyncio.sleep(1)
        finally:
            busy.cancel()
            await asyncio.gather(busy, return_exceptions=True)
        for key in EMPTY:
            if await gives_something(site.server, wanted[key]):
                shown.add(key)
        evaluated = [rule for group in (await site.server.get("rules"))["groups"] for rule in group["rules"]]
        firing = await site.server.firing()
    empty = sorted(set(wanted) - set(EMPTY) - shown)
    assert not empty, f"empty: {empty}"
    assert sorted(shown & set(EMPTY)) == [], "not empty: take it off the list"
    assert [(rule["name"], rule["lastError"]) for rule in evaluated if rule["health"] != "ok"] == []
    assert set(prometheus.alerts()) <= {rule["name"] for rule in evaluated}
    pages = {name for name, found in firing.items() if found[0]["labels"]["severity"] != "info"}
    assert pages == set(), "nothing is wrong with this cluster"
