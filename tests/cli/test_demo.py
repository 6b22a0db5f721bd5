"""`fairlead demo`: that it runs and what it prints, what a signal leaves of it, and where its cluster does not come up or stays."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from fairlead.cli.demo import run, view
from fairlead.cli.demo.history import GangKey, History
from fairlead.sandbox import files
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
    assert run.run_demo(keep=False, plain=True, workdir=tmp_path, start_s=time.monotonic()) == 1
    printed = capsys.readouterr().out
    assert printed.splitlines()[1].startswith("the cluster did not start: ")
    assert said in printed
    assert "make demo DEMO_FLAGS='--workdir DIR'" in printed
    assert "Traceback" not in printed


async def test_of_a_cluster_that_stays_it_prints_all_that_another_shell_needs(tmp_path: Path) -> None:
    printed = io.StringIO()
    demo = run.Demo(Console(file=printed), plain=True, keep=True, workdir=tmp_path, start_s=time.monotonic())
    node = SimpleNamespace(plugins_dir=tmp_path / "plugins")
    cluster: Any = SimpleNamespace(kubeconfig=lambda: tmp_path / "admin.yaml", nodes={run.NODES[0].name: node})
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(demo._stay(cluster, "http://127.0.0.1:1/"), 0.01)
    text = printed.getvalue()
    assert f"export KUBECONFIG={tmp_path / 'admin.yaml'} PATH={Path(sys.executable).parent}:$PATH" in text
    again = re.search(r"kubectl delete -f (\S+)\n  sed 's/(.+?)/(.+?)/' (\S+) \| kubectl apply -f -", text)
    assert again, text
    assert files.find(again[1]) == files.find(again[4]).parent
    assert files.find(again[4]).read_text().count(again[2]) == 2, "the sleep of both gangs"


@contextlib.contextmanager
def demo() -> Iterator[subprocess.Popen[str]]:
    """`fairlead demo` into a pipe. At the end it must have ended, with all that it started, and its temporary files be gone."""
    with tempfile.TemporaryDirectory(prefix="fl-") as temporary:  # not pytest's: a socket's path has at most 107 bytes
        yield from _demo(Path(temporary))


def _demo(temporary: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "fairlead", "demo"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"TMPDIR": str(temporary)},
    )
    with process:
        try:
            yield process
            process.wait(30)
        finally:
            process.kill()
    assert list(temporary.iterdir()) == []
    if Path("/proc/self/environ").exists():
        assert list(_with_environment(f"TMPDIR={temporary}")) == []


def _with_environment(variable: str) -> Iterator[str]:
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if variable.encode() in (process / "environ").read_bytes().split(b"\0"):
                yield (process / "cmdline").read_text()


@pytest.mark.slow
def test_it_says_what_it_does_from_the_beginning_and_keeps_its_promises_in_lines_of_160_characters(
    tmp_path: Path,
) -> None:
    start_s = time.monotonic()
    with demo() as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first.startswith("  0.0s loading ")
        lines = process.stdout.read().splitlines()
    took_s = time.monotonic() - start_s
    text = "\n".join(lines)
    assert process.returncode == 0, text
    assert max(map(len, lines)) <= 160, max(lines, key=len)
    started = [found[1] for line in lines if (found := re.fullmatch(r" *[\d.]+s (\w+).*\(took \d+\.\ds\)", line))]
    assert started == ["apiserver", "installation", "controller", "kubelets", "drivers", "webhook", "controller"]
    for shown in (
        "language/chat-",  # of a Deployment
        "language/bert waits: Not enough free devices for its 12 pods, 1 device each: 12 wanted, 4 free on 1 node, 8 missing",
        "reclaimed for gang language/finetune",
    ):
        assert shown in text
    last = re.fullmatch(
        r"ok 6 cases as promised; no device was ever in two of (\d+) claims; all claims released, all hardware free; (\d+)s",
        lines[-1],
    )
    assert last, lines[-1]
    assert int(last[1]) > 50
    assert 15 < int(last[2]) <= took_s + 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "line"),
    [
        (signal.SIGTERM, "apiserver"),
        pytest.param(signal.SIGINT, "kubelets of", marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, "language/bert waits", marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, "is to be evicted", marks=pytest.mark.slow),
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_a_signal_ends_it_quickly_and_leaves_nothing(number: signal.Signals, line: str) -> None:
    with demo() as process:
        assert process.stdout is not None
        before = next((each for each in process.stdout if line in each), None)
        assert before, "ended before"
        process.send_signal(number)
        sent_s = time.monotonic()
        said = process.stdout.read()
        process.wait(30)
    assert time.monotonic() - sent_s < 15, "on a machine that is busy with other tests"
    assert process.returncode == 128 + number, said
    assert said.splitlines()[-1] == "interrupted", said
    assert "Traceback" not in said


REASON = (
    "Not enough free devices for its 2 pods, 1 device each: 2 wanted, 1 free on 1 node, 1 missing. 1 of 2 members would fit now. "
    "Request gpu of claim a-0 [of] a wants 1; of 8 devices these do not serve: 7 (in use). "
    + "Wait until gangs end. "
    * 9
)


def _waiting(reason: str) -> History:
    history = History()
    meta = {"namespace": "vision", "name": "a-0", "uid": "u", "annotations": {"fairlead.dev/gang": "a"}}
    history.pod({"metadata": meta}, now_s=1.0)
    history.gang({"metadata": {"namespace": "vision", "name": "a"}, "status": {"phase": "Waiting", "message": reason}})
    found = history.find(*GangKey("vision", "a"))
    assert found is not None
    assert found.reasons == [reason]
    return history


@pytest.mark.parametrize(
    ("width", "end"),
    [
        (60, "for its 2 pods, 1 d…"),
        (120, "1 missing. …"),
        (160, "1 of 2 members would fit now. …"),
        (200, "wants 1; …"),
    ],
)
def test_the_reason_of_a_wait_is_one_line_that_ends_with_a_clause(width: int, end: str) -> None:
    history = _waiting(REASON)
    printed = io.StringIO()
    drawn = view.draw(history, [], now_s=2.0, title="Fairlead", width=width)
    Console(file=printed, width=width).print(drawn)
    (line,) = [each for each in printed.getvalue().splitlines() if "waits: " in each]
    assert line.startswith("vision/a waits: Not enough free devices")
    assert line.rstrip().endswith(end)
    assert max(map(len, printed.getvalue().splitlines())) <= width


def test_a_pipe_gets_a_reason_in_a_line_no_wider_than_it_may_be_and_once() -> None:
    history, shown = _waiting(REASON), set[Any]()
    (line,) = view.lines(history, shown, start_s=0.0, width=160)
    assert line.endswith("1 of 2 members would fit now. …")
    assert len(line) <= 160
    history.gang(
        {"metadata": {"namespace": "vision", "name": "a"}, "status": {"phase": "Waiting", "message": REASON + "More."}}
    )
    assert list(view.lines(history, shown, start_s=0.0, width=160)) == []


async def test_where_a_wave_does_not_finish_the_next_one_is_not_applied(tmp_path: Path) -> None:
    """What goes on holding devices, on a machine that is too slow, would be taken for a broken promise of the next example."""
    applied: list[str] = []

    async def apply(path: Path) -> None:
        applied.append(path.name if path.is_dir() else path.parent.name)

    async def until(condition: Any, *, timeout_s: float) -> bool:
        return False

    console = Console(file=io.StringIO(), width=160)
    demo = run.Demo(console, plain=True, keep=False, workdir=tmp_path, start_s=time.monotonic())
    demo._showing = lambda *_: contextlib.nullcontext()  # type: ignore[method-assign, assignment]
    observer: Any = SimpleNamespace(history=History(), until=until)
    failures = await demo._play(SimpleNamespace(apply=apply), observer)  # type: ignore[arg-type]
    assert "21-deployment" in applied
    assert "03-two-gangs" not in applied
    assert any(
        text.startswith("02-indexed-job: not finished after 180s, so that later examples were not") for text in failures
    )


def test_a_gang_is_placed_once_though_its_pods_go_one_by_one_when_it_is_evicted() -> None:
    history, shown = History(), set[Any]()

    def pod(number: int, *, evicted: bool = False, phase: str = "Running") -> None:
        notes = {"fairlead.dev/gang": "a"} | ({"fairlead.dev/evict-at": "2026-11-28T14:14:25Z"} if evicted else {})
        meta = {"namespace": "vision", "name": f"a-{number}", "uid": f"u{number}", "annotations": notes}
        history.pod({"metadata": meta, "spec": {"nodeName": "n1"}, "status": {"phase": phase}}, now_s=2.0)

    pod(0)
    pod(1)
    assert list(view.lines(history, shown, start_s=0.0, width=160)) == ["  2.0s vision/a placed whole, 2 pods on n1"]
    pod(0, evicted=True, phase="Failed")
    pod(1, evicted=True)
    assert list(view.lines(history, shown, start_s=0.0, width=160)) == []
