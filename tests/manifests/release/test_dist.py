"""Wheel, sdist, chart and bill of materials: the same commit gives the same bytes, whatever machine it lies on."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import pytest
import release
import release_sbom
import yaml
from release_notes import Refused

from fairlead.api.version import VERSION

ROOT = Path(__file__).parents[3]
EPOCH = 1790000000
IMAGE = f"ghcr.io/example/fairlead@sha256:{'ab' * 32}"
AT = dt.datetime.fromtimestamp(EPOCH, dt.UTC)
LOCK = (ROOT / "lock" / "image.txt").read_text()


def checkout(folder: Path) -> Path:
    """What is tracked here, as it stands, in a folder where files have other times, modes and order than an unpacked sdist's."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    for name in sorted(filter(None, listed), reverse=True):
        if not os.path.lexists(ROOT / name):
            continue
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target, follow_symlinks=False)
        if not target.is_symlink():
            target.chmod(0o600 if not os.access(ROOT / name, os.X_OK) else 0o700)
            os.utime(target, (time.time() - 9_000_000,) * 2)
    return folder


def build(folder: Path, target: Path, kind: str) -> Path:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", kind, "--directory", str(target)],
        cwd=folder, env=os.environ | {"SOURCE_DATE_EPOCH": str(EPOCH)}, check=True, capture_output=True,
    )  # fmt: skip
    (made,) = target.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return made


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.slow
def test_the_same_sources_give_the_same_wheel_also_by_way_of_the_sdist(tmp_path):
    copy = checkout(tmp_path / "copy")
    wheel = build(copy, tmp_path / "a", "wheel")
    sdist = build(copy, tmp_path / "b", "sdist")
    assert wheel.name == f"fairlead-{VERSION}-py3-none-any.whl"
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "c", filter="data")
        assert {each.mtime for each in archive.getmembers()} == {EPOCH}
    unpacked = tmp_path / "c" / f"fairlead-{VERSION}"
    assert digest(build(unpacked, tmp_path / "d", "wheel")) == digest(wheel)
    with zipfile.ZipFile(wheel) as archive:
        stated = time.gmtime(EPOCH)[:5]
        assert {each.date_time[:5] for each in archive.infolist()} == {stated}


def test_the_same_chart_gives_the_same_package(helm, tmp_path):
    made = [release.package_chart(release.CHART, tmp_path / name, EPOCH) for name in "ab"]
    assert digest(made[0]) == digest(made[1])
    assert made[0].name == f"fairlead-{VERSION}.tgz"
    rendered = [
        subprocess.run([helm, "template", "f", str(chart), "--namespace", "fairlead-system"], capture_output=True, text=True, check=True).stdout
        for chart in (release.CHART, made[0])
    ]  # fmt: skip
    assert rendered[0] == rendered[1], "the package installs what the folder does"
    with tarfile.open(made[0]) as archive:
        assert sum(name.startswith("fairlead/files/crds/") for name in archive.getnames()) >= 4


def test_a_releases_chart_installs_the_image_that_was_built(helm, tmp_path, capsys):
    assert release.main(["chart", str(tmp_path), "--image", IMAGE]) == 0
    (made,) = tmp_path.glob("*.tgz")
    assert capsys.readouterr().out.strip() == str(made)
    command = [helm, "template", "f", str(made), "--namespace", "fairlead-system", "--set", "ui.enabled=true"]
    rendered = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"^ *image: (\S+)$", rendered, re.MULTILINE)) == {IMAGE}
    assert yaml.safe_load((release.CHART / "values.yaml").read_text())["image"]["digest"] == "", (
        "the checkout is as it was"
    )


@pytest.mark.parametrize(
    "image", ["ghcr.io/x/fairlead:0.1.0", "ghcr.io/X/fairlead@sha256:" + "0" * 64, "x@sha256:12", ""]
)
def test_a_chart_names_an_image_by_digest_or_is_not_made(image, tmp_path, capsys):
    assert release.main(["chart", str(tmp_path), "--image", image]) == 1
    assert f"image {image!r} is not REPOSITORY@sha256:DIGEST" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_values_of_another_form_are_not_rewritten_blindly():
    with pytest.raises(Refused, match=r"has no image\.repository and image\.digest at the expected place"):
        release.naming('other:\n  repository: a\n  digest: ""\nimage:\n  repository: b\n  digest: ""\n', IMAGE)


def test_the_time_of_files_is_the_environments_or_the_commits(monkeypatch, tmp_path):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "17")
    assert release.source_date() == 17
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    with pytest.raises(Refused, match="SOURCE_DATE_EPOCH is 'yesterday', not a number of seconds since 1970"):
        release.source_date()
    monkeypatch.delenv("SOURCE_DATE_EPOCH")
    monkeypatch.setattr(release, "ROOT", tmp_path)
    with pytest.raises(Refused, match="this is no git checkout, so that its time is not known; set SOURCE_DATE_EPOCH"):
        release.source_date()


def test_the_bill_of_materials_names_what_the_lock_pins():
    bill = release_sbom.document(LOCK, VERSION, AT)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", bill["serialNumber"])
    assert bill["metadata"]["timestamp"] == AT.strftime("%Y-%m-%dT%H:%M:%SZ")
    pins = re.findall(r"^([\w.-]+)(?:\[.*\])?==([^\s;]+)", LOCK, re.MULTILINE)
    assert [(each["name"], each["version"]) for each in bill["components"]] == [(n.lower(), v) for n, v in pins]
    refs = [each["bom-ref"] for each in bill["components"]]
    assert len(set(refs)) == len(refs)
    assert bill["dependencies"] == [{"ref": f"pkg:pypi/fairlead@{VERSION}", "dependsOn": refs}]
    assert sum(len(each["properties"]) for each in bill["components"]) == LOCK.count("--hash=sha256:") + LOCK.count(
        " ; "
    )
    assert json.dumps(bill) == json.dumps(release_sbom.document(LOCK, VERSION, AT)), "nothing of it is random"
    assert bill["serialNumber"] != release_sbom.document(LOCK, "9.9.9", AT)["serialNumber"]


@pytest.mark.parametrize(
    ("lock", "said"),
    [
        ("aiohttp>=3 \\\n", "line 1 of the lock is neither `name==version` nor a sha256 hash: 'aiohttp>=3"),
        ("# c\naiohttp==3.1\n", "the lock has no hash of aiohttp; run `make lock`"),
        ("    --hash=sha256:" + "0" * 64 + "\n", "line 1 of the lock is neither"),
    ],
)
def test_a_lock_that_pins_less_gives_no_bill(lock, said):
    with pytest.raises(ValueError) as refused:
        release_sbom.components(lock)
    assert said in str(refused.value)
