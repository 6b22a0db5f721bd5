"""On a sandbox cluster under load, scraped by a real Prometheus: every query of every panel gives something, and every rule works."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from monitoring.__main__ import FOLDER
from tests.support import prometheus
from tests.support.observed import observed, traffic, work
from tests.support.prometheus import Server

TIMEOUT_S = 100.0
VARIABLES = {
    "$__rate_interval": "15s",
    "$__interval": "5s",
    "$__range": "5m",
    "$price": "2.50",
} | dict.fromkeys(("$queue", "$flavor", "$namespace", "$gang", "$node"), ".*")  # fmt: skip

# What a cluster without a fault has nothing to show of. What stands here and is not empty fails.
EMPTY: dict[tuple[str, str, str], str] = {
    ("fairlead-gpus", "Xids", "{{node}} {{device}} Xid {{xid}}"): "no GPU has reported an Xid",
    ("fairlead-itself", "Errors and recoveries", "error in {{where}}"): "the controller has met no error",
    ("fairlead-itself", "Errors and recoveries", "{{step}}"): "no admission was interrupted",
    ("fairlead-itself", "Requests that could not be judged", "{{status}}"): "the apiserver sends reviews only",
}


def queries() -> Iterator[tuple[tuple[str, str, str], str]]:
    """Dashboard, panel and legend of each query, and what Grafana would send."""
    for path in sorted(FOLDER.glob("*.json")):
        model = json.loads(path.read_text(encoding="utf-8"))
        for panel in model["panels"]:
            for target in panel.get("targets", ()):
                yield (model["uid"], panel["title"], target["legendFormat"]), substituted(target["expr"])


def substituted(expression: str) -> str:
    for name in sorted(VARIABLES, key=len, reverse=True):
        expression = expression.replace(name, VARIABLES[name])
    assert "$" not in expression
    return expression


async def gives_something(server: Server, expression: str) -> bool:
    return any(not math.isnan(value) for _, value in await server.query(expression))


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_every_panel_shows_something_of_a_cluster_under_load_and_every_rule_can_be_evaluated():
    groups: list[dict[str, Any]] = yaml.safe_load(prometheus.RULES.read_text(encoding="utf-8"))["groups"]
    wanted = dict(queries())
    assert set(EMPTY) <= set(wanted)
    shown: set[tuple[str, str, str]] = set()
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
    assert firing == {}, "nothing is wrong with this cluster"
