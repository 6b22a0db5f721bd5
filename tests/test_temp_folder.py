"""A run of tests leaves nothing in the temp folder: one that would fails, and one that is cut off takes its folder with it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LEAVES = "import tempfile\n\ndef test_it(): tempfile.mkdtemp(prefix='left-')\n"
TIDY = "import tempfile\n\ndef test_it():\n    with tempfile.TemporaryDirectory(): pass\n"
LASTS = "import tempfile, time\n\ndef test_it():\n    print(tempfile.mkdtemp(), flush=True)\n    time.sleep(60)\n"


def started(folder: Path, text: str, *options: str) -> subprocess.Popen[str]:
    """pytest with this repository's conftest, on one test of its own, and with a temp folder that nothing else uses."""
    (folder / "t").mkdir()
    (folder / "test_it.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "-p", "conftest", *options]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.Popen(
        [*command, str(folder / "test_it.py")],
        cwd=ROOT,
        env=environment | {"TMPDIR": str(folder / "t")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def left(folder: Path) -> list[str]:
    return [each.name for each in (folder / "t").iterdir() if not each.name.startswith("pytest-of-")]


@pytest.mark.parametrize(
    ("text", "options", "code"),
    [(LEAVES, (), 1), (LEAVES, ("-n", "2"), 1), (TIDY, (), 0)],
    ids=["leaves", "leaves-xdist", "tidy"],
)
def test_a_run_that_leaves_a_folder_behind_fails(
    text: str, options: tuple[str, ...], code: int, tmp_path: Path
) -> None:
    with started(tmp_path, text, *options) as process:
        said, _ = process.communicate(timeout=100)
    assert process.returncode == code, said
    assert ("FAILED 1 files or folders were left in the temp folder: left-" in said) == bool(code), said
    assert left(tmp_path) == []


def test_a_run_that_is_cut_off_leaves_nothing(tmp_path: Path) -> None:
    with started(tmp_path, LASTS, "-s") as process:
        assert process.stdout is not None
        made = next(line.strip() for line in process.stdout if str(tmp_path) in line)
        assert Path(made).is_dir()
        process.send_signal(signal.SIGTERM)
        said = process.stdout.read()
        process.wait(30)
    assert "cut off while these ran" in said
    assert left(tmp_path) == []
