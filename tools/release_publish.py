"""The steps of .github/workflows/release.yaml that push something, each one command, so that they can be tried with other programs in PATH.

    python tools/release_publish.py passed COMMIT WORKFLOW…     the commit's newest run of each workflow has passed
    python tools/release_publish.py image REPOSITORY PLATFORM   build, push without a tag, run it; prints the digest
    python tools/release_publish.py index REPOSITORY DIGEST…    one image of these, tagged with the version and signed; prints the digest
    python tools/release_publish.py chart REGISTRY FILE         push and sign the chart; prints the digest
    python tools/release_publish.py page TAG FOLDER NOTES       SHA256SUMS, and the release's page with all files

Needs docker with buildx, helm, cosign and gh, logged in. Signatures are keyless: the identity is that of the workflow.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from release_notes import Refused

from fairlead.api.version import VERSION

PLATFORMS = ("linux/amd64", "linux/arm64")
BUILDER = "fairlead-release"
SUMS = "SHA256SUMS"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def passed(commit: str, *workflows: str) -> str:
    for workflow in workflows:
        asked = f"gh run list --commit {commit} --workflow {workflow} --limit 1 --json status,conclusion"
        runs = json.loads(_run(*asked.split()))
        if not runs:
            raise Refused(f"{workflow} did not run on {commit}: push it to main, wait, then run this again")
        if runs[0]["conclusion"] != "success":
            state = runs[0]["conclusion"] or runs[0]["status"]
            raise Refused(f"{workflow} on {commit}: {state}, not success; only a commit that passed is released")
    return f"{commit}: {', '.join(workflows)} passed"


def image(repository: str, platform: str) -> str:
    """Build one platform's image with its SBOM and provenance, push it by digest, and ask it for its version."""
    if platform not in PLATFORMS:
        raise Refused(f"platform {platform!r} is not one of {', '.join(PLATFORMS)}")
    _run(*f"docker buildx create --name {BUILDER} --driver docker-container --use".split())
    with tempfile.TemporaryDirectory() as folder:
        metadata = Path(folder) / "metadata.json"
        options = f"--platform {platform} --provenance mode=max --sbom true".split()
        options += ["--metadata-file", str(metadata)]
        output = f"type=image,name={repository},push-by-digest=true,name-canonical=true,push=true"
        _run("docker", "buildx", "build", *options, "--output", output, ".")
        digest = _digest(json.loads(metadata.read_text()).get("containerimage.digest", ""), "docker buildx build")
    asked = f"docker run --rm --read-only --platform {platform} {repository}@{digest} --version"
    said = _run(*asked.split()).strip()
    if said != f"fairlead {VERSION}":
        raise Refused(f"{repository}@{digest} ({platform}) says {said!r} of itself, not 'fairlead {VERSION}'")
    return digest


def index(repository: str, *digests: str) -> str:
    references = [f"{repository}@{_digest(each, 'this command')}" for each in digests]
    tagged = f"{repository}:{VERSION}"
    _run("docker", "buildx", "imagetools", "create", "--tag", tagged, *references)
    digest = _run("docker", "buildx", "imagetools", "inspect", tagged, "--format", "{{.Manifest.Digest}}").strip()
    pinned = f"{repository}@{_digest(digest, 'imagetools inspect')}"
    raw = json.loads(_run("docker", "buildx", "imagetools", "inspect", pinned, "--raw"))
    found = {f"{each['platform']['os']}/{each['platform']['architecture']}" for each in raw["manifests"]}
    missing = [platform for platform in PLATFORMS if platform not in found]
    if missing:
        raise Refused(f"{tagged} has no image for {', '.join(missing)}: name the digest of each platform")
    _run("cosign", "sign", "--yes", pinned)
    return digest


def chart(registry: str, file: str) -> str:
    # Where `docker login` writes; helm has a file of its own otherwise.
    config = str(Path.home() / ".docker" / "config.json")
    said = _run("helm", "push", file, f"oci://{registry}", "--registry-config", config, both=True)
    stated = re.search(r"(?m)^Digest: *(\S+)", said)
    digest = _digest(stated[1] if stated else "", "helm push")
    _run("cosign", "sign", "--yes", f"{registry}/fairlead@{digest}")
    return digest


def page(tag: str, folder: str, notes: str) -> str:
    """Create the release. Raises Refused where there is one of this tag already, or nothing to put on it."""
    files = sorted(path for path in Path(folder).iterdir() if path.is_file() and path.name != SUMS)
    if not files:
        raise Refused(f"{folder} holds no file; the artefacts of the jobs before go there")
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    sums = Path(folder) / SUMS
    sums.write_text("".join(lines))
    named = [str(path) for path in (*files, sums)]
    return _run("gh", "release", "create", tag, "--verify-tag", "--title", tag, "--notes-file", notes, *named).strip()


def _digest(text: str, source: str) -> str:
    if not _DIGEST.fullmatch(text):
        raise Refused(f"{source} gave no digest such as sha256:…, but {text!r}")
    return text


def _run(*command: str, both: bool = False) -> str:
    """What a program prints, with `both` on stderr too. Raises Refused with its words."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise Refused(f"{command[0]} is not installed; the release workflow says where it comes from") from None
    if done.returncode:
        raise Refused(f"{' '.join(command)} ended with {done.returncode}: {(done.stderr or done.stdout).strip()}")
    return done.stdout + (done.stderr if both else "")


COMMANDS: dict[str, tuple[Callable[..., str], int]] = {
    "passed": (passed, 2), "image": (image, 2), "index": (index, 2), "chart": (chart, 2), "page": (page, 3),
}  # fmt: skip
"""And how many arguments each takes at least."""


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] not in COMMANDS or len(arguments) - 1 < COMMANDS[arguments[0]][1]:
        print(__doc__, file=sys.stderr)
        return 2
    name, *rest = arguments
    command, count = COMMANDS[name]
    try:
        print(command(*(rest if name in {"passed", "index"} else rest[:count])))
    except Refused as error:
        print(f"release {name}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
