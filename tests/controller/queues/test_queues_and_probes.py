"""What users see of the controller besides gangs: Queue status, limits at work, probes and metrics."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable

import aiohttp
import pytest

from fairlead.controller import standby
from fairlead.controller.term import DECISION_STUCK_S, STUCK_S, Health
from fairlead.controller.watch.caches import Caches
from fairlead.kube import resources
from fairlead.kube.informer import Informer
from fairlead.kube.resources import FLAVORS, QUEUES, Raw, Resource
from tests.controller.conftest import NAMESPACE, Bench


async def queue(bench: Bench, name: str, *, limit: int, **spec: object) -> None:
    flavors = [{"flavor": "gpu", "deserved": 0, "limit": limit}]
    await bench.client.create(QUEUES, {"metadata": {"name": name}, "spec": {"flavors": flavors} | spec})


async def flavor(bench: Bench) -> None:
    spec = {"deviceSelector": "device.driver == 'gpu.fairlead.dev'", "measure": "Devices"}
    await bench.client.create(FLAVORS, {"metadata": {"name": "gpu"}, "spec": spec})


def status(queues: Informer[Raw], name: str) -> Raw:
    raw = queues.get(name) or {}
    found: Raw = raw.get("status", {})
    return found


@contextlib.asynccontextmanager
async def seen(bench: Bench, resource: Resource[Raw]) -> AsyncIterator[Informer[Raw]]:
    informer = Informer(bench.client, resource)
    task = asyncio.create_task(informer.run())
    await informer.synced.wait()
    yield informer
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
async def queues(bench: Bench):
    async with seen(bench, QUEUES) as informer:
        yield informer


async def test_a_queue_over_its_limit_waits_and_its_status_says_how_full_it_is(bench: Bench, queues):
    await flavor(bench)
    await queue(bench, "small", limit=4, namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}})
    await bench.template("two", 2)
    async with bench.controller():
        first = await bench.gang("first", 2, template="two")
        await bench.until(lambda: bench.running(first), "four of four are used")
        second = await bench.gang("second", 1, template="two")
        await bench.until(lambda: bench.status("second").get("reason") == "OverQueueLimit", "the limit is named")
        assert bench.gated(second)
        assert bench.status("second")["queue"] == "small"

        def told(waiting: int, running: int, used: int) -> bool:
            seen = status(queues, "small")
            usage = seen.get("usage", [{}])[0]
            return (seen.get("waiting"), seen.get("running"), usage.get("allocated")) == (waiting, running, used)

        await bench.until(lambda: told(1, 1, 4), f"the queue's status: {status(queues, 'small')}")
        said = (await bench.client.get(FLAVORS, "gpu"))["status"]
        assert (said["devices"], said["total"], said["allocated"]) == (16, 16, 4)
        await bench.client.patch(QUEUES, "small", {"spec": {"flavors": [{"flavor": "gpu", "deserved": 0, "limit": 6}]}})
        await bench.until(lambda: bench.running(second), "the limit was raised")
        await bench.until(lambda: told(0, 2, 6), f"the queue's status: {status(queues, 'small')}")


@pytest.mark.core
async def test_probes_and_metrics_tell_what_goes_on(bench: Bench, free_port: Callable[[], int]):
    port = free_port()
    await bench.template("one")
    async with bench.controller(metrics_bind=f"127.0.0.1:{port}"), aiohttp.ClientSession() as session:
        await bench.pod("a", template="one")
        await bench.until(lambda: bench.running(["a"]), "it runs")
        for path in ("healthz", "readyz"):
            async with session.get(f"http://127.0.0.1:{port}/{path}") as response:
                assert (response.status, await response.text()) == (200, "ok\n")
        async with session.get(f"http://127.0.0.1:{port}/metrics") as response:
            text = await response.text()
    assert "fairlead_controller_leader 1.0" in text
    assert 'fairlead_controller_admissions_total{outcome="admitted"} 1.0' in text
    assert "fairlead_controller_commit_seconds_count 1.0" in text


async def test_a_leader_that_cannot_watch_is_not_ready_and_one_whose_loop_hangs_is_not_healthy(bench: Bench):
    health = Health()
    assert health.ready() is None
    health.caches = caches = Caches(bench.client, ("gpu.fairlead.dev",))
    assert health.ready() == "leading, but the caches are not filled"
    for watch in caches.required():
        watch.synced.set()
    assert health.ready() is None
    caches.pods.failures = 5
    assert health.ready() == "cannot watch pods"

    class Hanging:
        deciding = False
        last_run_at = time.monotonic() - STUCK_S - 1

    health.controller = hanging = Hanging()  # type: ignore[assignment]
    assert "has not turned" in (health.healthy() or "")
    hanging.deciding = True  # beside the loop: it may take minutes, not a quarter of an hour
    assert health.healthy() is None
    hanging.last_run_at -= DECISION_STUCK_S
    assert "a decision has not ended" in (health.healthy() or "")


async def test_what_a_queue_used_is_kept_in_its_status_and_read_back_by_the_next_controller(bench: Bench, queues):
    await flavor(bench)
    await queue(bench, "team", limit=8)
    await bench.client.patch(
        QUEUES,
        "team",
        {"status": {"usage": [{"flavor": "gpu", "pastUsage": 0.25}], "usageTime": "2020-01-01T00:00:00Z"}},
        subresource="status",
    )
    await bench.template("eight", 8)
    async with bench.controller():
        await bench.pod("a", template="eight", annotations={"fairlead.dev/queue": "team"})
        await bench.until(lambda: bench.running(["a"]), "it runs")

        def told() -> bool:
            usage = status(queues, "team").get("usage", [{}])[0]
            return bool(usage.get("allocated") == 8 and usage.get("pastUsage", 0.25) != 0.25)

        await bench.until(told, f"years later a half-life is forgotten: {status(queues, 'team')}")
        usage = status(queues, "team")["usage"][0]
        assert 0.12 <= usage["pastUsage"] <= 0.38
        assert status(queues, "team")["usageTime"] > "2020-01-02"


async def test_a_replica_that_stood_by_begins_its_term_with_the_past_usage_of_that_moment(bench: Bench):
    await flavor(bench)
    await queue(bench, "team", limit=8)
    async with standby.watching(bench.client, bench.options().managed_drivers) as watched:
        caches = watched.caches
        await caches.filled()
        assert [past.parts for past in caches.rules.settings().remembered.values()] == [{}]
        usage = {"usage": [{"flavor": "gpu", "pastUsage": 0.25}], "usageTime": "2020-01-01T00:00:00Z"}
        caches.queues.note(await bench.client.patch(QUEUES, "team", {"status": usage}, subresource="status"))
        caches.rules.begin_term()
        assert [past.parts for past in caches.rules.settings().remembered.values()] == [{"gpu": 0.25}]


async def test_selectors_are_in_conflict_only_while_a_namespace_matches_both(bench: Bench, queues):
    def ready(name: str) -> str:
        return next(
            (each["reason"] for each in status(queues, name).get("conditions", ()) if each["type"] == "Ready"), ""
        )

    await flavor(bench)
    await queue(bench, "ml", limit=4, namespaceSelector={"matchLabels": {"team": "ml"}})
    await queue(bench, "prod", limit=4, namespaceSelector={"matchLabels": {"env": "prod"}})
    async with bench.controller():
        await bench.until(lambda: [ready("ml"), ready("prod")] == ["Ready"] * 2, "no namespace matches both")
        labels = {"team": "ml", "env": "prod"}
        await bench.client.create(resources.NAMESPACES, {"metadata": {"name": "both", "labels": labels}})
        await bench.until(lambda: [ready("ml"), ready("prod")] == ["SelectorsOverlap"] * 2, "a namespace matches both")
        await bench.client.patch(resources.NAMESPACES, "both", {"metadata": {"labels": {"env": None}}})
        await bench.until(lambda: [ready("ml"), ready("prod")] == ["Ready"] * 2, "no namespace matches both again")
