"""A run of tests leaves nothing in the temp folder: what its tests left is named and goes, also where it is cut off."""

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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "options", "named"),
    [(LEAVES, (), True), (LEAVES, ("-n", "2"), True), (TIDY, (), False)],
    ids=["leaves", "leaves-xdist", "tidy"],
)
def test_what_a_run_leaves_is_named_and_goes(text: str, options: tuple[str, ...], named: bool, tmp_path: Path) -> None:
    with started(tmp_path, text, *options) as process:
        said, _ = process.communicate(timeout=100)
    assert process.returncode == 0, said
    assert ("1 files or folders were left in the temp folder: left-" in said) == named, said
    assert left(tmp_path) == []


@pytest.mark.slow
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
