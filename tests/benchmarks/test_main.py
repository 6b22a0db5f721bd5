"""The benchmarks are found by name, and a bar is met from the right side."""

import json
from pathlib import Path

import pytest

from benchmarks import __main__ as benchmarks


def test_every_module_with_figures_is_a_benchmark() -> None:
    assert "cel" in benchmarks.names()
    assert "cel_rivals" not in benchmarks.names()


def test_an_unknown_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        benchmarks.main(["nonsense"])
    assert "no benchmark nonsense" in capsys.readouterr().err


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


def test_figures_are_written_as_a_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = {"figure": "cel/full/1", "value": 1.5, "unit": "us", "bar": 5.0}
    monkeypatch.setattr(benchmarks, "measure", lambda name: [figure])
    assert benchmarks.main(["cel", "--json", str(tmp_path / "figures.json")]) == 0
    assert json.loads((tmp_path / "figures.json").read_text()) == [figure]
