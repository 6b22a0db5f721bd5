"""`fairlead demo` where its cluster does not come up, and what it prints of one that stays; that it runs is `test_programs`'."""

from __future__ import annotations

import asyncio
import contextlib
import io
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from fairlead.cli.demo import run
from fairlead.sandbox.install.programs import ProgramError


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            ProgramError("driver a is not ready after 30 s; its log /x/a.log ends with:\n[warn] busy"),
            "ends with:\n[warn] busy",
        ),
        (TimeoutError(), "TimeoutError"),
        (OSError(28, "No space left on device"), "No space left on device"),
    ],
    ids=["program", "time", "disk"],
)
def test_a_cluster_that_does_not_start_is_a_sentence_with_the_next_step(
    error: Exception, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Refusing:
        def __init__(self, _: Any) -> None:
            pass

        async def __aenter__(self) -> None:
            raise error

        async def __aexit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(run, "Cluster", Refusing)
    assert run.run_demo(keep=False, plain=True, workdir=tmp_path) == 1
    printed = capsys.readouterr().out
    assert printed.splitlines()[1].startswith("the cluster did not start: ")
    assert said in printed
    assert "make demo DEMO_FLAGS='--workdir DIR'" in printed
    assert "Traceback" not in printed


async def test_of_a_cluster_that_stays_it_prints_all_that_another_shell_needs(tmp_path: Path) -> None:
    printed = io.StringIO()
    demo = run.Demo(Console(file=printed, soft_wrap=True), plain=True, keep=True, workdir=tmp_path)
    node = SimpleNamespace(plugins_dir=tmp_path / "plugins")
    cluster: Any = SimpleNamespace(kubeconfig=lambda: tmp_path / "admin.yaml", nodes={run.NODES[0].name: node})
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(demo._stay(cluster, "http://127.0.0.1:1/"), 0.01)
    text = printed.getvalue()
    assert f"export KUBECONFIG={tmp_path / 'admin.yaml'} PATH={Path(sys.executable).parent}:$PATH" in text
    assert "kubectl delete -f examples/03-two-gangs; kubectl apply -f examples/03-two-gangs" in text
