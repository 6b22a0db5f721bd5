"""What the release workflow pushes, with programs that record how they were called; and what stops it."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fairlead.api.version import VERSION

TOOL = Path(__file__).parents[3] / "tools" / "release_publish.py"
DIGEST = "sha256:" + "1a" * 32
INDEX = {"manifests": [{"platform": {"os": "linux", "architecture": each}} for each in ("amd64", "arm64", "unknown")]}
REPOSITORY = "ghcr.io/example/fairlead"
DOCKER = f"""
case "$*" in
  "buildx build"*) while [ "$1" != --metadata-file ]; do shift; done; echo '{{"containerimage.digest": "{DIGEST}"}}' > "$2";;
  "run "*) echo "fairlead ${{SAYS:-{VERSION}}}";;
  *--raw) cat "$INDEX";;
  "buildx imagetools inspect"*) echo "{DIGEST}";;
esac
"""
HELM = f'echo "Pushed: x"; echo "Digest: {DIGEST}" >&2'


@pytest.fixture
def publish(tmp_path):
    """Runs one step; gives its end and the calls, a line each."""
    programs = tmp_path / "bin"
    programs.mkdir()
    record, index = tmp_path / "record", tmp_path / "index.json"
    index.write_text(json.dumps(INDEX))

    def program(name: str, text: str = "") -> None:
        (programs / name).write_text(f'#!/bin/sh\necho "{name} $*" >> "$RECORD"\n{text}\n')
        (programs / name).chmod(0o755)

    for name, text in (("docker", DOCKER), ("helm", HELM), ("cosign", ""), ("gh", 'echo "$RUNS"')):
        program(name, text)

    def run(*arguments: str, without: str = "", index_of: dict[str, object] | None = None, **environment: str):
        if without:
            (programs / without).unlink()
        if index_of is not None:
            index.write_text(json.dumps(index_of))
        given = {
            "PATH": f"{programs}:/usr/bin:/bin",
            "RECORD": str(record),
            "INDEX": str(index),
            "HOME": "/home/x",
        } | environment
        if without:
            given["PATH"] = str(programs)
        done = subprocess.run(
            [sys.executable, TOOL, *arguments], env=given, capture_output=True, text=True, check=False
        )
        return done, record.read_text().splitlines() if record.exists() else []

    run.program = program  # type: ignore[attr-defined]
    return run


@pytest.mark.parametrize("platform", ["linux/amd64", "linux/arm64"])
def test_an_image_is_pushed_by_digest_with_sbom_and_provenance_and_run(publish, platform):
    done, calls = publish("image", REPOSITORY, platform)
    assert (done.returncode, done.stdout) == (0, DIGEST + "\n"), done.stderr
    assert calls[0].startswith("docker buildx create ")
    assert "--driver docker-container" in calls[0], "docker's own driver attests nothing"
    for word in (
        f"--platform {platform} ",
        "--provenance mode=max",
        "--sbom true",
        f"name={REPOSITORY},push-by-digest=true",
    ):
        assert word in calls[1]
    assert calls[2] == f"docker run --rm --read-only --platform {platform} {REPOSITORY}@{DIGEST} --version"


def test_an_image_of_another_version_is_not_released(publish):
    done, _ = publish("image", REPOSITORY, "linux/amd64", SAYS="9.9.9")
    assert done.returncode == 1
    assert f"says 'fairlead 9.9.9' of itself, not 'fairlead {VERSION}'" in done.stderr


def test_both_platforms_become_one_image_that_is_signed(publish):
    done, calls = publish("index", REPOSITORY, DIGEST, DIGEST)
    assert (done.returncode, done.stdout) == (0, DIGEST + "\n"), done.stderr
    assert (
        calls[0]
        == f"docker buildx imagetools create --tag {REPOSITORY}:{VERSION} {REPOSITORY}@{DIGEST} {REPOSITORY}@{DIGEST}"
    )
    assert calls[-1] == f"cosign sign --yes {REPOSITORY}@{DIGEST}", "what is signed is the index, by digest"


def test_an_image_that_lacks_a_platform_is_not_signed(publish):
    done, calls = publish("index", REPOSITORY, DIGEST, index_of={"manifests": INDEX["manifests"][:1]})
    assert done.returncode == 1
    assert f"{REPOSITORY}:{VERSION} has no image for linux/arm64" in done.stderr
    assert not [call for call in calls if call.startswith("cosign")]


def test_the_chart_is_pushed_with_dockers_login_and_signed(publish):
    done, calls = publish("chart", "ghcr.io/example/charts", "dist/fairlead.tgz")
    assert (done.returncode, done.stdout) == (0, DIGEST + "\n"), done.stderr
    assert calls == [
        "helm push dist/fairlead.tgz oci://ghcr.io/example/charts --registry-config /home/x/.docker/config.json",
        f"cosign sign --yes ghcr.io/example/charts/fairlead@{DIGEST}",
    ]


def test_a_release_has_all_files_and_their_sums(publish, tmp_path):
    folder = tmp_path / "dist"
    folder.mkdir()
    for name in ("b.whl", "a.tgz"):
        (folder / name).write_text(name)
    done, calls = publish("page", "v0.1.0", str(folder), "notes.md")
    assert done.returncode == 0, done.stderr
    lines = [f"{hashlib.sha256(name.encode()).hexdigest()}  {name}" for name in ("a.tgz", "b.whl")]
    assert (folder / "SHA256SUMS").read_text().splitlines() == lines
    files = " ".join(str(folder / name) for name in ("a.tgz", "b.whl", "SHA256SUMS"))
    assert calls == [f"gh release create v0.1.0 --verify-tag --title v0.1.0 --notes-file notes.md {files}"]


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        ([], "e2e-kind.yaml did not run on c0ffee: push it to main"),
        ([{"status": "completed", "conclusion": "failure"}], "on c0ffee: failure, not success"),
        ([{"status": "in_progress", "conclusion": ""}], "on c0ffee: in_progress, not success"),
    ],
)
def test_a_commit_that_ci_did_not_pass_is_not_released(publish, runs, said):
    done, _ = publish("passed", "c0ffee", "e2e-kind.yaml", RUNS=json.dumps(runs))
    assert done.returncode == 1
    assert said in done.stderr


def test_every_named_workflow_is_asked(publish):
    passed = json.dumps([{"status": "completed", "conclusion": "success"}])
    done, calls = publish("passed", "c0ffee", "ci.yaml", "e2e-kind.yaml", RUNS=passed)
    assert (done.returncode, done.stdout) == (0, "c0ffee: ci.yaml, e2e-kind.yaml passed\n")
    assert [call.split("--workflow ")[1].split()[0] for call in calls] == ["ci.yaml", "e2e-kind.yaml"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("image", REPOSITORY, "linux/s390x"), "platform 'linux/s390x' is not one of linux/amd64, linux/arm64"),
        (("index", REPOSITORY, "latest"), "this command gave no digest such as sha256:…, but 'latest'"),
        (("page", "v0.1.0", "{folder}", "notes.md"), "holds no file"),
    ],
)
def test_bad_input_is_refused_before_anything_is_pushed(publish, tmp_path, arguments, said):
    (tmp_path / "empty").mkdir()
    done, calls = publish(*(each.format(folder=tmp_path / "empty") for each in arguments))
    assert (done.returncode, calls) == (1, [])
    assert said in done.stderr


def test_what_fails_or_is_missing_is_named(publish):
    publish.program("helm", "echo 'denied: no write' >&2; exit 3")
    done, _ = publish("chart", "ghcr.io/example/charts", "x.tgz")
    assert (done.returncode, done.stdout) == (1, "")
    assert "ended with 3: denied: no write" in done.stderr
    done, _ = publish("chart", "ghcr.io/example/charts", "x.tgz", without="helm")
    assert done.stderr == "release chart: helm is not installed; the release workflow says where it comes from\n"


def test_without_a_command_it_says_which_there_are():
    done = subprocess.run(
        [sys.executable, TOOL, "push"], capture_output=True, text=True, check=False, env=os.environ.copy()
    )
    assert done.returncode == 2
    assert "release_publish.py index REPOSITORY DIGEST" in done.stderr
