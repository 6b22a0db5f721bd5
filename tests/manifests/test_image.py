"""The Dockerfile and the kind run, as far as they can be held without docker: what they name exists and agrees."""

from __future__ import annotations

import fnmatch
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from fairlead.cli.demo.run import NODES
from fairlead.sandbox.installation import PROFILE
from tests.support import quick_yaml
from tests.support.install.dockerfile import instructions, stages

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
RUN_SH = ROOT / "e2e" / "kind" / "run.sh"


def copied() -> list[str]:
    found = [rest.split()[:-1] for what, rest in instructions(DOCKERFILE) if what == "COPY" and "--from" not in rest]
    return [source for sources in found for source in sources]


def test_every_base_image_is_named_by_its_digest():
    """A tag may be another image tomorrow, or another's; podman and buildah look for no image without a registry. The same holds for a frontend that a `# syntax=` line would fetch."""
    bases = [stage.base for stage in stages(DOCKERFILE, {})]
    assert len(bases) == 2
    for base in bases:
        assert re.fullmatch(r"docker\.io/library/python:3\.\d+-slim-[a-z]+@sha256:[0-9a-f]{64}", base), base
    assert len(set(bases)) == 1, "what is built in one image runs in the same"
    assert "# syntax=" not in DOCKERFILE


def test_everything_that_is_copied_exists_and_reaches_the_builder():
    allowed = [
        line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")
    ]
    assert copied()
    for source in copied():
        assert (ROOT / source).exists(), source
        assert any(fnmatch.fnmatch(source, pattern) for pattern in allowed), f"{source} is kept out by .dockerignore"


def test_what_runs_in_a_cluster_is_copied_and_the_sandbox_is_not():
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    roots = {package.split("/")[0] for package in wheel["packages"]}
    wanted = {*roots, wheel["hooks"]["custom"]["path"], PROJECT["project"]["readme"], "pyproject.toml"}
    assert wanted - set(copied()) == {"sandbox"}


def test_every_package_is_pinned_by_hash():
    installs = [rest for what, rest in instructions(DOCKERFILE) if what == "RUN" and "pip install" in rest]
    assert len(installs) == 3
    assert all("--require-hashes" in install for install in installs[:2])
    assert 'if [ -n "$TRACES" ]' in installs[1], "only an image with traces has the SDK"
    assert "--no-deps" in installs[2], "the last installs only Fairlead itself"
    lock = (ROOT / "lock" / "image.txt").read_text()
    for build_tool in PROJECT["build-system"]["requires"]:
        assert build_tool in lock, "the build may reach out for nothing"


def test_the_entry_point_is_the_command_and_runs_as_nobody():
    final = instructions(DOCKERFILE)[
        [i for i, (what, _) in enumerate(instructions(DOCKERFILE)) if what == "FROM"][-1] :
    ]
    settings = dict(final)
    assert settings["ENTRYPOINT"] == '["fairlead"]'
    assert "fairlead" in PROJECT["project"]["scripts"]
    user = re.fullmatch(r"(\d+):(\d+)", settings["USER"])
    assert user is not None
    assert int(user[1]) > 0
    helpers = (ROOT / "manifests" / "chart" / "templates" / "_helpers.tpl").read_text()
    assert f"runAsUser: {user[1]}" in helpers


def test_the_image_has_a_python_that_fairlead_is_tried_with():
    python = re.search(r"^ARG PYTHON=(\d+\.\d+)", DOCKERFILE, re.MULTILINE)
    assert python is not None
    assert f"Programming Language :: Python :: {python[1]}" in PROJECT["project"]["classifiers"]


def test_the_kind_cluster_has_the_nodes_that_the_examples_need():
    cluster = quick_yaml.load((RUN_SH.parent / "cluster.yaml").read_text())
    workers = [node["labels"][PROFILE] for node in cluster["nodes"] if node["role"] == "worker"]
    assert sorted(workers) == sorted(node.profile for node in NODES)
    values = quick_yaml.load((ROOT / "manifests" / "overlays" / "simulated" / "values.yaml").read_text())
    selected = [pool["nodeSelector"][PROFILE] for pool in values["driver"]["pools"]]
    assert set(workers) == set(selected)


def only(folder: Path, *tools: str) -> dict[str, str]:
    """An environment with these tools and no others."""
    for tool in tools:
        found = shutil.which(tool)
        assert found is not None, tool
        (folder / tool).symlink_to(found)
    return {"PATH": str(folder), "HOME": str(folder)}


