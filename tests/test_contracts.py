"""The import contracts of pyproject.toml catch what they forbid: each import below is planted in a copy of the source."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROOTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["dev-mode-dirs"]
PLANTED = [
    # importer, imported, the contract that must break
    ("driver", "fairlead.webhook", "Dependencies run downwards only"),
    ("webhook", "fairlead.engine.plan", "Driver and webhook do without the engine"),
    ("engine", "fairlead.kube.client", "Of kube the engine imports only"),
    ("engine", "time", "Decisions are pure"),
]


def test_forbidden_imports_are_found(tmp_path):
    for root in ROOTS:
        shutil.copytree(ROOT / root, tmp_path / root, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for importer, imported, _ in PLANTED:
        package = tmp_path / importer / "fairlead" / importer
        (package / f"planted_{imported.replace('.', '_')}.py").write_text(f"import {imported}\n")
    run = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    code = "import sys; sys.path[:0] = sys.argv[1:]; del sys.argv[1:]; sys.argv += ['--no-cache']; " + run
    done = subprocess.run(
        [sys.executable, "-c", code, *(str(tmp_path / root) for root in ROOTS)],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    output = " ".join(done.stdout.split())
    assert done.returncode == 1, done.stdout + done.stderr
    for importer, imported, contract in PLANTED:
        planted = f"fairlead.{importer}.planted_{imported.replace('.', '_')} -> {imported}"
        assert planted in output, done.stdout
        assert f"{contract}" in output.split("Broken contracts")[1]
