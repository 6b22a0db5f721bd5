"""What TrainJobs report reaches forecasts; what is malformed, stale or of another run reaches nothing and breaks nothing."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytest
from hypothesis import given, strategies

from fairlead.api import names
from fairlead.controller.forecasting import forecaster
from fairlead.controller.forecasting.forecaster import OVERDUE_S, progress
from fairlead.controller.gangs.membership.gangs import Gang
from fairlead.controller.watch.other_systems import JOBSET_NAME, LEFT_MAX_S, TRAIN_JOBS, kept_of_train_job, report
from fairlead.engine.forecast.run_times import Progress
from fairlead.engine.types.gangs import RunningGang
from fairlead.kube import resources, timestamps
from fairlead.kube.resources import CRDS, Raw
from tests.controller.conftest import NAMESPACE, Bench
from tests.controller.gang_views import Objects, claim, pod, view

NOW = 1_790_000_000.0
SAID = "2026-09-21T14:13:20Z"  # NOW


def train_job(trainer: Any = None, **status: Any) -> Raw:
    metadata = {"name": "bert", "namespace": NAMESPACE, "uid": "u", "resourceVersion": "7", "managedFields": [1] * 99}
    return {"metadata": metadata, "spec": {"trainer": {}}, "status": {"trainerStatus": trainer, **status}}


def said(left: Any, at: Any = SAID) -> Raw:
    return train_job({"estimatedRemainingSeconds": left, "lastUpdatedTime": at, "metrics": [{"name": "loss"}] * 256})


def test_what_is_left_and_when_that_was_said_are_read():
    assert report(said(90)) == Progress(90.0, NOW)
    assert report(said(0)) == Progress(0.0, NOW)
    assert report(said(LEFT_MAX_S)) == Progress(float(LEFT_MAX_S), NOW)


KEYS = strategies.sampled_from(["trainerStatus", "estimatedRemainingSeconds", "lastUpdatedTime", "x"])
MALFORMED: list[Any] = [
    said("90"), said(-1), said(LEFT_MAX_S + 1), said(2**70), said(None), said(True), said(90.5), said(float("nan")), said([90]), said({}),
    said(90, None), said(90, 1790000000), said(90, "yesterday"), said(90, ""), said(90, "9999-99-99"), said(90, {"a": 1}),
    train_job(), train_job([]), train_job("running"), train_job(7), train_job({}), train_job({"progressPercentage": 50}),
    {"metadata": {"name": "bert"}}, {"metadata": {"name": "bert"}, "status": None}, {"metadata": {"name": "bert"}, "status": [1]},
    {"metadata": {"name": "bert"}, "status": "Complete"},
]  # fmt: skip


@pytest.mark.parametrize("raw", MALFORMED)
def test_what_cannot_be_read_says_nothing(raw: Raw):
    assert report(raw) is None
    assert kept_of_train_job(raw)["report"] is None


JSON = strategies.recursive(
    strategies.none()
    | strategies.booleans()
    | strategies.integers()
    | strategies.floats()
    | strategies.text(max_size=30),
    lambda inner: strategies.lists(inner, max_size=3) | strategies.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)


@given(JSON)
def test_no_status_breaks_anything(status: Any):
    found = kept_of_train_job({"metadata": {"name": "bert"}, "status": status})["report"]
    assert found is None or 0 <= found.left_s <= LEFT_MAX_S


def test_little_is_kept_of_a_train_job():
    found = kept_of_train_job(said(90))
    assert found == {
        "metadata": {"name": "bert", "namespace": NAMESPACE, "uid": "u", "resourceVersion": "7"},
        "report": Progress(90.0, NOW),
    }
    assert sys.getsizeof(found) + sys.getsizeof(found["metadata"]) < 1000


def gang(annotations: dict[str, str] | None = None) -> Gang:
    notes = {names.GANG: "bert", names.GANG_SIZE: "1", **(annotations or {})}
    held = claim("c", "bert-0", node="n1", reserved=["bert-0"])
    released = pod("bert-0", gated=False, node="n1", claim="c", labels={JOBSET_NAME: "bert"}, annotations=notes)
    found: Gang = view(released, objects=Objects([held]))
    assert found.released
    return found


def left_of(reported: Progress | None, annotations: dict[str, str] | None = None, started: float = NOW - 5000) -> Any:
    running = RunningGang(namespace=NAMESPACE, name="bert", uid="g", queue=None, claims=(), started=started)
    asked: list[tuple[str, str]] = []

    def ask(namespace: str, labels: Any) -> Progress | None:
        asked.append((namespace, labels[JOBSET_NAME]))
        return reported

    found = dict(progress([running], {(NAMESPACE, "bert"): gang(annotations)}, ask, NOW))
    assert asked in ([], [(NAMESPACE, "bert")])
    return found.get(f"{NAMESPACE}/bert")


def test_a_train_jobs_report_is_its_gangs_progress():
    assert left_of(Progress(300.0, NOW - 60)) == Progress(300.0, NOW - 60)
    assert left_of(None) is None
    assert left_of(Progress(300.0, NOW + 60)) == Progress(300.0, NOW), "a clock that is ahead"


def test_an_annotation_goes_before_it():
    end = {names.EXPECTED_END: timestamps.seconds(NOW + 120)}
    assert left_of(Progress(300.0, NOW), end) == Progress(120.0, NOW)
    assert left_of(Progress(300.0, NOW), {names.EXPECTED_END: "soon"}) == Progress(300.0, NOW)


def test_what_was_said_of_an_earlier_run_is_not_believed():
    assert left_of(Progress(300.0, NOW - 60), started=NOW - 59) is None
    assert left_of(Progress(300.0, NOW - 60), started=NOW - 60) is not None


def test_an_end_that_is_long_past_is_not_believed():
    assert left_of(Progress(300.0, NOW - 300 - OVERDUE_S)) is not None
    assert left_of(Progress(300.0, NOW - 301 - OVERDUE_S)) is None
    past = {names.EXPECTED_END: timestamps.seconds(NOW - 10)}
    assert left_of(None, past) == Progress(0.0, NOW)
    assert left_of(None, {names.EXPECTED_END: timestamps.seconds(NOW - OVERDUE_S - 10)}) is None


def test_a_gang_that_is_not_known_has_no_progress():
    running = RunningGang(namespace=NAMESPACE, name="gone", uid="g", queue=None, claims=())
    assert dict(progress([running], {}, lambda *_: Progress(1.0, NOW), NOW)) == {}


async def serve_train_jobs(bench: Bench) -> None:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1alpha1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    body = {
        "metadata": {"name": "trainjobs.trainer.kubeflow.org"},
        "spec": {
            "group": "trainer.kubeflow.org",
            "names": {"plural": "trainjobs", "singular": "trainjob", "kind": "TrainJob", "listKind": "TrainJobList"},
            "scope": "Namespaced",
            "versions": [version],
        },
    }
    await bench.client.create(resources.raw(CRDS), body)


async def test_a_waiting_gang_is_forecast_from_the_train_job_before_it(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    for name in ("SETTLE_S", "LEAST_S", "REFRESH_S"):
        monkeypatch.setattr(forecaster, name, 0.2)
    for name in ("CPU_PART", "IDLE_CPU_PART"):
        monkeypatch.setattr(forecaster, name, 1.0)
    await serve_train_jobs(bench)
    for number, raw in enumerate(MALFORMED):  # all of them in the list that the controller begins with
        body = {**raw, "metadata": {"name": f"broken-{number}", "namespace": NAMESPACE}}
        if "nan" not in str(body):
            await bench.client.create(TRAIN_JOBS, body)
    await bench.template("node", 8)
    async with bench.controller(forecast=True):
        first = await bench.gang("bert", 2, template="node", labels={JOBSET_NAME: "bert"})
        await bench.until(lambda: bench.running(first), "the TrainJob's pods run")
        job = said(3600, timestamps.seconds(time.time() + 2))
        await bench.client.create(TRAIN_JOBS, {**job, "metadata": {"name": "bert", "namespace": NAMESPACE}})
        await bench.gang("next", 2, template="node")

        def forecast() -> dict[str, Any]:
            return dict(bench.status("next").get("forecast", {}))

        await bench.until(lambda: "reported progress" in forecast().get("because", ""), "a forecast from its report")
        assert abs(timestamps.parse(forecast()["p50"]) - time.time() - 3600) < 900