def script(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


@pytest.mark.parametrize(
    ("docker", "said"),
    [("", "docker is not installed"), ("exit 1", "no docker daemon answers"), ("exit 0", "kind is not installed")],
)
def test_where_something_is_missing_it_says_what_and_what_else_there_is(tmp_path, docker, said):
    environment = only(tmp_path, "bash", "dirname")
    if docker:
        script(tmp_path, "docker", docker)
    done = subprocess.run([RUN_SH], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 3
    assert said in done.stderr
    assert "make e2e" in done.stderr


def test_a_failed_run_keeps_logs_and_no_cluster(tmp_path):
    environment = only(tmp_path, "bash", "dirname", "mktemp", "mkdir", "rm")
    record = 'echo "$0 $*" >> "$RECORD"'
    for name in ("docker", "helm", "python"):
        script(tmp_path, name, record)
    script(tmp_path, "kubectl", record)
    script(
        tmp_path, "kind", f'{record}; case "$*" in "create cluster"*) echo x > "$KUBECONFIG";; "load"*) exit 1;; esac'
    )
    environment |= {
        "RECORD": str(tmp_path / "record"),
        "LOGS": str(tmp_path / "logs"),
        "PYTHON": str(tmp_path / "python"),
    }
    done = subprocess.run([RUN_SH], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 1
    calls = (tmp_path / "record").read_text().replace(f"{tmp_path}/", "").splitlines()
    assert any(call.startswith("kind export logs") for call in calls)
    assert calls[-1].startswith("kind delete cluster")
    assert (tmp_path / "logs" / "events.txt").exists()
    assert "failed; logs are in" in done.stderr


def test_the_script_says_what_it_does_in_order(tmp_path):
    environment = only(tmp_path, "bash", "dirname", "mktemp", "mkdir", "rm")
    for name in ("docker", "helm", "python", "kubectl", "kind"):
        script(tmp_path, name, 'echo "${0##*/} $1 $2" >> "$RECORD"')
    environment |= {"RECORD": str(tmp_path / "record"), "PYTHON": str(tmp_path / "python")}
    done = subprocess.run([RUN_SH], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    steps = (tmp_path / "record").read_text().splitlines()
    wanted = [
        "docker build",
        "kind create",
        "kind load",
        "helm install",
        "python -m pytest",
        "helm uninstall",
        "kind delete",
    ]
    places = [max(i for i, step in enumerate(steps) if step.startswith(each)) for each in wanted]
    assert places == sorted(places)


def test_the_chart_as_the_script_installs_it_runs_the_image_that_it_loaded(helm):
    """The command's own options, as bash reads them, given to `helm template`."""
    text = RUN_SH.read_text().replace("\\\n", " ")
    (line,) = re.findall(r"^helm install fairlead (.*)$", text, re.MULTILINE)
    words = [word.replace("$NAMESPACE", "fairlead-system") for word in shlex.split(line)]
    options = words[: words.index("--wait")]
    done = subprocess.run(
        [helm, "template", "fairlead", *options], cwd=ROOT, capture_output=True, text=True, check=True
    )
    objects = [each for each in quick_yaml.load_all(done.stdout) if each]
    specs = [each["spec"]["template"]["spec"] for each in objects if each["kind"] in {"Deployment", "DaemonSet"}]
    found = {(each["image"], each["imagePullPolicy"]) for spec in specs for each in spec["containers"]}
    image = re.search(r"^IMAGE=(\S+)$", text, re.MULTILINE)
    assert image is not None
    assert found == {(image[1], "Never")}, "no registry has it"
    profiles = {spec["nodeSelector"][PROFILE] for spec in specs if PROFILE in spec.get("nodeSelector", {})}
    assert profiles == {node.profile for node in NODES}


@pytest.mark.slow
def test_the_suite_takes_the_options_that_the_script_gives_it(tmp_path):
    text = RUN_SH.read_text()
    (line,) = re.findall(r'^"\$PYTHON" -m pytest (.*)$', text, re.MULTILINE)
    options = [word.replace("$KUBECONFIG", str(tmp_path / "kubeconfig")) for word in shlex.split(line)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--collect-only", "-q"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "e2e/test_examples.py" in done.stdout


def test_the_image_that_kind_loads_has_no_attestation_beside_it():
    (build,) = re.findall(r"^.*docker build .*$", RUN_SH.read_text(), re.MULTILINE)
    assert build.startswith("BUILDX_NO_DEFAULT_ATTESTATIONS=1 docker build ")
