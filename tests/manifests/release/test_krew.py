"""krew's plugin: the manifest keeps krew's rules, and what the archive holds installs itself and runs."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import release
import release_krew
import yaml

from fairlead.api.version import VERSION

ROOT = Path(__file__).parents[3]
EPOCH = 1790000000
REPOSITORY = "https://github.com/example/fairlead"
WHEEL = f"fairlead-{VERSION}-py3-none-any.whl"
PROGRAMS = ("kubectl-fairlead", "kubectl_complete-fairlead")


def dist(folder: Path, wheel: bytes = b"wheel") -> dict[str, Any]:
    """What `make dist` writes of the plugin; its manifest."""
    folder.mkdir()
    (folder / WHEEL).write_bytes(wheel)
    release.write_plugin(folder, REPOSITORY, EPOCH)
    return dict(yaml.safe_load((folder / "fairlead.yaml").read_text()))


def installed(folder: Path, manifest: dict[str, Any]) -> Path:
    """The folder that krew puts into PATH, after what krew does with a manifest."""
    (platform,) = manifest["spec"]["platforms"]
    store, programs = folder / "store" / "fairlead" / manifest["spec"]["version"], folder / "bin"
    store.mkdir(parents=True)
    programs.mkdir()
    with tarfile.open(folder / "dist" / platform["uri"].rpartition("/")[2]) as archive:
        archive.extractall(store, filter="data")
    (programs / "kubectl-fairlead").symlink_to(store / platform["bin"])
    (programs / "kubectl_complete-fairlead").symlink_to("kubectl-fairlead")  # what the caveats say
    return programs


def test_the_manifest_keeps_krews_rules(tmp_path):
    """Those of its internal/index/validation, and of its guide for plugins."""
    manifest = dist(tmp_path / "dist")
    assert manifest.keys() == {"apiVersion", "kind", "metadata", "spec"}
    assert (manifest["apiVersion"], manifest["kind"]) == ("krew.googlecontainertools.github.com/v1alpha2", "Plugin")
    assert re.fullmatch(r"[\w-]+", manifest["metadata"]["name"]), "the file is called so, too: fairlead.yaml"
    spec = manifest["spec"]
    assert spec.keys() <= {"version", "shortDescription", "description", "caveats", "homepage", "platforms"}
    assert re.fullmatch(r"v\d+\.\d+\.\d+(-[\w.-]+)?", spec["version"])
    assert 0 < len(spec["shortDescription"]) <= 50
    assert "\n" not in spec["shortDescription"]
    assert len(spec["platforms"]) == 1
    for platform in spec["platforms"]:
        assert platform.keys() == {"selector", "uri", "sha256", "bin"}
        assert re.fullmatch(r"[a-f0-9]{64}", platform["sha256"])
        assert platform["uri"].startswith(f"{REPOSITORY}/releases/download/v{VERSION}/")
        assert platform["uri"].endswith(".tar.gz")
        assert {each["key"] for each in platform["selector"]["matchExpressions"]} <= {"os", "arch"}


def test_the_archive_it_names_holds_both_programs_and_the_wheel(tmp_path):
    (platform,) = dist(tmp_path / "dist")["spec"]["platforms"]
    archive = tmp_path / "dist" / platform["uri"].rpartition("/")[2]
    assert hashlib.sha256(archive.read_bytes()).hexdigest() == platform["sha256"]
    with tarfile.open(archive) as files:
        modes = {each.name: each.mode for each in files.getmembers()}
    assert modes == {**dict.fromkeys(PROGRAMS, 0o755), **dict.fromkeys((WHEEL, "requirements.txt", "LICENSE"), 0o644)}
    assert platform["bin"] == PROGRAMS[0]


def test_the_same_wheel_gives_the_same_plugin(tmp_path):
    first, second = (dist(tmp_path / name) for name in "ab")
    assert first == second


def test_it_installs_what_the_lock_pins_and_nothing_that_builds():
    lock = (ROOT / "lock" / "runtime.txt").read_text()
    pins = {line.split("==")[0] for line in lock.splitlines() if "==" in line}
    found = release_krew.requirements(lock)
    kept = {line.split("==")[0] for line in found.splitlines() if "==" in line}
    assert pins - kept == {"editables", "hatchling"}
    assert found.count("--hash") > len(kept)


def test_a_python_that_is_too_old_is_named(tmp_path):
    programs = installed(tmp_path, dist(tmp_path / "dist"))
    old = tmp_path / "old"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    for python in (old, tmp_path / "none"):
        environment = {"PATH": os.defpath, "FAIRLEAD_PYTHON": str(python)}
        done = subprocess.run([programs / PROGRAMS[0]], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert f"{python} is not there or older than 3.11; name another one in FAIRLEAD_PYTHON" in done.stderr


def test_completion_installs_nothing(tmp_path):
    programs = installed(tmp_path, dist(tmp_path / "dist"))
    done = subprocess.run(
        [programs / PROGRAMS[1], ""], env={"PATH": os.defpath}, capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == (":4\n", "")


@pytest.mark.install
@pytest.mark.timeout(600)
def test_two_first_calls_install_it_once_and_run(tmp_path):
    """With pip as it is set up here; krew itself is not there."""
    built = tmp_path / "built"
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(built)]
    subprocess.run(
        command, cwd=ROOT, env=os.environ | {"SOURCE_DATE_EPOCH": str(EPOCH)}, check=True, capture_output=True
    )
    programs = installed(tmp_path, dist(tmp_path / "dist", (built / WHEEL).read_bytes()))
    environment = {**os.environ, "FAIRLEAD_PYTHON": sys.executable, "PATH": f"{programs}:{os.defpath}"}
    calls = [
        subprocess.Popen([programs / PROGRAMS[0], "--version"], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert {call.communicate()[0] for call in calls} == {f"fairlead {VERSION}\n"}
    said = subprocess.run([programs / PROGRAMS[1], "que"], env=environment, capture_output=True, text=True, check=True)
    assert said.stdout == "queues\n:4\n"
