"""What an administrator writes who means well, and too much of it: refused by the apiserver, which names the field and the bound."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.webhook.test_fences import cluster

__all__ = ["cluster"]

Json = dict[str, Any]
CRDS = Path(__file__).parents[2] / "manifests" / "crds"


def fields(schema: Json, path: str) -> Iterator[tuple[str, Json]]:
    yield path, schema
    for name, field in schema.get("properties", {}).items():
        yield from fields(field, f"{path}.{name}")
    if "items" in schema:
        yield from fields(schema["items"], f"{path}[]")
    if isinstance(more := schema.get("additionalProperties"), dict):
        yield from fields(more, f"{path}{{}}")


@pytest.mark.parametrize("kind", ["flavors", "gangs", "queues", "tenancypolicies"])
def test_every_list_map_and_text_of_our_kinds_is_bounded(kind: str) -> None:
    (version,) = yaml.safe_load((CRDS / f"fairlead.dev_{kind}.yaml").read_text())["spec"]["versions"]
    unbounded = [
        path
        for path, field in fields(version["schema"]["openAPIV3Schema"]["properties"]["spec"], "spec")
        if (field.get("type") == "array" and "maxItems" not in field)
        or ("additionalProperties" in field and "maxProperties" not in field)
        or (field.get("type") == "string" and "maxLength" not in field and "enum" not in field)
    ]
    assert unbounded == []
