"""Reads manifests as `kubectl apply -f` and `-k` would: files, directories, kustomizations; and replaces what their pods request.

Of kustomize it supports `resources` (files and directories, recursively), `namespace`, `labels` (of metadata only), and
`patches` that delete an object or replace top-level fields, which is all that manifests/ uses; a kustomization with more in
it is refused, not half-applied. Reads files only. With requests of `cpu=10m,memory=16Mi` every container of a Pod, or of a Job's
template, requests that; `none` removes its CPU and memory requests and limits: so examples written for GPU servers run on nodes of any
size. Other resources (`nvidia.com/gpu`) stay as they are.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fairlead.bounded import files, yaml_text
from fairlead.bounded.limits import UnreadableError
from fairlead.kube.quantity import Quantity, QuantityError

Manifest = dict[str, Any]
Identity = tuple[str, str, str, str]
"""apiVersion, kind, name, namespace."""

KUSTOMIZATION = "kustomization.yaml"
_KUSTOMIZE_KNOWN = {"apiVersion", "kind", "resources", "namespace", "labels", "metadata", "patches"}

# Kinds that other objects depend on, in the order in which they are applied; all others follow in the order given.
_FIRST = ("Namespace", "CustomResourceDefinition", "ServiceAccount", "ClusterRole", "Role", "ClusterRoleBinding")


class ManifestError(ValueError):
    """A manifest that cannot be applied: names the file and what is wrong with it."""


def load(path: Path) -> list[Manifest]:
    """All objects of a file, a directory of YAML files, or a kustomization, in the order they are written."""
    if path.is_file():
        return list(_file(path))
    if (path / KUSTOMIZATION).exists():
        return list(_kustomization(path))
    found = sorted(entry for entry in path.glob("*") if entry.suffix in {".yaml", ".yml", ".json"})
    if not found:
        raise ManifestError(f"{path}: no manifest; give a YAML file, a directory of them, or a kustomization")
    return [manifest for file in found for manifest in _file(file)]


def in_order(manifests: Iterable[Manifest]) -> list[Manifest]:
    """What other objects depend on comes first: namespaces, CRDs, accounts and roles. Otherwise the order is kept."""
    rank = {kind: index for index, kind in enumerate(_FIRST)}
    return sorted(manifests, key=lambda manifest: rank.get(manifest["kind"], len(rank)))


def _file(path: Path) -> Iterator[Manifest]:
    for index, document in enumerate(_documents(path)):
        if document is None:
            continue
        yield from _flat(document, f"{path}[{index}]")


def _documents(path: Path) -> list[Any]:
    try:
        return copy.deepcopy(_parsed(files.read(path)))
    except UnreadableError as error:
        raise ManifestError(f"{path}: cannot be read as YAML: {error}") from error


@functools.lru_cache(maxsize=64)
def _parsed(text: str) -> list[Any]:
    """Every cluster that a process starts applies the same files: parsing them is a third of its start."""
    return yaml_text.documents(text)


def _flat(document: object, where: str) -> Iterator[Manifest]:
    if not isinstance(document, dict):
        raise ManifestError(f"{where}: {type(document).__name__} is no object; write apiVersion, kind and metadata")
    for field in ("apiVersion", "kind"):
        if not isinstance(document.get(field), str) or not document[field]:
            raise ManifestError(f"{where}: {field} is missing; every object needs one")
    if document["kind"] == "List":
        for index, item in enumerate(document.get("items") or ()):
            yield from _flat(item, f"{where}.items[{index}]")
        return
    if not (document.get("metadata") or {}).get("name"):
        raise ManifestError(f"{where}: metadata.name is missing; apply needs one")
    yield document


def _kustomization(folder: Path) -> Iterator[Manifest]:
    where = folder / KUSTOMIZATION
    wanted = next(iter(_documents(where)), None) or {}
    unknown = sorted(set(wanted) - _KUSTOMIZE_KNOWN)
    if unknown:
        raise ManifestError(f"{where}: {', '.join(unknown)}: not understood here; use kubectl apply -k")
    labels: dict[str, str] = {}
    for entry in wanted.get("labels") or ():
        if set(entry) != {"pairs"}:
            raise ManifestError(
                f"{where}: labels: {', '.join(sorted(set(entry) - {'pairs'}))}: only pairs are understood here"
            )
        labels |= entry["pairs"]
    patches = dict(_patches(where, wanted.get("patches") or ()))
    for entry in wanted.get("resources") or ():
        target = (folder / entry).resolve()
        if not target.exists():
            raise ManifestError(f"{where}: resources: {entry!r} does not exist")
        for manifest in load(target):
            changes = patches.pop(_identity(manifest), {})
            if changes is None:
                continue
            manifest.update(changes)
            if labels:
                manifest["metadata"]["labels"] = (manifest["metadata"].get("labels") or {}) | labels
            if wanted.get("namespace") and "namespace" in manifest["metadata"]:
                manifest["metadata"]["namespace"] = wanted["namespace"]
            yield manifest
    if patches:
        raise ManifestError(f"{where}: patches: no resource is called {', '.join(map(str, patches))}")


def _patches(where: Path, entries: Iterable[Any]) -> Iterator[tuple[Identity, Manifest | None]]:
    """The new top-level fields of each patched object; None where it is deleted."""
    for entry in entries:
        if set(entry) == {"patch"}:
            document = yaml_text.document(entry["patch"])
            if not isinstance(document, dict) or document.pop("$patch", None) != "delete":
                raise ManifestError(f"{where}: patches: only $patch: delete is understood inline; use kubectl apply -k")
            yield _identity(document), None
        elif set(entry) == {"path", "target"}:
            target = entry["target"]
            group = f"{target['group']}/" if target.get("group") else ""
            identity = (f"{group}{target['version']}", target["kind"], target["name"], target.get("namespace") or "")
            (operations,) = _documents(where.parent / entry["path"])
            if any(each["op"] != "replace" or each["path"].count("/") != 1 for each in operations):
                raise ManifestError(f"{where}: {entry['path']}: only `replace` of top-level fields is understood here")
            yield identity, {each["path"].removeprefix("/"): each["value"] for each in operations}
        else:
            raise ManifestError(
                f"{where}: patches: {sorted(entry)}: only patch, or path with target, are understood here"
            )


def _identity(manifest: Manifest) -> Identity:
    metadata = manifest["metadata"]
    return manifest["apiVersion"], manifest["kind"], metadata["name"], metadata.get("namespace") or ""


_REPLACED = ("cpu", "memory")


def parse(text: str) -> dict[str, str]:
    """`none`, or `NAME=QUANTITY` separated by commas, with `cpu` and `memory` as names. Raises ValueError."""
    if text == "none":
        return {}
    found: dict[str, str] = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        if name not in _REPLACED:
            raise ValueError(f"{part!r}: give none, or requests as in cpu=10m,memory=16Mi")
        try:
            Quantity.of(value)
        except QuantityError as error:
            raise ValueError(f"{part!r}: {error}") from None
        found[name] = value
    return found


def replaced(manifest: Manifest, requests: Mapping[str, str]) -> Manifest:
    """A copy in which every container requests `requests` of CPU and memory, without limits of either."""
    copy: Manifest = _copy(manifest, requests)
    return copy


def _copy(value: Any, requests: Mapping[str, str]) -> Any:
    if isinstance(value, list):
        return [_copy(item, requests) for item in value]
    if not isinstance(value, dict):
        return value
    copy = {key: _copy(item, requests) for key, item in value.items()}
    for key in ("containers", "initContainers"):
        if isinstance(copy.get(key), list):
            copy[key] = [{**container, "resources": _resources(container, requests)} for container in copy[key]]
    return copy


def _resources(container: Mapping[str, Any], requests: Mapping[str, str]) -> dict[str, Any]:
    resources = container.get("resources") or {}
    kept = {
        kind: {name: value for name, value in (resources.get(kind) or {}).items() if name not in _REPLACED}
        for kind in ("requests", "limits")
    }
    kept["requests"] |= requests
    return {**resources, **kept}
