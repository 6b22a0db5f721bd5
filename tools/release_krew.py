"""The CLI as a plugin of kubectl for krew: an archive with two programs and what they install, and the manifest that names it.

The programs are one shell script under two names: the first call makes a virtual environment beside it, with the wheel and the versions of
lock/runtime.txt, checked by their hashes. So one archive serves every Python from 3.11 on, on Linux and macOS; krew removes all of it
with the plugin. Pure: text and bytes in, text and bytes out.

Source: https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/ and krew's internal/index/validation.
"""

from __future__ import annotations

import re

import yaml
from release_archive import packed

PLUGIN = "kubectl-fairlead"
COMPLETION = "kubectl_complete-fairlead"
REQUIREMENTS = "requirements.txt"
_WHEEL_BUILDERS = ("editables", "hatchling")

PROGRAM = f"""\
#!/bin/sh
# Runs the program of this script's name from a virtual environment beside it, which the first call makes.
set -eu
name=${{0##*/}}
file=$0
while [ -L "$file" ]; do
  link=$(readlink "$file")
  case $link in /*) file=$link ;; *) file=$(dirname "$file")/$link ;; esac
done
here=$(cd "$(dirname "$file")" && pwd -P)
environment=$here/environment
if [ ! -e "$environment/complete" ]; then
  case $name in {COMPLETION}) echo :4; exit 0 ;; esac
  python=${{FAIRLEAD_PYTHON:-python3}}
  if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null; then
    echo "{PLUGIN}: $python is not there or older than 3.11; name another one in FAIRLEAD_PYTHON" >&2
    exit 1
  fi
  echo "{PLUGIN}: installing into $environment (once, a minute)" >&2
  # One at a time: a second call waits until the first has written `complete`, and removes nothing of it.
  "$python" - "$here" << 'END' >&2
import fcntl, pathlib, subprocess, sys
here = pathlib.Path(sys.argv[1])
environment = here / "environment"
with (here / ".lock").open("w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    if not (environment / "complete").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", environment], check=True)
        pip = [environment / "bin/python", "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
        subprocess.run([*pip, "--require-hashes", "--only-binary=:all:", "-r", here / "{REQUIREMENTS}"], check=True)
        subprocess.run([*pip, "--no-deps", *here.glob("*.whl")], check=True)
        (environment / "complete").touch()
END
fi
exec "$environment/bin/$name" "$@"
"""

CAVEATS = f"""\
The first call installs what Fairlead imports into the plugin's folder, from PyPI, with Python 3.11 or newer (FAIRLEAD_PYTHON names another
one than python3). So that kubectl completes gangs, queues and nodes:
  ln -s {PLUGIN} "${{KREW_ROOT:-$HOME/.krew}}/bin/{COMPLETION}"
"""


def requirements(lock: str) -> str:
    """Of lock/runtime.txt what runs; what builds the wheel, which is built already, is left out."""
    found, skipped = [], False
    for line in lock.splitlines(keepends=True):
        if line[0].isalnum():
            skipped = re.split(r"[=\\[ ]", line, maxsplit=1)[0] in _WHEEL_BUILDERS
        if not skipped and not line.lstrip().startswith("#"):
            found.append(line)
    return "".join(found)


def archive(*, wheel: tuple[str, bytes], lock: str, licence: bytes, epoch: int) -> bytes:
    """The .tar.gz that krew unpacks, each file of the time `epoch`. `wheel` is its file name and its bytes."""
    programs = {PLUGIN: PROGRAM.encode(), COMPLETION: PROGRAM.encode()}
    return packed(
        {**programs, REQUIREMENTS: requirements(lock).encode(), "LICENSE": licence, wheel[0]: wheel[1]},
        epoch,
        frozenset(programs),
    )


def manifest(version: str, repository: str, file: str, sha256: str) -> str:
    """fairlead.yaml: the plugin, at the release's page of `repository`."""
    platforms = [
        {
            "selector": {"matchExpressions": [{"key": "os", "operator": "In", "values": ["linux", "darwin"]}]},
            "uri": f"{repository}/releases/download/v{version}/{file}",
            "sha256": sha256,
            "bin": PLUGIN,
        }
    ]
    spec = {
        "version": f"v{version}",
        "homepage": repository,
        "shortDescription": "Show why GPU jobs wait, and what holds the GPUs",
        "description": "Queues, gangs and GPUs of a cluster that Fairlead schedules through Dynamic Resource Allocation:\n"
        "what runs, what waits and why, forecasts, costs, and what is missing before an install.\n",
        "caveats": CAVEATS,
        "platforms": platforms,
    }
    plugin = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "fairlead"},
        "spec": spec,
    }
    return yaml.safe_dump(plugin, sort_keys=False, width=1000)
