"""The version stands in lib/fairlead/api/version.py; whatever else bears it is made from that, or compared here."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import release
import yaml
from release_notes import Refused

from fairlead.api.version import VERSION

ROOT = Path(__file__).parents[3]
CHART = ROOT / "manifests" / "chart"


def test_the_wheel_takes_its_version_from_the_code():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"]
    hatch = project["tool"]["hatch"]["version"]
    found = re.search(hatch["pattern"], (ROOT / hatch["path"]).read_text())
    assert found is not None
    assert found["version"] == VERSION
    assert metadata.version("fairlead") == VERSION


def test_the_command_says_it():
    command = Path(sys.executable).parent / "fairlead"
    said = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert said.stdout == f"fairlead {VERSION}\n"


def test_the_chart_bears_it_and_installs_that_image():
    stated = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert stated["version"] == stated["appVersion"] == VERSION
    assert f"image: fairlead:{VERSION}" in (ROOT / "manifests" / "base" / "controller.yaml").read_text()
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert values["image"]["tag"] == "", "the tag is the chart's appVersion"


def test_a_chart_that_was_not_rendered_anew_is_not_released(tmp_path, monkeypatch):
    shutil.copy(CHART / "Chart.yaml", tmp_path)
    text = (tmp_path / "Chart.yaml").read_text()
    (tmp_path / "Chart.yaml").write_text(text.replace(f"appVersion: {VERSION}", "appVersion: 0.0.9"))
    monkeypatch.setattr(release, "CHART", tmp_path)
    with pytest.raises(Refused, match=r"appVersion of manifests/chart/Chart\.yaml is 0\.0\.9, the code's version"):
        release._agree()


def test_make_builds_the_image_of_that_version():
    done = subprocess.run(["make", "-n", "image"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert f"--tag fairlead:{VERSION} ." in done.stdout


def test_docs_name_no_other_version_of_the_image():
    files = [ROOT / "README.md", ROOT / "Dockerfile", *ROOT.glob("docs/*.md")]
    found = {
        (path.name, version) for path in files for version in re.findall(r"fairlead:(\d+\.\d+\.\d+)", path.read_text())
    }
    assert {version for _, version in found} == {VERSION}
