"""The workflows as they are written: actions by commit, the least permissions, and no name that is not defined."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
import release_publish
import yaml

ROOT = Path(__file__).parents[3]
FILES = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))
WORKFLOWS: dict[str, dict[Any, Any]] = {path.name: yaml.safe_load(path.read_text()) for path in FILES}
ON: Any = True  # what YAML 1.1 makes of the key `on`
JOBS = [(name, job) for name, workflow in WORKFLOWS.items() for job in workflow["jobs"]]
TARGETS = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
WRITES = {  # the permissions of a job beyond reading the repository, and the step that needs each
    ("release.yaml", "check"): {"actions": "read"},  # release_publish.py passed
    ("release.yaml", "image"): {"packages": "write"},  # release_publish.py image
    ("release.yaml", "publish"): {
        "packages": "write",
        "id-token": "write",
        "attestations": "write",
    },  # index, chart, attest
    ("release.yaml", "release"): {"contents": "write", "id-token": "write", "attestations": "write"},  # page, attest
}


def steps(name: str, job: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = WORKFLOWS[name]["jobs"][job]["steps"]
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_actions_are_pinned_by_commit_and_say_which_version_that_is(path):
    used = [line for line in path.read_text().splitlines() if "uses:" in line]
    assert used
    for line in used:
        assert re.search(r"uses: [\w-]+/[\w-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+$", line), line


def test_one_action_has_one_version():
    found = {
        re.sub(r".*uses: ", "", line) for path in FILES for line in path.read_text().splitlines() if "uses:" in line
    }
    assert len({each.partition("@")[0] for each in found}) == len(found), sorted(found)


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_may_read_the_repository_and_nothing_else(name):
    assert WORKFLOWS[name]["permissions"] == {"contents": "read"}
    assert set(WORKFLOWS[name][ON]) <= {"push", "pull_request", "workflow_dispatch"}, (
        "no trigger with the rights of main for others' code"
    )


@pytest.mark.parametrize(("name", "job"), JOBS)
def test_a_job_has_the_permissions_of_its_own_steps(name, job):
    stated = WORKFLOWS[name]["jobs"][job].get("permissions", {"contents": "read"})
    assert stated == {"contents": "read"} | WRITES.get((name, job), {})
    assert 0 < WORKFLOWS[name]["jobs"][job]["timeout-minutes"] <= 120


@pytest.mark.parametrize(("name", "job"), JOBS)
def test_no_token_stays_in_the_checkout_and_no_expression_in_a_script(name, job):
    """An expression in `run` is text of the script: what a branch is called would be run."""
    for step in steps(name, job):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False
        assert "${{" not in step.get("run", "")


@pytest.mark.parametrize(("name", "job"), JOBS)
def test_every_expression_names_what_there_is(name, job):
    workflow = WORKFLOWS[name]
    this = workflow["jobs"][job]
    text = yaml.safe_dump(this)
    needs = [this["needs"]] if isinstance(this.get("needs"), str) else this.get("needs", [])
    assert set(needs) <= workflow["jobs"].keys()
    for before, output in re.findall(r"needs\.([\w-]+)\.outputs\.([\w-]+)", text):
        assert before in needs
        assert output in workflow["jobs"][before]["outputs"]
    ids = {step["id"]: step["run"] for step in this["steps"] if "id" in step}
    for step, output in re.findall(r"steps\.([\w-]+)\.outputs\.([\w-]+)", text):
        assert re.search(rf'"{output}=\$', ids[step]), f"step {step} writes no {output}"
    rows = this.get("strategy", {}).get("matrix", {})
    known = {key for row in rows.get("include", []) for key in row} | (rows.keys() - {"include"})
    assert set(re.findall(r"matrix\.([\w-]+)", text)) <= known
    assert (
        set(re.findall(r"inputs\.([\w-]+)", text)) <= workflow[ON].get("workflow_dispatch", {}).get("inputs", {}).keys()
    )


@pytest.mark.parametrize(("name", "job"), JOBS)
def test_a_step_runs_what_people_run(name, job):
    """Targets of make, and scripts of this repository; a variable of a script is of its own environment."""
    for step in steps(name, job):
        command = step.get("run", "")
        if command.startswith("make "):
            target = command.split()[1]
            assert target in TARGETS or f"$(VENV){target.removeprefix('.venv')}:" in (ROOT / "Makefile").read_text()
        for script in re.findall(r"tools/\w+\.py", command):
            assert (ROOT / script).is_file()
        for step_of in re.findall(r"release_publish\.py (\w+)", command):
            assert step_of in release_publish.COMMANDS
        if command.startswith(".ci/"):
            assert os.access(ROOT / command, os.X_OK)
        own = set(re.findall(r"^\s*(?:export )?(\w+)=", command, re.MULTILINE)) | {
            "PWD",
            "PATH",
            "version",
            "owner",
            "digest",
        }
        given = set(step.get("env", {})) | own
        for variable in re.findall(r"\$\{?(\w+)", command):
            assert variable in given or variable.startswith("GITHUB_"), f"{name}, {job}: ${variable} is not set"


def test_an_artefact_that_is_fetched_was_kept_by_a_job_before():
    jobs = WORKFLOWS["release.yaml"]["jobs"]

    def named(job: str, action: str) -> set[str]:
        found = [step["with"] for step in jobs[job]["steps"] if step.get("uses", "").startswith(f"actions/{action}@")]
        return {each.get("name") or each["pattern"] for each in found}

    rows = jobs["image"]["strategy"]["matrix"]["include"]
    assert {row["platform"] for row in rows} == set(release_publish.PLATFORMS)
    assert {row["name"] for row in rows} == {
        f"digest-{platform.split('/')[1]}" for platform in release_publish.PLATFORMS
    }
    assert named("publish", "download-artifact") == {"digest-*"}
    assert named("release", "download-artifact") == named("dist", "upload-artifact") | named(
        "publish", "upload-artifact"
    )
    assert {"dist", "publish"} <= set(jobs["release"]["needs"])


def test_only_a_version_tag_releases_and_only_after_the_check():
    workflow = WORKFLOWS["release.yaml"]
    assert workflow[ON] == {"push": {"tags": ["v*"]}}
    assert workflow["concurrency"]["cancel-in-progress"] is False, "a release is not stopped half way"
    for name, job in workflow["jobs"].items():
        needs = job.get("needs", [])
        assert name == "check" or "check" in ([needs] if isinstance(needs, str) else needs)
