"""On call: a gang hangs, a driver dies, no controller leads. Each is found by the alert that is meant for it, by no other, and its panel shows it.

The rules are the chart's, with ranges of five minutes and nearly every `for` shortened to seconds. `-s` prints how long each took.
"""

from __future__ import annotations

import time
from typing import Any

import pytest
import yaml

from fairlead.driver.backend.simulated import fault_file
from monitoring.__main__ import FOLDER
from tests.support import prometheus
from tests.support.observed import FLAVORS, Observed, gang, h100, observed, queue, target
from tests.support.panels import expressions
from tests.support.prometheus import Server
from tests.support.sandbox import until

RANGE, FOR = "15s", "5s"  # the driver reads its hardware every five seconds
WORKS = fault_file.Load(utilization_percent=97.0, memory_used_bytes=20 * 2**30)
HANGS = fault_file.Load(utilization_percent=100.0, memory_used_bytes=20 * 2**30, nvlink_bytes_per_second=0.0)
PANELS = {(uid, title): text for (uid, title, _), text in expressions(FOLDER)}


def shortened() -> list[dict[str, Any]]:
    """All but one: a driver that has just started names the pods of its claims within two minutes only."""
    groups: list[dict[str, Any]] = yaml.safe_load(
        prometheus.RULES.read_text(encoding="utf-8").replace("[5m]", f"[{RANGE}]")
    )["groups"]
    for rule in (rule for group in groups for rule in group["rules"]):
        if "for" in rule and rule["alert"] != "FairleadClaimWithoutPod":
            rule["for"] = FOR
    return groups


async def pages(server: Server) -> dict[str, list[dict[str, Any]]]:
    """Alerts that fire and ask somebody to act."""
    return {name: found for name, found in (await server.firing()).items() if found[0]["labels"]["severity"] != "info"}


async def shows(server: Server, uid: str, title: str) -> float:
    ((_, value),) = await server.query(PANELS[uid, title])
    return value


async def found_by(site: Observed, alert: str, since_s: float) -> dict[str, Any]:
    """The alert, once it fires, and it alone."""

    async def fires() -> Any:
        return (await pages(site.server)).get(alert)

    found = await until(fires, timeout_s=60, what=f"{alert} fires")
    print(f"{alert}: {time.monotonic() - since_s:.0f} s after the fault, with ranges of {RANGE} and for {FOR}")
    assert set(await pages(site.server)) == {alert}
    (one,) = found
    return dict(one)


async def silent(server: Server) -> None:
    async def nothing() -> bool:
        return not await pages(server)

    await until(nothing, timeout_s=60, what="no alert fires")


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_hung_gang_a_dead_driver_and_a_missing_leader_are_found():
    async with observed(shortened()) as site:
        server, faults = site.server, site.faults("h100")
        fault_file.load_held(faults, WORKS)
        await site.cluster.apply([*FLAVORS, *queue("production", deserved=8)])
        await site.cluster.apply([h100("two", count=2, namespace="production")])
        await site.cluster.apply([gang("train", claim="two", size=2, namespace="production")])
        traffic = PANELS["fairlead-gang", "NVLink traffic"]
        await until(lambda: server.query(f"{traffic} > 0"), timeout_s=60, what="the gang exchanges data")
        await silent(server)

        began = time.monotonic()
        fault_file.load_held(faults, HANGS)
        alert = await found_by(site, "FairleadGangStalled", began)
        assert (alert["labels"]["namespace"], alert["labels"]["gang"]) == ("production", "train")
        assert await shows(server, "fairlead-gang", "NVLink traffic") == 0
        assert await shows(server, "fairlead-gang", "Least busy GPU") == 1
        fault_file.load_held(faults, WORKS)
        await silent(server)

        began = time.monotonic()
        driver = next(each for each in site.of("driver") if each.node == "h100")
        await driver.process.kill()
        alert = await found_by(site, "FairleadDriverDown", began)
        assert alert["labels"]["node"] == "h100"
        assert await shows(server, "fairlead-itself", "Drivers down") == 1
        await site.cluster.workloads.replace(driver.workload)
        server.scrape(target(each) for each in site.cluster.workloads.running.values())
        await silent(server)

        began = time.monotonic()
        for each in site.of("controller"):
            await each.process.kill()
        await found_by(site, "FairleadControllerLeaderMissing", began)
        assert await shows(server, "fairlead-itself", "Leaders") == 0
