"""CPU and memory requests of manifests, replaced: so that examples written for GPU servers run on nodes of any size.

Example: `cpu=10m,memory=16Mi` makes every container of a Pod, or of a Job's template, request that; `none` removes its CPU and
memory requests and limits. Other resources (`nvidia.com/gpu`) stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairlead.kube.quantity import Quantity, QuantityError
from fairlead.sandbox.install.manifests import Manifest

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
