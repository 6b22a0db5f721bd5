"""Forecasts of a live controller: in Gang status and events, from a forked simulation; and when another one is shown."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import time
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead.api import names
from fairlead.controller.book.book import Book
from fairlead.controller.forecasting import forecaster
from fairlead.controller.forecasting import history as run_history
from fairlead.controller.forecasting.forecaster import Forecaster
from fairlead.controller.forecasting.history import KEY, KEYS_MAX, LIKE_MAX, NAME, RUNS_MAX, RunHistory
from fairlead.controller.report.forecasts import ShownForecasts
from fairlead.controller.report.metrics import Metrics
from fairlead.engine.forecast.calibration import KEPT_MAX, Calibration, Outcome
from fairlead.engine.forecast.forecast import GangForecast
from fairlead.engine.forecast.run_times import GangKey
from fairlead.engine.types.gangs import RunningGang
from fairlead.kube import resources, timestamps
from fairlead.kube.timing import Time
from tests.controller.conftest import Bench


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecaster, "SETTLE_S", 0.2)
    monkeypatch.setattr(forecaster, "LEAST_S", 0.2)
    monkeypatch.setattr(forecaster, "CPU_PART", 1.0)
    monkeypatch.setattr(run_history, "WRITE_S", 0.0)


@pytest.mark.slow
async def test_a_waiting_gang_has_a_forecast_that_follows_reported_progress(bench: Bench, quick: None):
    await bench.template("node", 8)
    end = time.time() + 600
    expected = {names.EXPECTED_END: timestamps.seconds(end), names.USER: "ada@example.org"}
    async with bench.controller(forecast=True):
        first = await bench.gang("first", 2, template="node", annotations=expected)
        await bench.until(lambda: bench.running(first), "the first gang runs")
        await bench.gang("second", 2, template="node")
        await bench.until(lambda: "p50" in bench.status("second").get("forecast", {}), "a forecast")
        forecast = bench.status("second")["forecast"]
        assert abs(timestamps.parse(forecast["p50"]) - end) < 200
        assert timestamps.parse(forecast["p90"]) >= timestamps.parse(forecast["p50"])
        assert "ml/first ends" in forecast["because"]
        assert "reported progress" in forecast["because"]
        await bench.event("second", "Forecast: forecast: starts by")
        await bench.gang("third", 3, template="node")
        await bench.until(lambda: bench.status("third").get("forecast", {}).get("never", False), "never")
        assert bench.status("third")["forecast"]["because"].startswith("cannot run: ")
        await bench.delete(first)
        await bench.until(lambda: bench.running(["second-0", "second-1"]), "the second gang runs")
        await bench.until(lambda: "forecast" not in bench.status("second"), "no forecast of what runs")
        found: list[GangKey] = []
        async with asyncio.timeout(20):
            while not found:
                await asyncio.sleep(0.1)
                listed = (await bench.client.list(resources.CONFIG_MAPS, names.NAMESPACE)).items
                history = RunHistory()
                for each in listed:
                    if each["metadata"]["name"] == NAME:
                        history.restore(each["data"][KEY])
                        assert "ada" not in each["data"][KEY]
                found = [record.key for record in history.records(0.0)]
        user = hashlib.sha256(b"ada@example.org").hexdigest()[: forecaster.USER_DIGITS]
        assert found == [GangKey("ml", "first", 2, user)]


def said(p50: float | None, p90: float | None = None, *, never: bool = False) -> GangForecast:
    return GangForecast(p50, p90, "because", never, raw=(p50, p90))


def test_a_forecast_that_moves_little_is_not_shown_anew():
    shown, gang = ShownForecasts(Book(), RunHistory().note_start), {"ml/a": said(10_000.0, 20_000.0)}
    assert shown.set(gang, 0.0) == {("ml", "a")}
    assert shown.set({"ml/a": said(11_000.0, 22_000.0)}, 0.0) == set()
    assert shown.set({"ml/a": said(14_000.0, 22_000.0)}, 0.0) == {("ml", "a")}
    assert shown.set({"ml/a": said(None)}, 0.0) == {("ml", "a")}
    assert shown.set({"ml/a": said(None, never=True)}, 0.0) == {("ml", "a")}
    assert shown.set({"ml/a": said(None, never=True)}, 60.0) == set()


def test_a_start_is_held_against_the_first_forecast():
    history = RunHistory()
    shown = ShownForecasts(Book(), history.note_start)
    shown.set({"ml/a": said(1_000.0, 2_000.0)}, 0.0)
    shown.set({"ml/a": said(5_000.0, 9_000.0)}, 500.0)
    assert shown.started(("ml", "a"), 1_500.0) == (500.0, True)
    assert shown.started(("ml", "a"), 1_500.0) == (None, None)
    assert history.calibration == Calibration([Outcome(1_500.0, 1_000.0, 2_000.0)])


def running(name: str, started: float) -> RunningGang:
    return RunningGang(namespace="ml", name=name, uid=name, queue=None, claims=(), started=started)


def test_runs_are_remembered_bounded_and_outlive_the_controller():
    history = RunHistory()
    history.note((), [running(f"run-{number}", 0.0) for number in range(2 * LIKE_MAX)], 0.0, lambda _: False)
    history.note((), [running("last", 50.0)], 100.0, lambda gang: gang == "ml/run-3")
    history.note_start("ml", Outcome(10.0, 20.0, 30.0))
    other = RunHistory()
    other.restore(history.text())
    assert len(other.text()) < 60 * (RUNS_MAX + 1)
    records = other.records(100.0)
    assert len(records) == LIKE_MAX
    assert {(record.key.stem, record.run_s) for record in records} == {("run", 100.0)}
    assert other.calibration == history.calibration != RunHistory().calibration
    assert next(record for record in history.records(100.0) if record.key.stem == "last").run_s == 50


def test_users_of_runs_are_remembered_and_earlier_versions_read_the_rest():
    history, users = RunHistory(), {"ml/train-1": "ada", "ml/train-2": "bob"}
    history.note((), [running(name, 0.0) for name in ("train-1", "train-2", "eval-1")], 0.0, lambda _: False, lambda gang: users.get(gang, ""))  # fmt: skip
    assert history.users() == users
    users.clear()  # their pods are gone
    history.note((), (), 60.0, lambda _: False, lambda gang: users.get(gang, ""))
    other = RunHistory()
    other.restore(history.text())
    assert [record.key for record in other.records(60.0)] == [
        GangKey("ml", "train", 1, "ada"), GangKey("ml", "train", 1, "bob"), GangKey("ml", "eval", 1, ""),
    ]  # fmt: skip
    stored = json.loads(history.text())
    assert all(len(run) == 6 for run in stored["runs"]), "as the version before wrote and reads them"
    del stored["users"]
    before = RunHistory()
    before.restore(json.dumps(stored))
    assert {record.key.user for record in before.records(60.0)} == {""}


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"runs": [[1, 2]]}', '{"runs": 3}', '{"outcomes": [["x", 1, 2]]}', '{"users": [["ada", "x"]]}'],
)
def test_a_history_that_cannot_be_read_is_refused_and_nothing_taken_of_it(text: str):
    history = RunHistory()
    with pytest.raises(ValueError, match="no history of runs"):
        history.restore(text)
    assert history.records(0.0) == []


class Paced(Forecaster):
    """On virtual time: notes when forecasts are made, each of which takes `cpu_s`."""

    def __init__(self, cpu_s: float, *, changes: bool) -> None:
        self.now, self.made, self.cpu_s = 0.0, list[float](), cpu_s
        self.cycle = SimpleNamespace(deciding=False, decisions=1)
        checkpoint = SimpleNamespace(read=self.nothing, write=self.nothing, history=RunHistory())
        reporting = SimpleNamespace(forecasts=None, report=None)
        time = Time(clock=lambda: self.now, wall=lambda: self.now, sleep=self.sleeping)
        parts: Any = (None, None, self.cycle, reporting, checkpoint, Metrics(), time)
        super().__init__(*parts)
        self.changes = changes

    async def nothing(self) -> None: ...

    async def sleeping(self, delay_s: float) -> None:
        self.now += delay_s
        self.cycle.decisions += self.changes
        if self.now > 3600:
            raise asyncio.CancelledError

    async def refresh(self, now: float) -> float:
        self.made.append(self.now)
        self._cpu_s = self.cpu_s
        return 0.0


@pytest.mark.parametrize(
    ("cpu_s", "changes", "least_s", "most_s"),
    [(0.05, True, 12, 12), (0.05, False, 60, 74), (1.0, True, 50, 52), (1.0, False, 200, 254), (6.0, True, 300, 302)],
)
async def test_forecasts_take_a_bounded_part_of_a_core(cpu_s: float, changes: bool, least_s: float, most_s: float):
    paced = Paced(cpu_s, changes=changes)
    with pytest.raises(asyncio.CancelledError):
        await paced.run()
    between = [late - early for early, late in itertools.pairwise(paced.made)]
    assert len(between) >= 10
    assert all(least_s <= each <= most_s for each in between)
    assert len(paced.made) * cpu_s <= 3600 * (0.02 if changes else 0.005) + cpu_s


async def test_the_first_gang_that_waits_is_forecast_without_a_rest():
    paced = Paced(0.0, changes=True)

    async def refresh(now: float) -> float:
        paced.made.append(paced.now)
        paced._waiting = paced.now >= 60.0
        return 0.0

    paced.refresh = refresh  # type: ignore[method-assign]
    with pytest.raises(asyncio.CancelledError):
        await paced.run()
    before = [at for at in paced.made if at < 60.0]
    assert max(after - at for at, after in itertools.pairwise(before)) <= 2.0
    since = [at for at in paced.made if at >= 60.0]
    assert since[0] <= 62.0
    assert since[1] - since[0] >= forecaster.LEAST_S


def test_one_namespace_s_many_runs_push_out_its_own_and_no_other_s():
    history = RunHistory()
    history.note((), [running("train", 0.0)], 86_402.0, lambda _: False)
    history.note((), (), 86_402.0, lambda _: False)
    for start in range(0, RUNS_MAX + 1000, 500):
        flood = [
            RunningGang(namespace="red", name=f"x{at}y", uid=str(at), queue=None, claims=(), started=90_000.0)
            for at in range(start, start + 500)
        ]
        history.note((), flood, 90_001.0, lambda _: False)
        history.note((), (), 90_001.0, lambda _: False)
    records = history.records(90_001.0)
    assert len(records) == RUNS_MAX
    assert [(each.key.stem, each.run_s) for each in records if each.key.namespace == "ml"] == [("train", 86_402.0)]
    history.note_restart(GangKey("ml", "train", 1), 5.0)
    for at in range(KEYS_MAX + 100):
        history.note_restart(GangKey("red", f"x{at}", 1), 1.0)
    assert history.restart_s(GangKey("ml", "train", 1)) == 5.0


def test_one_namespace_s_many_starts_push_out_its_own_outcomes_and_no_other_s():
    history = RunHistory()
    known = [Outcome(9_000.0 + number, 100.0, 200.0) for number in range(KEPT_MAX // 4)]
    for outcome in known:
        history.note_start("ml", outcome)
    for _ in range(3 * KEPT_MAX):
        history.note_start("red", Outcome(1.0, 1.0, 1.0))
    kept = [*known, *[Outcome(1.0, 1.0, 1.0)] * (KEPT_MAX - len(known))]
    assert history.calibration == Calibration(kept)
    successor = RunHistory()
    successor.restore(history.text())
    for _ in range(KEPT_MAX):
        successor.note_start("red", Outcome(1.0, 1.0, 1.0))
    assert successor.calibration == Calibration(kept), "the namespaces outlive the controller"
