"""What a release is made of, and whether a tag can be one: `release_notes`, `release_sbom`, `release_krew` and `release_archive` are the pure parts, this is their rim.

    python tools/release.py check v0.1.0            the tag, the code, the chart and CHANGELOG.md agree; prints the version
    python tools/release.py notes v0.1.0            the text of the release's page
    python tools/release.py dist dist               wheel, sdist, chart, SBOM and krew's plugin into dist/
    python tools/release.py chart dist --image REPOSITORY@sha256:…    the chart, which then names this image

Files bear one time, SOURCE_DATE_EPOCH or else that of the commit, and are packed in the order of their names: the same commit gives the
same bytes, with the same Python and the tools of lock/dev.txt.
"""

from __future__ import annotations

import argparse
import datetime as dt
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import release_archive
import release_krew
import release_notes
import release_sbom
import yaml
from release_notes import Refused
from render import find_helm

from fairlead.api.version import VERSION

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "manifests" / "chart"
_IMAGE = re.compile(r"(?P<repository>[a-z0-9][a-z0-9.:_/-]*)@(?P<digest>sha256:[0-9a-f]{64})")


def main(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
    except (Refused, OSError, ValueError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="release.py", description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(required=True)
    check = commands.add_parser("check", help="whether this tag can be released")
    check.set_defaults(run=_check)
    notes = commands.add_parser("notes", help="print the release notes of this tag")
    notes.set_defaults(run=_notes)
    for each in (check, notes):
        each.add_argument("tag", help="such as v0.1.0")
    notes.add_argument(
        "--repository", default="", help="URL in front of links to files, such as https://github.com/OWNER/REPOSITORY"
    )
    notes.add_argument(
        "--artefact", action="append", default=[], metavar="NAME=REFERENCE", help="listed below; repeatable"
    )
    dist = commands.add_parser("dist", help="build everything but the image")
    dist.set_defaults(run=_dist)
    chart = commands.add_parser("chart", help="package the chart")
    chart.set_defaults(run=_chart)
    for each in (dist, chart):
        each.add_argument("folder", type=Path)
    dist.add_argument(
        "--repository",
        default="https://github.com/OWNER/fairlead",
        help="URL of the repository whose release has the files",
    )
    chart.add_argument("--image", required=True, metavar="REPOSITORY@sha256:…", help="what the chart installs")
    return parser


def _check(options: argparse.Namespace) -> None:
    _agree()
    release_notes.notes(_changelog(), options.tag, VERSION)
    print(VERSION)


def _notes(options: argparse.Namespace) -> None:
    without = [each for each in options.artefact if not re.fullmatch(r"[^=]+=.+", each)]
    if without:
        raise Refused(f"--artefact {without[0]!r} is not NAME=REFERENCE")
    artefacts = dict(each.split("=", 1) for each in options.artefact)
    repository = options.repository.rstrip("/")
    print(release_notes.notes(_changelog(), options.tag, VERSION, repository=repository, artefacts=artefacts), end="")


def _dist(options: argparse.Namespace) -> None:
    epoch = source_date()
    options.folder.mkdir(parents=True, exist_ok=True)
    build = [sys.executable, "-m", "hatchling", "build", "--directory", str(options.folder.resolve())]
    _run(build, {"SOURCE_DATE_EPOCH": str(epoch)})
    write_plugin(options.folder, options.repository.rstrip("/"), epoch)
    at = dt.datetime.fromtimestamp(epoch, dt.UTC)
    bill = release_sbom.document((ROOT / "lock" / "image.txt").read_text(), VERSION, at)
    (options.folder / f"fairlead-{VERSION}.cdx.json").write_text(json.dumps(bill, indent=1) + "\n")
    package_chart(CHART, options.folder, epoch)
    print("\n".join(sorted(path.name for path in options.folder.iterdir())))


def write_plugin(folder: Path, repository: str, epoch: int) -> None:
    """The plugin's archive from the wheel that lies there, and fairlead.yaml, which names it by digest."""
    wheel = folder / f"fairlead-{VERSION}-py3-none-any.whl"
    lock, licence = (ROOT / "lock" / "runtime.txt").read_text(), (ROOT / "LICENSE").read_bytes()
    made = release_krew.archive(wheel=(wheel.name, wheel.read_bytes()), lock=lock, licence=licence, epoch=epoch)
    target = folder / f"kubectl-fairlead-{VERSION}.tar.gz"
    target.write_bytes(made)
    digest = hashlib.sha256(made).hexdigest()
    (folder / "fairlead.yaml").write_text(release_krew.manifest(VERSION, repository, target.name, digest))


def _chart(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        staged = Path(folder) / "fairlead"
        shutil.copytree(CHART, staged)  # follows the link to the CRDs
        values = staged / "values.yaml"
        values.write_text(naming(values.read_text(), options.image))
        print(package_chart(staged, options.folder, source_date()))


def naming(values: str, image: str) -> str:
    """The chart's values with this image as the default, by its digest; comments are kept. Raises Refused for another form of name."""
    found = _IMAGE.fullmatch(image)
    if not found:
        raise Refused(
            f"image {image!r} is not REPOSITORY@sha256:DIGEST, in lower case: a release's chart names its image by digest"
        )
    for key in ("repository", "digest"):
        values = re.sub(rf'(?m)^(  {key}:) *(?:"[^"]*"|\S+)', rf'\1 "{found[key]}"', values, count=1)
    stated = yaml.safe_load(values)["image"]
    if (stated["repository"], stated["digest"]) != (found["repository"], found["digest"]):
        raise Refused(
            "values.yaml of the chart has no image.repository and image.digest at the expected place; look at tools/release.py"
        )
    return values


def package_chart(chart: Path, folder: Path, epoch: int) -> Path:
    """What `helm package` makes of a chart, with the times and the order of names that are told above."""
    helm = find_helm()
    if helm is None:
        raise Refused("no helm beside this Python or in PATH; run tools/fetch.py")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        _run([helm, "package", str(chart), "--destination", temporary])
        (made,) = Path(temporary).glob("*.tgz")
        with tarfile.open(made) as archive:
            files = {each.name: _bytes(archive, each) for each in archive.getmembers() if each.isfile()}
        target = folder / made.name
    target.write_bytes(release_archive.packed(files, epoch))
    return target


def _bytes(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member)
    assert file is not None
    return file.read()


def source_date() -> int:
    """Seconds since 1970 that every file of a release bears. Raises Refused where neither the environment nor git says."""
    stated = os.environ.get("SOURCE_DATE_EPOCH", "")
    if stated:
        if not stated.isdigit():
            raise Refused(f"SOURCE_DATE_EPOCH is {stated!r}, not a number of seconds since 1970; unset it, or give one")
        return int(stated)
    try:
        done = _run(["git", "log", "-1", "--format=%ct"])
    except (Refused, OSError):
        raise Refused("this is no git checkout, so that its time is not known; set SOURCE_DATE_EPOCH") from None
    return int(done)


def _agree() -> None:
    """Raises Refused unless the chart bears the version of the code: `make manifests` was forgotten."""
    stated = yaml.safe_load((CHART / "Chart.yaml").read_text())
    for field in ("version", "appVersion"):
        if stated[field] != VERSION:
            raise Refused(
                f"{field} of manifests/chart/Chart.yaml is {stated[field]}, the code's version {VERSION}: run `make manifests`"
            )


def _changelog() -> str:
    return (ROOT / "CHANGELOG.md").read_text()


def _run(command: list[str], environment: dict[str, str] | None = None) -> str:
    """What a program prints. Raises Refused with its words."""
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, env=os.environ | (environment or {})
    )
    if done.returncode:
        raise Refused(f"{' '.join(command)} failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
