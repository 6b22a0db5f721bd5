"""Settings that are no Kubernetes objects, as `fairlead check` reads them: jupyterhub_config.py, and values of JupyterHub's chart.

Nothing is run: of Python, only assignments of literals to `c.KubeSpawner.NAME` count, and a value that is computed is not known.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import yaml

Json = dict[str, Any]


def read(path: Path) -> Json | None:
    """The settings as an object with kind, name and spec; None where the file holds something else. Raises OSError, ValueError."""
    if path.suffix == ".py":
        return _object("jupyterhub_config.py", path, {**_assigned(path)})
    if path.suffix not in {".yaml", ".yml"} or not path.is_file():
        return None
    try:
        found = list(yaml.safe_load_all(path.read_text()))
    except (yaml.YAMLError, RecursionError):
        return None  # said by the reader of manifests
    if (
        len(found) == 1
        and isinstance(found[0], dict)
        and "kind" not in found[0]
        and isinstance(found[0].get("singleuser"), dict)
    ):
        return _object("values of JupyterHub", path, found[0])
    return None


def _object(kind: str, path: Path, spec: Json) -> Json:
    return {"apiVersion": "settings/v1", "kind": kind, "metadata": {"name": str(path)}, "spec": spec}


def _assigned(path: Path) -> Json:
    try:
        tree = ast.parse(path.read_text())
    except (SyntaxError, RecursionError, ValueError) as error:
        raise ValueError(f"{path}: is no Python: {error}") from None
    found: Json = {}
    for node in ast.walk(tree):
        for target in node.targets if isinstance(node, ast.Assign) else ():
            if (
                isinstance(target, ast.Attribute)
                and ast.unparse(target.value) == "c.KubeSpawner"
                and isinstance(node, ast.Assign)
            ):
                found[target.attr] = _literal(node.value)
    return found


def _literal(value: ast.expr) -> Any:
    """The value, with None for what is computed. A product of numbers, as 60 * 60, is known."""
    try:
        return ast.literal_eval(value)
    except ValueError:
        pass
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult):
        left, right = _literal(value.left), _literal(value.right)
        if isinstance(left, int | float) and isinstance(right, int | float):
            return left * right
    return None
