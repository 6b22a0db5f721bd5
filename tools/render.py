"""Writes manifests/base, manifests/crds and manifests/components: the chart is the one source of what is installed.

Exists so that `helm install` and `kubectl apply -k` cannot drift apart. Takes the chart as `helm template` renders it with
default values, drops the labels that only Helm's own objects bear, and puts each template into a file of its name; comments
in templates are kept. CRDs come from lib/fairlead/api, and so does the chart's version; the chart reads manifests/crds through a link. An overlay is a file of
chart values: what they change against the base becomes resources and patches of a kustomization. What tenants get has a source
of its own, beside the chart: `tenant_files`; and so have tables of docs/install.md and docs/security.md: `doc_tables`.

    python tools/render.py            write
    python tools/render.py --check    say what would change; exit code 1 if anything would
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import doc_tables
import tenant_files
import yaml

from fairlead.api import crds
from fairlead.api.version import VERSION

ROOT = Path(__file__).resolve().parents[1]
MANIFESTS = ROOT / "manifests"
INSTALL, SECURITY = ROOT / "docs" / "install.md", ROOT / "docs" / "security.md"
CHART = MANIFESTS / "chart"
BASE_VALUES = ("namespace.create=true", "crds.install=false")
SOURCE = "# Source: fairlead/templates/"
HEAD = "# Rendered from manifests/chart/templates/{}: change it there, then run `make manifests`.\n"
REPLACEMENT = """\
  - path: {}
    target: {{group: {}, version: {}, kind: {}, name: {}{}}}
"""
DELETION = """\
  - patch: |
      $patch: delete
      apiVersion: {}
      kind: {}
      metadata: {{name: {}{}}}
"""
VALUES = "values.yaml"
Key = tuple[str, str, str, str]
HELM_ONLY = ("helm.sh/chart:", "app.kubernetes.io/managed-by: Helm")
KUSTOMIZATION = """\
# All of Fairlead: kinds, classes, accounts, permissions, fences, and the three programs.
# Generated from manifests/chart by `make manifests`; do not edit.
#
#   kubectl apply --server-side -k manifests/base
#
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
  - ../crds
"""
OVERLAY = """\
# manifests/base with what values.yaml changes. Generated from manifests/chart by `make manifests`; do not edit.
#
#   kubectl apply --server-side -k manifests/overlays/{}
#
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
  - ../../base
"""


def main(arguments: list[str]) -> int:
    helm = find_helm()
    if helm is None:
        print("no helm beside this Python or in PATH; run tools/fetch.py", file=sys.stderr)
        return 2
    wanted = tenant_files.chart_files(MANIFESTS) | {CHART / "Chart.yaml": chart_file()}
    if arguments != ["--check"]:  # the chart reads them
        _write(wanted)
    wanted |= files(helm) | tenant_files.components(MANIFESTS)
    wanted[INSTALL] = doc_tables.install(INSTALL.read_text())
    wanted[SECURITY] = doc_tables.security(SECURITY.read_text())
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    folders = (MANIFESTS / "base", *overlays())
    extra = [p for f in folders for p in sorted(f.glob("*.yaml")) if p not in wanted and p.name != VALUES]
    if arguments == ["--check"]:
        for path in stale + extra:
            print(
                f"{path.relative_to(ROOT)} is not what its source says (its first lines name it); edit that, and run `make manifests`"
            )
        return 1 if stale or extra else 0
    _write(wanted)
    for path in extra:
        path.unlink()
        print(f"{path.relative_to(ROOT)} removed")
    return 0


def _write(wanted: dict[Path, str]) -> None:
    for path, text in wanted.items():
        if not path.exists() or path.read_text() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            print(path.relative_to(ROOT))


def chart_file() -> str:
    """Chart.yaml with the version of lib/fairlead/api/version.py, for the chart and for the programs."""
    return re.sub(r"(?m)^(version|appVersion): .*$", rf"\1: {VERSION}", (CHART / "Chart.yaml").read_text())


def find_helm() -> str | None:
    beside = Path(sys.executable).parent / "helm"
    return str(beside) if beside.exists() else shutil.which("helm")


def template(helm: str, *settings: str, values: Path | None = None) -> str:
    """What `helm template` prints. Raises RuntimeError with helm's words."""
    command = [helm, "template", "fairlead", str(CHART), "--namespace", "fairlead-system", "--no-hooks"]
    command += [word for setting in settings for word in ("--set", setting)]
    command += ["--values", str(values)] if values else []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr}")
    return done.stdout


