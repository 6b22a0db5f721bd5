"""Manifests that are valid and ask for more than anybody waits for: a limit of CPU time, and a message that names it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from fairlead.cli import what_if
from fairlead.cli.checks import manifests
from fairlead.cli.limits import TooLongError, cpu_at_most
from fairlead.history.facts.snapshot_file import dump
from tests.support.commands import invoke
from tests.support.engine.world import h100_world


def written(path: Path, objects: Iterable[dict[str, Any]]) -> Path:
    path.write_text("\n---\n".join(map(json.dumps, objects)))
    return path


def policy(number: int) -> dict[str, Any]:
    rule = {"name": "a", "expression": "object.spec.containers.all(c, c.name.matches('(a|b)*c'))", "message": "x"}
    meta = {"name": f"policy-{number}"}
    return {"apiVersion": "fairlead.dev/v1alpha1", "kind": "TenancyPolicy", "metadata": meta, "spec": {"rules": [rule]}}


def job(name: str, pods: int) -> dict[str, Any]:
    container = {"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    template = {
        "metadata": {"annotations": {"fairlead.dev/gang": name}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    meta = {"name": name, "namespace": "ml"}
    spec = {"parallelism": pods, "completions": pods, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}


def snapshot(path: Path, nodes: int = 2) -> Path:
    path.write_bytes(dump(h100_world(nodes).snapshot(), 1.0))
    return path


@pytest.mark.slow
def test_check_ends_itself_and_says_how_far_it_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "JUDGE_S", 1.0)
    jobs = [job(f"job-{number}", 2) for number in range(1_000)]
    file = written(tmp_path / "slow.yaml", [*map(policy, range(1_000)), *jobs])
    began = time.process_time()
    done = invoke(["check", str(file)])
    assert done.exit_code == 2
    assert " of 2000 objects were judged in 1 s of CPU time" in done.stderr
    assert "check fewer at once, or with fewer policies" in done.stderr
    assert time.process_time() - began < 10, "reading them is bounded, too"


def test_what_if_ends_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(what_if, "COMPARE_S", 0.2)
    file = written(tmp_path / "slow.yaml", [job("solo", 20_000)])
    done = invoke(["what-if", "--snapshot", str(snapshot(tmp_path / "snapshot.json", 50)), "-f", str(file)])
    assert done.exit_code == 1
    assert "it took more than 0.2 s of CPU time and was ended: submit less" in done.stderr


def test_many_jobs_together_are_no_more_pods_than_one_may_have(tmp_path: Path) -> None:
    file = written(tmp_path / "many.yaml", [job(f"job-{number}", 15_000) for number in range(100)])
    began = time.process_time()
    done = invoke(["what-if", "--snapshot", str(snapshot(tmp_path / "snapshot.json")), "-f", str(file)])
    assert done.exit_code == 1
    assert "-f: 30000 pods up to Job ml/job-1 are more than 20000: submit fewer" in done.stderr
    assert time.process_time() - began < 5


def test_the_limit_ends_what_contains_errors_and_leaves_no_timer() -> None:
    def contained_forever() -> None:
        while True:
            try:
                sum(range(1_000))
            except Exception:  # as a loop over gangs
                continue

    with pytest.raises(TooLongError), cpu_at_most(0.05):
        contained_forever()
    with cpu_at_most(0.05):
        pass
    began = time.process_time()
    while time.process_time() - began < 0.2:
        sum(range(1_000))
