"""What an administrator writes who means well, and too much of it: refused by the apiserver, which names the field and the bound."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fairlead.kube import errors
from fairlead.kube.resources import QUEUES, TENANCY_POLICIES, raw
from tests.webhook.test_fences import Cluster, cluster

__all__ = ["cluster"]

Json = dict[str, Any]
CRDS = Path(__file__).parents[2] / "manifests" / "crds"
MANY = 10_000
LONG = "x" * 100_000


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


def selector(**given: Any) -> Json:
    return {"namespaceSelector": given}


def expression(**given: Any) -> Json:
    return selector(matchExpressions=[{"key": "team", "operator": "In", "values": ["a"], **given}])


TOO_MUCH: dict[str, tuple[Json, str]] = {
    "exempt namespaces": ({"exemptions": {"namespaces": [f"n{n}" for n in range(MANY)]}}, "spec.exemptions.namespaces"),
    "exempt users": ({"exemptions": {"users": [f"u{n}" for n in range(MANY)]}}, "spec.exemptions.users"),
    "a long user": ({"exemptions": {"users": [LONG]}}, "spec.exemptions.users[0]"),
    "labels": (selector(matchLabels={f"k{n}": "v" for n in range(MANY)}), "spec.namespaceSelector.matchLabels"),
    "a long label": (selector(matchLabels={"k": LONG}), "spec.namespaceSelector.matchLabels"),
    "values": (expression(values=[f"v{n}" for n in range(MANY)]), "spec.namespaceSelector.matchExpressions[0].values"),
    "a long value": (expression(values=[LONG]), "spec.namespaceSelector.matchExpressions[0].values[0]"),
    "classes": ({"deviceClasses": [f"c{n}" for n in range(MANY)]}, "spec.deviceClasses"),
    "rules": (
        {"rules": [{"name": f"r{n}", "expression": "true"} for n in range(MANY)]},
        "spec.rules",
    ),
    "a long rule": ({"rules": [{"name": "r", "expression": f"'{LONG}' != ''"}]}, "spec.rules[0].expression"),
    "paths": (
        {"hostAccess": {"hostPaths": [{"path": f"/data/{n}"} for n in range(MANY)]}},
        "spec.hostAccess.hostPaths",
    ),
    "a long capability": ({"hostAccess": {"capabilities": [LONG.upper()]}}, "spec.hostAccess.capabilities[0]"),
}


@pytest.mark.parametrize("case", TOO_MUCH)
async def test_too_much_in_a_tenancy_policy_is_refused_with_the_field(cluster: Cluster, case: str) -> None:
    spec, field = TOO_MUCH[case]
    async with cluster.client("admin") as admin:
        began = time.monotonic()
        with pytest.raises(errors.Invalid) as refused:
            await admin.create(raw(TENANCY_POLICIES), {"metadata": {"name": "p"}, "spec": spec})
        assert field in str(refused.value)
        assert ("Too many" in str(refused.value)) or ("Too long" in str(refused.value))
        assert len(str(refused.value)) < 4000
        assert time.monotonic() - began < 5


@pytest.mark.parametrize("case", ["labels", "values", "a long value"])
async def test_too_much_in_a_queues_selector_is_refused_with_the_field(cluster: Cluster, case: str) -> None:
    spec, field = TOO_MUCH[case]
    async with cluster.client("admin") as admin:
        with pytest.raises(errors.Invalid) as refused:
            await admin.create(raw(QUEUES), {"metadata": {"name": "q"}, "spec": spec})
        assert field in str(refused.value)
