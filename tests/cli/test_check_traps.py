"""`fairlead check` on manifests of other systems: each trap is found at its field, and not where the cure is written instead."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fairlead.cli.checks.traps import notebooks, pipelines, table, training
from tests.support.commands import invoke

from .trap_cases import CASES, EXCLUSIVE, POD, Case

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: object) -> tuple[int, str]:
    result = invoke(["check", *map(str, arguments)])
    return result.exit_code, result.stdout


def traps(path: Path) -> tuple[int, list[Any]]:
    status, out = run("-o", "json", path)
    return status, [trap for entry in json.loads(out) for trap in entry["traps"]]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_trap_is_found_at_its_field_and_its_cure_is_none(case: Case, tmp_path: Path) -> None:
    path = tmp_path / "manifest.yaml"
    path.write_text(case.text.replace("HERE", case.bad))
    status, found = traps(path)
    assert [(trap["level"], trap["field"]) for trap in found] == [(case.level, case.field)]
    assert case.says in found[0]["message"]
    assert status == int(case.level == "fails")
    path.write_text(case.text.replace("HERE", case.good))
    assert traps(path) == (0, [])


def test_every_kind_with_traps_has_a_case() -> None:
    """But for kinds that share their finder with one that has."""
    found = {
        finder
        for case in CASES
        for key, finders in table.FINDERS.items()
        if f"kind: {key[1]}" in case.text
        for finder in finders
    }
    settings = {finder for key, finders in table.FINDERS.items() if key[0] == "settings" for finder in finders}
    alike = {training.ray_job, training.ray_service}
    assert settings == {
        pipelines.backend_config,
        pipelines.compiled_pipeline,
        notebooks.kube_spawner,
        notebooks.chart_values,
    }
    assert {finder for finders in table.FINDERS.values() for finder in finders} - settings - alike == found - settings


@pytest.mark.parametrize(("kind", "field"), [("RayJob", "rayClusterSpec"), ("RayService", "rayClusterConfig")])
def test_a_cluster_inside_another_object_is_read_too(kind: str, field: str, tmp_path: Path) -> None:
    path = tmp_path / "ray.yaml"
    path.write_text(
        f"{{apiVersion: ray.io/v1, kind: {kind}, metadata: {{name: r}}, spec: {{{field}: {{headGroupSpec: {{template: {{spec: {POD}}}}}}}}}}}"
    )
    assert [trap["field"] for trap in traps(path)[1]] == [f"spec.{field}.headGroupSpec.rayStartParams[num-gpus]"]


SETTINGS = """
c = get_config()
c.KubeSpawner.extra_pod_config = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}]}
c.KubeSpawner.extra_container_config = {"resources": {"claims": [{"name": "gpu"}]}}
"""


def test_a_hubs_settings_are_read_without_running_them(tmp_path: Path) -> None:
    path = tmp_path / "jupyterhub_config.py"
    path.write_text(SETTINGS)
    status, found = traps(path)
    assert (status, [trap["field"] for trap in found]) == (1, ["c.KubeSpawner.start_timeout"])
    assert found[0]["message"].startswith("60 s: the hub deletes a pod")
    path.write_text(SETTINGS + "c.KubeSpawner.start_timeout = 60 * 60\nraise SystemExit('run')\n")
    assert traps(path) == (0, [])
    path.write_text(SETTINGS.replace("extra_container_config", "other") + "c.KubeSpawner.start_timeout = 3600\n")
    assert [trap["field"] for trap in traps(path)[1]] == ["c.KubeSpawner.extra_container_config"]
    path.write_text("c.KubeSpawner.start_timeout = (")
    assert run(path)[0] == 2


GPU_LIMIT = 'c.KubeSpawner.extra_resource_limits = {"nvidia.com/gpu": "1"}\n'
PROFILE = """
c.KubeSpawner.start_timeout = 3600
c.KubeSpawner.profile_list = [{"kubespawner_override": {"extra_pod_config": {"resourceClaims": [{"name": "gpu"}]}}}]
"""


@pytest.mark.parametrize(
    ("settings", "fields"),
    [
        (GPU_LIMIT + "c.Spawner.start_timeout = 3600\n", []),
        (GPU_LIMIT + "c.KubeSpawner.start_timeout = 30\nc.Spawner.start_timeout = 3600\n", ["c.KubeSpawner.start_timeout"]),
        (GPU_LIMIT + "c.KubeSpawner.start_timeout = int(HOUR)\n", []),
        (PROFILE, ["c.KubeSpawner.profile_list[0].kubespawner_override.extra_container_config"]),
        (PROFILE.replace("3600", "60"), ["c.KubeSpawner.start_timeout", "c.KubeSpawner.profile_list[0].kubespawner_override.extra_container_config"]),
        (PROFILE + 'c.KubeSpawner.extra_container_config = {"resources": {"claims": [{"name": "gpu"}]}}\n', ["c.KubeSpawner.extra_pod_config"]),
    ],
    ids=["inherited", "own-value-wins", "computed", "half-profile", "profile-asks", "half-without-profile"],
)  # fmt: skip
def test_what_a_spawner_inherits_and_what_profiles_override(settings: str, fields: list[str], tmp_path: Path) -> None:
    path = tmp_path / "jupyterhub_config.py"
    path.write_text(settings)
    assert [trap["field"] for trap in traps(path)[1]] == fields


def test_the_job_template_of_an_mlflow_project_is_read_from_its_settings(tmp_path: Path) -> None:
    path, template = tmp_path / "backend_config.json", tmp_path / "job.yaml"
    path.write_text('{"kube-context": "c", "repository-uri": "r", "kube-job-template-path": "job.yaml"}')
    assert run(path)[0] == 2
    text = (ROOT / "examples/16-mlflow/claim.yaml").read_text()
    template.write_text(text)
    assert traps(path) == (0, [])
    template.write_text(text.replace("fairlead.dev/gang-size", "fairlead.dev/gang"))
    status, (trap,) = traps(path)
    assert (status, trap["level"]) == (0, "warning")
    assert trap["field"] == "kube-job-template-path job.yaml: spec.template.metadata.annotations[fairlead.dev/gang]"
    assert "two runs at the same time are one gang" in trap["message"]
    template.write_text("{kind: Deployment}")
    assert run(path)[0] == 2


def test_what_is_printed_names_object_field_and_next_step(tmp_path: Path) -> None:
    path = tmp_path / "manifest.yaml"
    path.write_text(
        "\n---\n".join(
            case.text.replace("HERE", case.bad)
            for case in CASES
            if case.name.startswith(("tekton", "jobset-exclusive"))
        )
    )
    status, out = run(path)
    assert status == 1
    assert (
        "not judged TaskRun t\n  fails: spec.podTemplate.resourceClaims: Tekton's pod template has no such field" in out
    )
    of_jobset = out[out.index("allowed   JobSet default/t\n") :]
    assert f"\n  fails: metadata.annotations[{EXCLUSIVE}]: JobSet refuses" in of_jobset
    assert "6 fields that will fail" in out


def test_the_examples_have_no_traps() -> None:
    status, out = run(
        "-o",
        "json",
        "--managed-driver=gpu.fairlead.dev",
        "--managed-driver=dra.net",
        ROOT / "examples",
        ROOT / "examples/17-notebooks/claim.py",
        ROOT / "examples/17-notebooks/legacy.py",
    )
    assert status == 0
    assert [trap for entry in json.loads(out) for trap in entry["traps"]] == []


@pytest.mark.parametrize(
    "spec", [None, 7, "x", [], {}, {"template": 3, "predictor": [], "templates": [None, 1], "trainer": "x"}], ids=repr
)
def test_no_spec_breaks_anything(spec: Any) -> None:
    for group, kind in table.FINDERS:
        version = f"{group}/v1" if group else "v1"
        document = {"apiVersion": version, "kind": kind, "metadata": spec, "spec": spec, "data": spec}
        assert table.find(document, [document]) == []
