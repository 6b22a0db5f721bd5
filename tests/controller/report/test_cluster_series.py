"""Series of the cluster that the leader serves: queues, waits, claims and devices. What they say, how many they are, and what they cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from fractions import Fraction
from typing import Any

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric

from fairlead.controller import app
from fairlead.controller.book.book import Wait
from fairlead.controller.gangs.membership.gangs import GangId
from fairlead.controller.report.metrics import Metrics
from fairlead.controller.report.queue_series import ClaimSeries, series
from fairlead.controller.standby import background
from fairlead.controller.watch.allocated_claims import AllocatedClaims
from fairlead.engine.types.plan import FlavorUse, QueueUse
from fairlead.engine.types.reasons import Code
from fairlead.history.ledger.entries import BUCKETS
from fairlead.kube.resources import QUEUES
from tests.controller.conftest import Bench
from tests.controller.queues.test_queues_and_probes import flavor
from tests.controller.report.series import (
    Series,
    allocated,
    becomes,
    claim_caches,
    facts,
    scraped,
    values,
    waiting,
)
from tests.support import cpu

# -- queues -------------------------------------------------------------------------------------------------------------


def test_a_queue_has_what_the_last_decision_says_of_it() -> None:
    uses = (
        QueueUse(
            name="team",
            flavors=(
                FlavorUse(flavor="h100", used=4, demand=9, fair_share=Fraction(13, 2), deserved=6, limit=8),
                FlavorUse(flavor="l40s", used=0, demand=0, fair_share=0),
            ),
            waiting=2,
            admitted=1,
        ),
    )
    found = list(series(facts(uses=uses, team=600.0), Metrics().failures))
    assert values(found, "fairlead_queue_gangs") == {("team", "waiting"): 2, ("team", "admitted"): 1}
    assert values(found, "fairlead_queue_used") == {("team", "h100"): 4, ("team", "l40s"): 0}
    assert values(found, "fairlead_queue_fair_share") == {("team", "h100"): 6.5, ("team", "l40s"): 0}
    assert values(found, "fairlead_queue_deserved") == {("team", "h100"): 6, ("team", "l40s"): 0}
    assert values(found, "fairlead_queue_limit") == {("team", "h100"): 8}, "no limit is no series"
    assert values(found, "fairlead_queue_wait_target_seconds") == {("team",): 600}
    assert values(found, "fairlead_queue_oldest_wait_seconds") == {("team",): 0}


def test_waiting_gangs_count_by_reason_and_what_they_ask_for_by_what_would_help() -> None:
    found = list(
        series(
            facts(
                waiting("a", "team", Code.NO_DEVICES, h100=8),
                waiting("b", "team", Code.HELD, h100=Fraction(1, 7)),
                waiting("c", "team", Code.OVER_LIMIT, h100=4, l40s=1),
                waiting("d", "other", Code.GATHERING),
                waiting("e", None, Code.UNKNOWN_QUEUE),
            ),
            Metrics().failures,
        )
    )
    assert values(found, "fairlead_gangs_waiting") == {
        ("team", "DevicesInUse"): 1, ("team", "DevicesHeld"): 1, ("team", "OverQueueLimit"): 1,
        ("other", "Gathering"): 1, ("", "UnknownQueue"): 1,
    }  # fmt: skip
    assert values(found, "fairlead_queue_demand") == {
        ("team", "h100", "devices"): pytest.approx(8 + 1 / 7), ("team", "h100", "quota"): 4, ("team", "l40s", "quota"): 1,
    }  # fmt: skip


def test_of_each_queue_and_reason_the_gang_that_waits_longest_is_named_and_no_other() -> None:
    waits: dict[GangId, Wait] = {("ml", f"g{number}"): Wait("team", 1000.0 - number) for number in range(500)}
    waits["ml", "never"] = Wait("team", 990.0)
    many = [waiting(name, "team", Code.NO_DEVICES) for _, name in waits if name != "never"]
    found = facts(
        *many, waiting("never", "team", Code.NEVER_FITS), waiting("new", None, Code.UNKNOWN_QUEUE), waits=waits
    )
    assert values(series(found, Metrics().failures), "fairlead_longest_waiting_gang_seconds") == {
        ("team", "DevicesInUse", "ml", "g499"): 499, ("team", "NeverFits", "ml", "never"): 10, ("", "UnknownQueue", "ml", "new"): 0,
    }, "two reasons, two series, however many gangs wait"  # fmt: skip


def test_a_gang_that_a_user_holds_is_not_overdue() -> None:
    waits: dict[GangId, Wait] = {}
    waits["ml", "held"] = Wait("team", 400.0)
    waits["ml", "waits"] = Wait("team", 700.0)
    waits["ml", "alone"] = Wait("other", 100.0)
    found = facts(
        waiting("held", "team", Code.ON_HOLD),
        waiting("waits", "team", Code.NO_DEVICES),
        waiting("alone", "other", Code.ON_HOLD),
        uses=(QueueUse(name="other", flavors=(), waiting=1, admitted=0),),
        waits=waits,
    )
    assert values(series(found, Metrics().failures), "fairlead_queue_oldest_wait_seconds") == {
        ("team",): 300,
        ("other",): 0,
    }


# -- devices ------------------------------------------------------------------------------------------------------------


def test_devices_count_in_all_states_of_the_flavors_that_there_are() -> None:
    metrics = Metrics()

    def shown() -> Series:
        return values(metrics.registry.collect(), "fairlead_cluster_devices")

    metrics.note_devices({("used", "h100"): 3_500_000, ("free", "h100"): 500_000, ("broken", ""): 1_000_000})
    assert len(shown()) == 2 * len(BUCKETS)
    assert (shown()["h100", "used"], shown()["h100", "free"], shown()["h100", "idle"]) == (3.5, 0.5, 0)
    metrics.note_devices({("idle", "h100"): 4_000_000})
    assert {key: value for key, value in shown().items() if value} == {("h100", "idle"): 4}
    assert all(name == "h100" for name, _ in shown()), "a flavor that is gone has none"
    metrics.note_devices({})
    assert shown() == {}


# -- claims -------------------------------------------------------------------------------------------------------------


def infos(found: ClaimSeries) -> set[tuple[str, ...]]:
    return {tuple(sample.labels.values()) for family in found.collect() for sample in family.samples}


def test_claims_that_come_and_go_between_scrapes_take_no_memory() -> None:
    caches = claim_caches(0)
    known = AllocatedClaims(caches, lambda _: nullcontext(), wall=lambda: 0.0, keeps_ended=False)
    known.begin()
    for number in range(1, 50):
        caches.claims.note(allocated(number))
        caches.claims.note(allocated(number, holds=False))
    assert known.take() == ([], [])
    assert (known._touched, known._ended, known._held, known._by_key) == ({}, [], {}, {})


def test_a_claim_is_told_while_it_is_allocated_and_this_replica_leads() -> None:
    caches, found = claim_caches(3), ClaimSeries(Metrics().failures)
    assert infos(found) == set()
    found.begin(caches, wall=lambda: 0.0)
    assert infos(found) == {("ml", "c0", "g0", "", ""), ("ml", "c1", "g0", "", ""), ("ml", "c2", "g1", "", "")}
    caches.claims.note(allocated(1, holds=False))
    assert infos(found) == {("ml", "c0", "g0", "", ""), ("ml", "c2", "g1", "", "")}
    queue = {"metadata": {"name": "team", "uid": "q", "resourceVersion": "5"}, "spec": {"namespaceSelector": {}}}
    caches.queues.note(queue)
    assert infos(found) == {("ml", "c0", "g0", "team", ""), ("ml", "c2", "g1", "team", "")}, "queues are looked up anew"
    found.end()
    assert infos(found) == set()
    caches.claims.note(allocated(7))  # of which it is told no more


def test_four_thousand_claims_are_four_thousand_series_and_the_loop_is_not_held_for_them() -> None:
    caches, found, registry = claim_caches(4000), ClaimSeries(Metrics().failures), CollectorRegistry()
    found.begin(caches, wall=lambda: 0.0)
    registry.register(found)
    generate_latest(registry)
    with cpu.at_most(0.2):  # a scrape in which nothing changed: some 10 ms, and ten times that on a slow machine
        families = list(registry.collect())
    assert sum(len(family.samples) for family in families) == 4000


# -- on the sandbox -----------------------------------------------------------------------------------------------------


async def serves(port: int) -> bool:
    try:
        return bool(await scraped(port))
    except aiohttp.ClientConnectorError:
        return False


def counts(families: Iterable[Metric], name: str) -> Series:
    (family,) = (each for each in families if each.name == name)
    return {tuple(s.labels.values()): s.value for s in family.samples if s.name == f"{name}_count"}


async def test_the_leader_tells_who_waits_for_what_and_how_long_and_a_standby_does_not(
    bench: Bench, free_port: Callable[[], int]
) -> None:
    await flavor(bench)
    spec: dict[str, Any] = {
        "flavors": [{"flavor": "gpu", "deserved": 2, "limit": 4}],
        "namespaceSelector": {},
        "waitTarget": "10m",
    }
    await bench.client.create(QUEUES, {"metadata": {"name": "team"}, "spec": spec})
    await bench.template("two", 2)
    ports = [free_port(), free_port()]
    async with bench.controller(metrics_bind=f"127.0.0.1:{ports[0]}", ledger=str(bench.workdir / "ledger")):
        first = await bench.gang("first", 2, template="two")
        await bench.until(lambda: bench.running(first), "four of four are used")
        second = await bench.gang("second", 1, template="two")
        await bench.until(lambda: bench.status("second").get("reason") == "OverQueueLimit", "it waits")
        async with background(
            app.run(bench.options(metrics_bind=f"127.0.0.1:{ports[1]}", record=None)), ignore=KeyError
        ):
            await becomes(lambda: serves(ports[1]), "the standby serves metrics")
            found, other = await scraped(ports[0]), await scraped(ports[1])
        claims = values(found, "fairlead_claim_info")
        assert {labels[1:] for labels in claims} == {("gpu", "first", "ml", "team")}
        assert len(claims) == 2
        assert values(found, "fairlead_queue_used") == {("gpu", "team"): 4}
        assert values(found, "fairlead_queue_limit") == {("gpu", "team"): 4}
        assert values(found, "fairlead_queue_demand") == {("quota", "gpu", "team"): 2}
        assert values(found, "fairlead_gangs_waiting") == {("team", "OverQueueLimit"): 1}
        assert 0 <= values(found, "fairlead_queue_oldest_wait_seconds")["team",] < 60
        assert values(found, "fairlead_queue_wait_target_seconds") == {("team",): 600}
        assert counts(found, "fairlead_queue_wait_seconds") == {("gpu", "admitted", "team"): 1}
        of_a_cluster = (
            "fairlead_queue_used",
            "fairlead_claim_info",
            "fairlead_gangs_waiting",
            "fairlead_cluster_devices",
        )
        assert not any(family.samples for family in other if family.name in of_a_cluster)

        async def devices() -> Series:
            return {
                key: value
                for key, value in values(await scraped(ports[0]), "fairlead_cluster_devices").items()
                if value
            }

        async def all_devices() -> bool:
            return await devices() == {("gpu", "used"): 4, ("gpu", "free"): 12}

        await becomes(all_devices, "the ledger has all devices, four of them in use")
        await bench.delete(second)

        async def withdrawn() -> bool:
            return ("", "withdrawn", "team") in counts(await scraped(ports[0]), "fairlead_queue_wait_seconds")

        await becomes(withdrawn, "it is gone without having run")
