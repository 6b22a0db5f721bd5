"""What `make` prints while pip installs: how far it is, at least every five seconds, and all that pip said where it fails."""

import hashlib
import re
import sys
import zipfile
from pathlib import Path

import pip_progress
import pytest


def wheel(folder: Path, name: str) -> str:
    """A package of nothing; its line of a lock file."""
    path = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        file.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{info}/RECORD", "")
    return f"{name}==1.0 --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


def install(folder: Path, *lock: str) -> int:
    (folder / "lock.txt").write_text("\n".join(lock))
    pip = (sys.executable, "-m", "pip", "--isolated", "install", "--disable-pip-version-check", "--no-index")
    here = ("--find-links", str(folder), "--target", str(folder / "target"))
    return pip_progress.main([*pip, *here, "--require-hashes", "-r", str(folder / "lock.txt")])


@pytest.mark.slow
def test_it_says_how_far_pip_is_while_it_runs_and_how_much_it_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pip_progress, "EVERY_S", 0.05)
    assert install(tmp_path, wheel(tmp_path, "one"), wheel(tmp_path, "two")) == 0
    lines = capfd.readouterr().out.splitlines()
    assert all(re.match(r" *\d+\.\ds ", line) for line in lines), lines
    said = [line.split("s ", 1)[1] for line in lines]
    assert said[0] == "starting pip"
    assert said[-1] == "installed 2 packages"
    assert (tmp_path / "target" / "two-1.0.dist-info").is_dir()


@pytest.mark.slow
def test_where_pip_fails_all_that_it_said_is_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    wheel(tmp_path, "one")
    assert install(tmp_path, f"one==1.0 --hash=sha256:{'0' * 64}") != 0
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("said", "stage"),
    [
        ((), "starting pip"),
        (("Collecting aiohttp==3.14.5 (from -r lock/runtime.txt (line 7))", "  Using cached x.whl"), "downloading aiohttp==3.14.5"),
        (("Collecting a==1", "Collecting b==2", "  Downloading b.whl (1 MB)"), "downloading b==2"),
        (("Collecting a==1", "Collecting b==2", "Installing collected packages: a, b, c"), "installing 3 packages"),
    ],
)  # fmt: skip
def test_a_stage_is_what_pip_said_last(said: tuple[str, ...], stage: str) -> None:
    assert pip_progress.stage(said) == stage
