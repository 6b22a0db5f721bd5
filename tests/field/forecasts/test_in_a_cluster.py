"""The controller on the sandbox: what a user reads of a gang that never starts, and of one that waits for a set eviction."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from fairlead.api import names
from fairlead.controller.forecasting import forecaster
from fairlead.kube import timestamps
from fairlead.kube.resources import FLAVORS, QUEUES
from fairlead.ui.model import gangs as lines
from fairlead.ui.model.explanations import gang_explanation
from tests.controller.conftest import benches

GRACE_S = 300


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecaster, "SETTLE_S", 0.1)
    monkeypatch.setattr(forecaster, "LEAST_S", 0.1)
    monkeypatch.setattr(forecaster, "CPU_PART", 1.0)
    monkeypatch.setattr(forecaster, "PAUSE_FACTOR", 1)


async def test_a_mistyped_label_gives_no_time_and_a_set_eviction_is_the_time(tmp_path: Path, quick: None):
    async with benches(tmp_path, count=1) as bench:
        await bench.client.create(FLAVORS, {"metadata": {"name": "gpu"}, "spec": {"deviceSelector": "true"}})
        for name, deserved in (("lends", 0), ("owns", 8)):
            flavors = [{"flavor": "gpu", "deserved": deserved}]
            await bench.client.create(QUEUES, {"metadata": {"name": name}, "spec": {"flavors": flavors}})
        await bench.template("node", 8)
        async with bench.controller(forecast=True):
            notes = {names.QUEUE: "lends", names.CHECKPOINT_GRACE: f"{GRACE_S}s"}
            victim = await bench.gang("victim", 1, template="node", annotations=notes)
            await bench.until(lambda: bench.running(victim), "what is borrowed runs")
            await bench.gang(
                "typo", 1, template="node", annotations={names.QUEUE: "lends"}, nodeSelector={"pool": "not-existing"}
            )
            await bench.gang("owner", 1, template="node", annotations={names.QUEUE: "owns"})
            await bench.until(lambda: bench.status("typo").get("forecast", {}).get("never", False), "never")
            typo = bench.status("typo")
            assert typo["why"]["couldEverFit"] is False
            assert not {"p50", "p90"} & typo["forecast"].keys()
            assert lines.forecast(typo, now=time.time()) == "never"

            def at() -> str:
                pod = bench.get(victim[0])
                return "" if pod is None else pod.metadata.annotations.get(names.EVICT_AT, "")

            await bench.until(lambda: bool(at()), "its eviction is set")
            await bench.until(lambda: at() in bench.status("owner").get("why", {}).get("message", ""), "it is named")
            await bench.until(lambda: "p50" in bench.status("owner").get("forecast", {}), "a forecast")
            status = bench.status("owner")
            assert timestamps.parse(status["forecast"]["p50"]) >= timestamps.parse(at())
            assert "were evicted" not in status["why"]["message"]
            raw = {"metadata": {"namespace": "ml", "name": "owner"}, "spec": {"size": 1}, "status": status}
            parts = {part.title: part.lines for part in gang_explanation(raw, now=time.time()).parts}
            assert at() in " ".join(parts["Forecast of its start"])