def files(helm: str) -> dict[Path, str]:
    """Every generated file and its text."""
    base = rendered(template(helm, *BASE_VALUES))
    wanted = {MANIFESTS / "base" / name: HEAD.format(name) + text for name, text in base.items()}
    listed = "".join(f"  - {name}\n" for name in sorted(base))
    wanted[MANIFESTS / "base" / "kustomization.yaml"] = KUSTOMIZATION + listed
    for name, text in crds.render().items():
        wanted[MANIFESTS / "crds" / name] = text
    for folder in overlays():
        values = rendered(template(helm, *BASE_VALUES, values=folder / VALUES))
        wanted |= {folder / name: text for name, text in overlay(folder.name, base, values).items()}
    return wanted


def overlays() -> list[Path]:
    return sorted(path.parent for path in (MANIFESTS / "overlays").glob(f"*/{VALUES}"))


def overlay(name: str, base: dict[str, str], wanted: dict[str, str]) -> dict[str, str]:
    """Files of an overlay: objects that the base lacks, and patches that delete or replace those it has."""
    before, after = _objects(base), _objects(wanted)
    added: dict[str, list[str]] = {}
    replaced: dict[str, str] = {}
    patches: list[str] = []
    for key, (file, text) in after.items():
        if key not in before:
            added.setdefault(file, []).append(text)
        elif before[key][1] != text:
            patch = f"patch-{key[1].lower()}-{key[2]}.yaml"
            replaced[patch] = HEAD.format(file) + _replacement(before[key][1], text)
            patches.append(REPLACEMENT.format(patch, *_in_namespace(_target(key))))
    found = {file: HEAD.format(file) + "\n---\n".join(texts) + "\n" for file, texts in added.items()} | replaced
    kustomization = OVERLAY.format(name) + "".join(f"  - {file}\n" for file in sorted(added))
    patches += [DELETION.format(*_in_namespace(key)) for key in before if key not in after]
    if patches:
        kustomization += "patches:\n" + "".join(patches)
    return {**found, "kustomization.yaml": kustomization}


def _target(key: Key) -> tuple[str, ...]:
    group, _, version = key[0].rpartition("/")
    return (group or '""', version, *key[1:])


def _in_namespace(key: tuple[str, ...]) -> tuple[str, ...]:
    """The last part as YAML that follows a name; nothing for objects of the cluster."""
    return (*key[:-1], f", namespace: {key[-1]}" if key[-1] else "")


def _replacement(before: str, after: str) -> str:
    """A JSON patch, as YAML, of the top-level fields that differ."""
    old, new = yaml.safe_load(before), yaml.safe_load(after)
    operations = [{"op": "replace", "path": f"/{key}", "value": new[key]} for key in new if new[key] != old.get(key)]
    text: str = yaml.safe_dump(operations, sort_keys=False, width=120)
    return text


def _objects(files: dict[str, str]) -> dict[Key, tuple[str, str]]:
    """Each object's file and text."""
    found = {}
    for file, text in files.items():
        for document in text.removesuffix("\n").split("\n---\n"):
            obj = yaml.safe_load(document)
            metadata = obj["metadata"]
            key = (obj["apiVersion"], obj["kind"], metadata["name"], metadata.get("namespace", ""))
            found[key] = (file, document)
    return found


def rendered(text: str) -> dict[str, str]:
    """File name to documents, in the order of the template: helm prints them ordered by kind."""
    found: dict[str, list[str]] = {}
    for document in text.split("\n---\n"):
        lines = document.removeprefix("---\n").splitlines()
        name = next(line for line in lines if line.startswith(SOURCE)).removeprefix(SOURCE)
        kept = [line.rstrip() for line in lines if line.strip() and not line.strip().startswith((SOURCE, *HELM_ONLY))]
        found.setdefault(name, []).append("\n".join(kept))
    return {name: "\n---\n".join(documents) + "\n" for name, documents in found.items()}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
