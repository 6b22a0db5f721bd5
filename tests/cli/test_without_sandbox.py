"""The command line as the image has it: without the sandbox every command works but the demo, which says what is missing."""

import os
import site
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOTS = ("lib", "engine", "history", "driver", "webhook", "controller", "ui", "cli")


def python(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """With the source roots on the path, but not the sandbox's (-S: nor those of an editable install)."""
    path = os.pathsep.join([*(str(ROOT / root) for root in ROOTS), *site.getsitepackages()])
    return subprocess.run(
        [sys.executable, "-S", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


EVERY_HELP = """
import typer.main
from importlib.util import find_spec
from fairlead.cli.main import app

def explain(command, *words):
    whole.main([*words, "--help"], prog_name="fairlead", standalone_mode=False)
    for name, below in getattr(command, "commands", {}).items():
        explain(below, *words, name)

assert find_spec("fairlead.sandbox") is None
whole = typer.main.get_command(app)
explain(whole)
"""


@pytest.mark.slow
def test_every_command_explains_itself() -> None:
    done = python("-c", EVERY_HELP)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Usage: fairlead") == 55  # check readiness twice: help shows it in two places


SAMPLE = str(ROOT / "tests" / "cli" / "imports" / "samples" / "volcano.yaml")
WORK = {
    ("crds",): "kind: CustomResourceDefinition",
    ("check", "cel", 'device.driver == "gpu.fairlead.dev"'): "admitted",
    ("check", str(ROOT / "examples" / "00-queues")): "0 verdicts refused",
    ("tenant", "create", "ml", "--dry-run"): "kind: NetworkPolicy",
    ("devices", "--backend", "simulated:l40s"): "L40S",
    ("import", "--from=volcano", SAMPLE): "kind: Queue",
}
REFUSED = {
    ("driver", "--node-name=n", "--backend=simulated:no-such-profile", "--plugins-dir=/proc/p"): "stopped",
    ("webhook", "--url=http://127.0.0.1:1"): "https",
    ("controller", "--usage-half-life=soon"): "usage-half-life",
    ("demo", "--plain"): "fairlead.sandbox is not installed",
}
EACH = """
import os, sys
from fairlead.cli.main import main
for number, words in enumerate(COMMANDS):
    if os.fork() == 0:
        for descriptor, name in enumerate(("out", "err"), 1):
            os.dup2(os.open(f"{number}.{name}", os.O_CREAT | os.O_WRONLY), descriptor)
        sys.argv = ["fairlead", *words]
        main()
        sys.exit(0)
    print(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def run(commands: Iterable[tuple[str, ...]], work: Path) -> list[tuple[int, str, str]]:
    """Of each command, run by a fork of one process: its exit status, what it printed, and its complaints."""
    done = python("-c", EACH.replace("COMMANDS", repr(list(commands))), cwd=work)
    assert done.stderr == ""
    return [
        (int(status), (work / f"{number}.out").read_text(), (work / f"{number}.err").read_text())
        for number, status in enumerate(done.stdout.split())
    ]


@pytest.mark.slow
def test_a_command_that_needs_no_cluster_does_its_work(tmp_path: Path) -> None:
    for (status, out, err), said in zip(run(WORK, tmp_path), WORK.values(), strict=True):
        assert (status, said in out) == (0, True), out + err


@pytest.mark.slow
def test_programs_start_as_far_as_a_wrong_flag_brings_them_and_the_demo_says_what_is_missing(tmp_path: Path) -> None:
    """Their modules are imported, and the sandbox is not among them."""
    found = run(REFUSED, tmp_path)
    for (status, _, err), said in zip(found, REFUSED.values(), strict=True):
        assert (status != 0, said in err, "Traceback" in err) == (True, True, False), err
    status, out, err = found[-1]
    (line,) = err.splitlines()
    assert (status, out, "make demo" in line) == (1, "", True)
