"""What a kubeconfig says besides where the cluster is and who asks: its contexts, and their namespaces."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from fairlead.bounded import files, yaml_text
from fairlead.bounded.limits import SMALL, UnreadableError


def read(kubeconfig: Path | None) -> dict[Any, Any]:
    """The contexts by name; none where the file cannot be read."""
    try:
        return {each.get("name"): each.get("context") or {} for each in _document(kubeconfig).get("contexts") or ()}
    except (AttributeError, TypeError):
        return {}


def own(kubeconfig: Path | None, context: str | None) -> dict[Any, Any]:
    """The context of this name, or the current one."""
    wanted = context or _document(kubeconfig).get("current-context")
    found: dict[Any, Any] = read(kubeconfig).get(wanted, {})
    return found


def own_namespace(kubeconfig: Path | None, context: str | None) -> str:
    """The namespace of the context, as kubectl would take it."""
    return str(own(kubeconfig, context).get("namespace") or "default")


def _document(kubeconfig: Path | None) -> dict[str, Any]:
    path = kubeconfig or Path(os.environ.get("KUBECONFIG", "").partition(os.pathsep)[0] or Path.home() / ".kube/config")
    try:
        found = yaml_text.document(files.read(Path(path), bytes_max=SMALL.bytes), SMALL)
    except (OSError, UnreadableError):
        return {}
    return found if isinstance(found, dict) else {}
