"""A gang, claim or queue that cannot be computed in one of the controller's loops: it is counted and named, and all others are there."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Counter

from fairlead.controller.accounting import feed, opencost
from fairlead.controller.accounting.units import NodeUnits
from fairlead.controller.forecasting.history import RunHistory
from fairlead.controller.report import events, queue_series
from fairlead.controller.report.events import Failures
from fairlead.controller.report.metrics import Metrics
from fairlead.controller.report.queue_series import series
from fairlead.controller.report.status_writer import StatusWriter
from fairlead.controller.reporting import Reporting
from fairlead.controller.snapshot import SnapshotBuilder
from fairlead.engine.types.gangs import RunningGang
from fairlead.engine.types.plan import FlavorUse, QueueUse
from fairlead.engine.types.reasons import Code
from fairlead.history.ledger import keeper
from fairlead.history.ledger.store.reader import open_reader
from fairlead.kube.timing import Time
from tests.controller.conftest import Bench
from tests.controller.report.series import claim_caches, facts, values, waiting

EVER_US = 2**62
RAISED = TypeError("unhashable type: 'dict'")


def failing(monkeypatch: pytest.MonkeyPatch, where: Any, name: str, bad: str = "bad") -> None:
    """That function raises where an argument is, or is of, something that is called so."""
    true: Callable[..., Any] = getattr(where, name)

    def broken(*arguments: Any, **more: Any) -> Any:
        if any(bad in _name(each) for each in arguments):
            raise RAISED
        return true(*arguments, **more)

    monkeypatch.setattr(where, name, broken)


def _name(each: Any) -> str:
    of_claim = getattr(getattr(each, "claim", each), "metadata", None)
    return str(getattr(each, "name", "") if of_claim is None else of_claim.name)


def counted(metrics: str, where: str) -> float:
    line = f'fairlead_controller_errors_total{{where="{where}"}} '
    return next((float(each.removeprefix(line)) for each in metrics.splitlines() if each.startswith(line)), 0.0)


async def test_no_loop_of_the_controller_is_ended_by_one_gang(
    bench: Bench,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    free_port: Callable[[], int],
) -> None:
    failing(monkeypatch, Reporting, "_leaving")
    failing(monkeypatch, feed, "claim_seen")
    failing(monkeypatch, queue_series.KnownClaims, "_info")
    failing(monkeypatch, opencost, "_held")
    monkeypatch.setattr(keeper, "COMMIT_S", 0.5)
    await bench.template("two", 2)
    port = free_port()
    ledger = str(tmp_path / "ledger")
    async with (
        bench.controller(ledger=ledger, opencost=True, metrics_bind=f"127.0.0.1:{port}"),
        aiohttp.ClientSession() as session,
    ):
        pods = [await bench.gang(name, 2, template="two") for name in ("first", "bad", "last")]
        await bench.until(lambda: all(map(bench.running, pods)), "all run, the one that cannot be reported, too")
        await bench.until(
            lambda: all(bench.status(name).get("phase") == "Running" for name in ("first", "last")), "status"
        )

        def in_ledger() -> set[str]:
            return {each.allocation.gang for each in open_reader(ledger).held(0, EVER_US)}

        await bench.until(lambda: {"first", "last"} <= in_ledger(), "the ledger has them", 60.0)
        for _ in range(2):  # what a scrape counts is seen by the next one
            async with session.get(f"http://127.0.0.1:{port}/metrics") as answer:
                shown = await answer.text()
        assert in_ledger() == {"first", "last"}
    infos = [line for line in shown.splitlines() if line.startswith("fairlead_claim_info{")]
    assert sorted(line.partition('gang="')[2].partition('"')[0] for line in infos) == ["first"] * 2 + ["last"] * 2
    gpus = [line for line in shown.splitlines() if line.startswith("container_gpu_allocation{")]
    assert len(gpus) == 4
    for where, what in (("report", "gang ml/bad"), ("ledger", "claim ml/bad-0"), ("series", "claim ml/bad-0")):
        assert counted(shown, where) > 0, where
        said = [record.getMessage() for record in caplog.records if record.getMessage().startswith(f"{where}: {what}")]
        assert said, where
        assert all(str(RAISED) in text for text in said)
    assert len(caplog.records) < 1_000, "not a line for each second"


@pytest.mark.core
async def test_a_gang_that_cannot_be_written_or_reconciled_keeps_no_other_from_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failing(monkeypatch, StatusWriter, "gang")
    await bench.template("two", 2)
    async with bench.controller():
        bad, last = [await bench.gang(name, 2, template="two") for name in ("bad", "last")]
        await bench.until(lambda: bench.running(bad) and bench.running(last), "both run")
        await bench.until(lambda: bench.status("last").get("phase") == "Running", "its status")
        assert bench.status("bad") == {}
        failing(monkeypatch, SnapshotBuilder, "record")
        more = await bench.gang("bad-too", 1, template="two")
        others = await bench.gang("other", 1, template="two")
        await bench.until(lambda: bench.running(others), "one that can be reconciled")
        assert bench.gated(more)
    said = "\n".join(record.getMessage() for record in caplog.records)
    assert "status: gang ml/bad is left out, the others are not: TypeError" in said
    assert "reconcile: gang ml/bad-too is left out" in said


def test_a_queue_or_a_gang_that_cannot_be_counted_leaves_the_other_series(caplog: pytest.LogCaptureFixture) -> None:
    class Bad(Fraction):
        def __float__(self) -> float:
            raise RAISED

    uses = tuple(
        QueueUse(name=name, flavors=(FlavorUse(flavor="h100", used=used, demand=0, fair_share=1),), waiting=1, admitted=0)
        for name, used in (("first", 1), ("bad", Bad(1)), ("last", 2))
    )  # fmt: skip
    gangs = [waiting(name, "team", Code.HELD, h100=4) for name in ("a", "bad", "c")]
    gangs[1] = dataclasses.replace(gangs[1], asks=None)  # type: ignore[arg-type]
    metrics = Metrics()
    found = list(series(facts(*gangs, uses=uses), metrics.failures))
    assert values(found, "fairlead_queue_used") == {("first", "h100"): 1, ("last", "h100"): 2}
    assert values(found, "fairlead_queue_demand") == {("team", "h100", "devices"): 8}
    assert {record.getMessage().partition(" is left")[0] for record in caplog.records} == {
        "series: queue bad", "series: gang ml/bad",
    }  # fmt: skip


def test_a_gang_that_the_history_cannot_keep_is_named_and_the_others_are_kept() -> None:
    history = RunHistory()
    running = [
        RunningGang(namespace="ml", name=name, uid=name, queue=None, claims=(), started=0.0)
        for name in ("a", "bad", "c")
    ]
    history.note((), running, 0.0, lambda _: False)

    def evicted(gang: str) -> bool:
        if gang == "ml/bad":
            raise RAISED
        return False

    assert history.note((), (), 60.0, evicted) == {"ml/bad": "TypeError: unhashable type: 'dict'"}
    assert sorted(record.key.stem for record in history.records(60.0)) == ["a", "c"]


def test_a_node_whose_devices_cannot_be_judged_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def look(self: NodeUnits, node: str, *_: object) -> Any:
        if node == "bad":
            raise RAISED
        return [node], []

    monkeypatch.setattr(NodeUnits, "look", look)
    nothing: Any = None
    looking = feed.LedgerFeed(
        claim_caches(0),
        nothing,
        nothing,
        nothing,
        nothing,
        Metrics().failures,
        labels=(),
        time=Time(clock=lambda: 0.0, wall=lambda: 0.0, sleep=nothing),
    )
    found: list[Any] = [looking._look(node, 0.0) for node in ("a", "bad", "c")]
    assert found == [(["a"], []), ([], []), (["c"], [])]


def test_the_same_failure_is_counted_each_time_and_logged_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    errors = Counter("errors", "of a test", ["where"], registry=CollectorRegistry())
    noted = Failures(errors, clock=lambda: now[0])

    def fail(text: str) -> None:
        with noted.contained("report", "gang ml/bad"):
            raise ValueError(text)

    for text in ("one", "one", "two"):
        fail(text)
    now[0] = events.AGAIN_S
    fail("two")
    with noted.contained("report", "gang ml/good"):
        pass
    assert errors.labels("report")._value.get() == 4
    assert [(record.levelno, record.getMessage().rpartition(": ")[2]) for record in caplog.records] == [
        (logging.ERROR, "one"), (logging.ERROR, "two"), (logging.ERROR, "two"),
    ]  # fmt: skip
