"""Each target takes some thousand inputs of a fixed seed; faults that are planted are found; what once failed stays mended."""

from __future__ import annotations

import io
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from tests.fuzz.json_mutations import json_mutations
from tests.fuzz.mutations import byte_mutations
from tests.fuzz.processes import run_all
from tests.fuzz.report import Report
from tests.fuzz.run import Limits, Run, judged, saved
from tests.fuzz.target import Finding, Outcome, Target
from tests.fuzz.targets import TARGETS, made
from tests.fuzz.watchdog import Watchdog
from tests.support.engine.examples import examples

LARGE = {"controller-views": 30, "imports": 50, "kubeconfig": 30, "gpu-profiles": 50, "admission-reviews": 60}
"""How many inputs of targets whose inputs are large; 150 of the others. `make fuzz`, which CI runs, too, tries many more."""
KEPT = Path(__file__).parent / "data"


@pytest.fixture(autouse=True)
def untraced():
    """The guide traces, and gives back what traced before."""
    before = sys.gettrace()
    yield
    assert sys.gettrace() is before


@pytest.mark.property
@pytest.mark.parametrize("name", TARGETS)
def test_a_target_takes_what_it_is_given(name, tmp_path):
    target = made(name, tmp_path)
    outcome = Run(target, seed=20261122).run(Limits(inputs=examples(LARGE.get(name, 150), least=12)))
    target.close()
    faults = [f"{each.text}\n{each.trace}\ninput: {each.input!r}" for each in outcome.findings]
    assert not faults, "\n".join(faults)
    assert outcome.lines > 10, "the guide sees the parser"


@pytest.mark.parametrize("path", sorted(KEPT.glob("*.bin")), ids=lambda path: path.name)
def test_what_once_failed_is_taken(path, tmp_path):
    """Files are named <target>.<what it was>.bin."""
    target = made(path.name.partition(".")[0], tmp_path)
    with Watchdog() as watchdog:
        fault, _ = judged(target, path.read_bytes(), watchdog)
    target.close()
    if fault is not None:
        raise fault


# -- the harness finds what is planted -----------------------------------------------------------------------------------


def planted(run, *, seeds=(b"abcdef", b'{"a":{"b":[1,2]}}'), mutate=None, allowed=(), **more):
    return Target(name="planted", run=run, seeds=seeds, mutate=mutate or byte_mutations(), allowed=allowed, **more)


def the_finding(outcome: Outcome) -> Finding:
    (finding,) = outcome.findings
    return finding


@pytest.mark.slow
def test_an_exception_that_is_not_declared_is_found_with_a_short_input():
    def run(data: bytes) -> None:
        if b"\x00" in data:
            raise KeyError("planted")
        raise ValueError("declared")

    finding = the_finding(Run(planted(run, allowed=(ValueError,)), seed=1).run(Limits(inputs=2_000)))
    assert (finding.kind, finding.input) == ("exception", b"\x00")
    assert finding.text.startswith("KeyError")
    assert "in run" in finding.trace


@pytest.mark.slow
def test_an_input_that_never_ends_is_ended_and_named():
    def run(data: bytes) -> None:
        while data.startswith(b"abc"):
            try:
                sum(range(1_000))
            except Exception:  # a parser that catches everything does not catch the end
                continue

    began = time.monotonic()
    finding = the_finding(Run(planted(run), seed=1).run(Limits(inputs=1)))
    assert (finding.kind, finding.input) == ("hang", b"abcdef")
    assert time.monotonic() - began < 30


@pytest.mark.slow
@pytest.mark.parametrize("size", [10, 20_000])
def test_memory_that_stays_is_found_in_many_small_objects_and_in_few_large_ones(size):
    kept: list[tuple[bytearray, int]] = []

    def run(data: bytes) -> None:
        kept.append((bytearray(size), len(kept)))

    assert the_finding(Run(planted(run), seed=1).run(Limits(inputs=20_000 if size == 10 else 2_000))).kind == "growth"


@pytest.mark.slow
def test_the_same_seed_gives_the_same_inputs_and_another_seed_others():
    def inputs(seed: int) -> list[bytes]:
        found: list[bytes] = []
        mutate = json_mutations(("word",))
        Run(planted(lambda _: None, mutate=mutate, traced=("test_fuzz",)), seed=seed, note=found.append).run(
            Limits(inputs=500)
        )
        return found

    first = inputs(7)
    assert first == inputs(7)
    assert first != inputs(8)
    assert len(set(first)) > 300


@pytest.mark.slow
def test_inputs_that_reach_new_lines_are_kept_and_lead_further():
    """Four bytes in a row: by chance one in four thousand million, step by step a few thousand."""

    def run(data: bytes) -> None:
        if data[:1] != b"N":
            return
        if data[1:2] != b"U":
            return
        if data[2:3] != b"L":
            return
        if data[3:4] == b"L":
            raise RuntimeError("found")

    words = (b"N", b"U", b"L")
    guided = planted(run, mutate=byte_mutations(words, most=1), traced=("test_fuzz",), seeds=(b"....",))
    assert the_finding(Run(guided, seed=3).run(Limits(inputs=60_000))).text == "RuntimeError: found"


# -- processes, report, command line -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_process_that_dies_is_a_fault_with_its_last_input(monkeypatch):
    monkeypatch.setenv("FUZZ_DIE_AT", "7")
    (outcome,) = run_all(["texts"], seed=5, limits=Limits(inputs=50), workers=1)
    finding = the_finding(outcome)
    assert finding.kind == "crash"
    assert finding.input


def test_the_report_prints_seed_and_command_and_fails(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = io.StringIO()
    report = Report(42, Console(file=said, width=200, soft_wrap=True, highlight=False))
    fault = Finding(target="texts", kind="exception", text="KeyError: 'x'", trace="Traceback", input=b"bad")
    good = Outcome(target="lease", seed=42, inputs=10, elapsed_s=1, slowest_ms=1, growth_mib=0, lines=3)
    report.add(good)
    report.add(
        Outcome(target="texts", seed=42, inputs=5, elapsed_s=1, slowest_ms=2, growth_mib=0, lines=1, findings=(fault,))
    )
    assert report.end() == 1
    text = said.getvalue()
    path = saved(fault, Path(".fuzz"))
    assert "15 inputs, seed 42: 1 fault" in text
    assert f"--target texts --play {path}" in text
    assert path.read_bytes() == b"bad"
    clean = Report(42, Console(file=said, width=200))
    clean.add(good)
    assert clean.end() == 0
