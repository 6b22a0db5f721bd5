"""The benchmarks are found by name, and a bar is met from the right side."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as benchmarks
from benchmarks import calibration


def test_every_module_with_figures_is_a_benchmark() -> None:
    assert "cel" in benchmarks.names()
    assert "calibration" not in benchmarks.names()
    sources = (path.read_text() for path in benchmarks.PACKAGE.rglob("*.py"))
    assert len(benchmarks.names()) == sum("\ndef figures(" in source for source in sources)


@pytest.mark.parametrize(
    ("value", "unit", "bar", "met"),
    [
        (1, "s", 2, True),
        (3, "s", 2, False),
        (3, "pods/s", 2, True),
        (1, "pods/s", 2, False),
        (99, "%", 95, True),
        (1, "s", None, None),
    ],
)
def test_less_time_and_more_work_are_better(value: float, unit: str, bar: float | None, met: bool | None) -> None:
    assert benchmarks.met({"figure": "f", "value": value, "unit": unit, "bar": bar}) is met


def test_figures_are_written_as_a_list_with_the_loop_and_the_judged_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    figure = {"figure": "cel/full/1", "value": 6.0, "unit": "us", "bar": 5.0, "by_kind": {"a": 4.0, "b": 2.0}}
    monkeypatch.setattr(benchmarks, "measure", lambda name, options: [figure])
    monkeypatch.setattr(calibration, "loop_s", lambda: 0.4)
    assert benchmarks.main(["cel", "--json", str(tmp_path / "figures.json")]) == 0
    assert json.loads((tmp_path / "figures.json").read_text()) == [{**figure, "loop_s": 0.4, "judged": 3.0}]
    shown = capsys.readouterr().out
    assert "cel · loop 0.400 s; bars at 0.20 s" in shown
    assert "met" in shown
    assert "cel/full/1: 6 us" in shown


def test_words_after_two_dashes_are_options_of_the_one_benchmark(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[tuple[str, list[str]]] = []

    def measure(name: str, options: list[str]) -> list[dict[str, Any]]:
        seen.append((name, options))
        return []

    monkeypatch.setattr(calibration, "loop_s", lambda: 0.2)
    monkeypatch.setattr(benchmarks, "measure", measure)
    assert benchmarks.main(["protocol", "--", "--parts=churn", "--nodes=2"]) == 0
    assert seen == [("protocol", ["--parts=churn", "--nodes=2"])]
    with pytest.raises(SystemExit):
        benchmarks.main(["--", "--parts=churn"])
    assert "name it" in capsys.readouterr().err
