"""The command line as the image has it: without the sandbox every command works but the demo, which says what is missing."""

import os
import site
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOTS = ("lib", "engine", "history", "driver", "webhook", "controller", "ui", "cli")


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """With the source roots on the path, but not the sandbox's (-S: nor those of an editable install)."""
    path = os.pathsep.join([*(str(ROOT / root) for root in ROOTS), *site.getsitepackages()])
    return subprocess.run(
        [sys.executable, "-S", *arguments],
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def fairlead(*arguments: str) -> subprocess.CompletedProcess[str]:
    return python("-m", "fairlead", *arguments)


EVERY_HELP = """
import typer.main
from importlib.util import find_spec
from fairlead.cli.main import app

def explain(command, *words):
    app([*words, "--help"], prog_name="fairlead", standalone_mode=False)
    for name, below in getattr(command, "commands", {}).items():
        explain(below, *words, name)

assert find_spec("fairlead.sandbox") is None
explain(typer.main.get_command(app))
"""


def test_every_command_explains_itself() -> None:
    done = python("-c", EVERY_HELP)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Usage: fairlead") == 52


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("crds",), "kind: CustomResourceDefinition"),
        (("check", "cel", 'device.driver == "gpu.fairlead.dev"'), "admitted"),
        (("check", str(ROOT / "examples" / "00-queues")), "0 verdicts refused"),
        (("tenant", "create", "ml", "--dry-run"), "kind: NetworkPolicy"),
        (("devices", "--backend", "simulated:l40s"), "L40S"),
        (
            ("import", "--from=volcano", str(ROOT / "tests" / "cli" / "imports" / "samples" / "volcano.yaml")),
            "kind: Queue",
        ),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, tuple) else None,
)
def test_a_command_that_needs_no_cluster_does_its_work(arguments: tuple[str, ...], said: str) -> None:
    done = fairlead(*arguments)
    assert (done.returncode, said in done.stdout) == (0, True), done.stdout + done.stderr


def test_the_programs_start() -> None:
    """As far as a wrong flag value brings them: their modules are imported, and the sandbox is not among them."""
    for arguments, said in (
        (("driver", "--node-name=n", "--backend=simulated:no-such-profile", "--plugins-dir=/proc/p"), "stopped"),
        (("webhook", "--url=http://127.0.0.1:1"), "https"),
        (("controller", "--usage-half-life=soon"), "usage-half-life"),
    ):
        done = fairlead(*arguments)
        assert done.returncode != 0
        assert said in done.stderr
        assert "Traceback" not in done.stderr


def test_the_demo_says_in_one_line_what_is_missing_and_what_to_do() -> None:
    done = fairlead("demo", "--plain")
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert "fairlead.sandbox is not installed" in line
    assert "make demo" in line
