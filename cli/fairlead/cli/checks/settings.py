"""Settings that are no Kubernetes objects, as `fairlead check` reads them.

jupyterhub_config.py, values of JupyterHub's chart, a pipeline as the compiler of Kubeflow Pipelines writes it, and the
backend_config.json of an MLflow Project with the Job template that it names. Nothing is run: of Python, only assignments of literals to `c.KubeSpawner.NAME` count, and to `c.Spawner.NAME`, which KubeSpawner inherits; a value that is
computed is not known (None).
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from fairlead.bounded import files, json_text, yaml_text
from fairlead.bounded.limits import BoundError, UnreadableError
from fairlead.cli.checks.traps import pipelines

Json = dict[str, Any]
PYTHON_BYTES_MAX = 256 * 2**10


def read(path: Path) -> Json | None:
    """The settings as an object with kind, name and spec; None where the file holds something else. Raises OSError, ValueError."""
    if path.suffix == ".py":
        return _object("jupyterhub_config.py", path, {**_assigned(path)})
    if path.suffix == ".json":
        return _backend_config(path)
    if path.suffix not in {".yaml", ".yml"} or not path.is_file():
        return None
    try:
        found = yaml_text.documents(files.read(path))
    except BoundError as error:  # nor could the reader of manifests read it
        raise ValueError(f"{path}: {error}") from None
    except UnreadableError:
        return None  # said by the reader of manifests
    first = found[0] if found and isinstance(found[0], dict) and "kind" not in found[0] else {}
    if "deploymentSpec" in first and "pipelineInfo" in first:  # what follows in the file is of its platform
        return _object("pipeline of Kubeflow Pipelines", path, first)
    if len(found) == 1 and (_is_map(first, "singleuser") or _is_map(first, "hub", "config", "KubeSpawner")):
        return _object("values of JupyterHub", path, first)
    return None


def _backend_config(path: Path) -> Json | None:
    """The template lies where the settings say, from their own directory on, which is the project's. Raises OSError, ValueError."""
    if not path.is_file():
        return None
    try:
        found = json_text.value(files.read(path))
    except UnreadableError:
        return None  # said by the reader of manifests
    if not isinstance(found, dict) or "kind" in found or pipelines.TEMPLATE not in found:
        return None
    said = found[pipelines.TEMPLATE]
    if not isinstance(said, str) or not said:
        raise ValueError(f"{path}: {pipelines.TEMPLATE}: {said!r} is no path: write that of the Job template")
    of_template = path.parent / said
    try:
        template = yaml_text.document(files.read(of_template))
    except OSError as error:
        raise ValueError(
            f"{path}: {pipelines.TEMPLATE}: {of_template} cannot be read: {error.strerror}; write a path from the directory of this file on"
        ) from None
    except UnreadableError as error:
        raise ValueError(f"{of_template}: {error}") from None
    if not isinstance(template, dict) or template.get("kind") != "Job":
        raise ValueError(f"{path}: {pipelines.TEMPLATE}: {of_template} holds no Job: MLflow makes Jobs only")
    return {**_object("backend config of MLflow", path, found), "template": template}


def _is_map(value: Any, *path: str) -> bool:
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return isinstance(value, dict)


def _object(kind: str, path: Path, spec: Json) -> Json:
    return {"apiVersion": "settings/v1", "kind": kind, "metadata": {"name": str(path)}, "spec": spec}


def _assigned(path: Path) -> Json:
    try:
        tree = ast.parse(files.text(path, bytes_max=PYTHON_BYTES_MAX))
        return _settings(tree)
    except UnreadableError as error:
        raise ValueError(f"{path}: {error}") from None
    except (SyntaxError, RecursionError, MemoryError, ValueError) as error:
        raise ValueError(f"{path}: is no Python: {error or 'nested too deeply'}") from None


def _settings(tree: ast.AST) -> Json:
    found: dict[str, Json] = {"c.Spawner": {}, "c.KubeSpawner": {}}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            if isinstance(target, ast.Attribute) and ast.unparse(target.value) in found:
                found[ast.unparse(target.value)][target.attr] = _literal(node.value)
    return {**found["c.Spawner"], **found["c.KubeSpawner"]}


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
