"""`make image-archive`: an image of Debian's packages and wheels, without docker. Its programs run, and the same tree gives the same digest."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.support.install import dockerfile, namespaces

ROOT = Path(__file__).parents[2]
PROGRAMS = ("driver", "webhook", "controller", "ui")

pytestmark = [pytest.mark.install, pytest.mark.timeout(900)]


def made(file: Path) -> str:
    """The digest. Skips where packages cannot be had."""
    command = [sys.executable, "tools/image_archive.py", "build", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if "cannot be had" in done.stderr or "pip install failed" in done.stderr:
        pytest.skip(f"the archive's packages cannot be had here: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    file = tmp_path_factory.mktemp("archive") / "fairlead.tar"
    return file, made(file)


@pytest.fixture(scope="module")
def opened(archive: tuple[Path, str]) -> tuple[Path, dict[str, Any]]:
    """The root file system of its layers, and the image's configuration."""
    folder = archive[0].parent
    with tarfile.open(archive[0]) as files:
        files.extractall(folder / "layout", filter="data")

    def blob(digest: str) -> bytes:
        content = (folder / "layout/blobs/sha256" / digest.removeprefix("sha256:")).read_bytes()
        assert f"sha256:{hashlib.sha256(content).hexdigest()}" == digest
        return content

    (listed,) = json.loads((folder / "layout/index.json").read_bytes())["manifests"]
    assert listed["digest"] == archive[1]
    manifest = json.loads(blob(listed["digest"]))
    for layer in manifest["layers"]:
        blob(layer["digest"])
        with tarfile.open(folder / "layout/blobs/sha256" / layer["digest"].removeprefix("sha256:")) as files:
            files.extractall(folder / "root", filter="tar")
    return folder / "root", json.loads(blob(manifest["config"]["digest"]))


def run(opened: tuple[Path, dict[str, Any]], *command: str) -> str:
    """What a program prints with the image as its root, and its environment."""
    if refusal := namespaces.refusal():
        pytest.skip(f"containers cannot be run here: {refusal}")
    root, config = opened
    script = f'exec chroot --userspec={config["config"]["User"]} {root} "$@"'
    environment = dict(each.split("=", 1) for each in config["config"]["Env"])
    path = environment.pop("PATH") + ":" + os.environ["PATH"]
    done = subprocess.run(
        [*namespaces.unshared(script, new=("--mount", "--pid")), "sh", *command],
        env=environment | {"PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("program", PROGRAMS)
def test_each_program_starts(opened: tuple[Path, dict[str, Any]], program: str) -> None:
    assert f"Usage: fairlead {program}" in run(opened, "fairlead", program, "--help")


def test_nothing_is_compiled_at_the_start(opened: tuple[Path, dict[str, Any]]) -> None:
    said = run(
        opened, "/opt/fairlead/bin/python", "-v", "-c", "import fairlead.controller.options, sqlite3, ctypes, lzma"
    )
    assert said.count("# code object from '/opt/fairlead/compiled/") > 100
    sources = [line for line in said.splitlines() if line.startswith("# code object from /")]
    assert [line for line in sources if not line.endswith("sitecustomize.py")] == []


def test_certificate_authorities_are_there(opened: tuple[Path, dict[str, Any]]) -> None:
    said = run(
        opened, "/opt/fairlead/bin/python", "-c", "import ssl; print(len(ssl.create_default_context().get_ca_certs()))"
    )
    assert int(said) > 100


def test_it_is_started_as_the_dockerfiles_image_and_has_the_same_parts(opened: tuple[Path, dict[str, Any]]) -> None:
    root, found = opened
    build, last = dockerfile.stages((ROOT / "Dockerfile").read_text(), {"PATH": "/usr/bin"})
    config = found["config"]
    assert dict(each.split("=", 1) for each in config["Env"]) == last.environment
    assert (config["User"], config["Entrypoint"], config["Cmd"]) == (last.user, [*last.entrypoint], [*last.command])
    copied = {step.arguments.split()[0] for step in build.steps if step.instruction == "COPY"}
    made = {path.name for path in (root / "opt/fairlead/lib/python3.11/site-packages/fairlead").iterdir()}
    ours = {each.parent.name: {part.name for part in each.iterdir()} for each in ROOT.glob("*/fairlead")}
    assert made == set.union(*(ours[name] for name in copied & ours.keys())) - {"__pycache__"}


def test_the_same_tree_gives_the_same_digest(archive: tuple[Path, str], tmp_path: Path) -> None:
    assert made(tmp_path / "again.tar") == archive[1]
