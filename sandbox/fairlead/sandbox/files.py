"""Where things lie on this machine: the manifests and examples of this Fairlead, and the directories of a simulated node."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

PACKAGE = Path(__file__).resolve().parent
CHECKOUT = PACKAGE.parents[2]  # sandbox/fairlead/sandbox


def find(folder: str) -> Path:
    """The directory `manifests` or `examples` (or a path below one). Raises FileNotFoundError naming where it looked."""
    candidates = (PACKAGE / "_files" / folder, CHECKOUT / folder)
    for candidate in candidates:
        if candidate.exists():
            return candidate
    raise FileNotFoundError(
        f"{folder}: neither {candidates[0]} nor {candidates[1]} exists; run from a checkout or a wheel"
    )


def table(module: str, name: str) -> Any:
    """The YAML file `name` beside `module`, a `__file__`."""
    return yaml.load(Path(module).with_name(name).read_text(), Loader=yaml.CSafeLoader)


def kubeconfig(url: str, ca_pem: bytes, user: str, token: str) -> str:
    """A kubeconfig with which any client, kubectl too, talks to a sandbox as `user`."""
    name = "fairlead-sandbox"
    cluster = {"server": url, "certificate-authority-data": base64.b64encode(ca_pem).decode()}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
        "current-context": name,
    }
    return str(yaml.dump(config, Dumper=yaml.CSafeDumper, sort_keys=False))


def here(path: str | PurePosixPath, host_paths: Mapping[str, Path]) -> Path:
    """The path below the longest of `host_paths` that holds it; as it stands where none does."""
    wanted = PurePosixPath(path)
    for directory in sorted(host_paths, key=len, reverse=True):
        if wanted.is_relative_to(directory):
            return host_paths[directory] / wanted.relative_to(directory)
    return Path(wanted)
