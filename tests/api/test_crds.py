"""The CRDs are what the models say, in the form that a real apiserver takes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlead import cel
from fairlead.api import crds

CRDS = Path(__file__).parents[2] / "manifests" / "crds"
MANIFESTS = {d.model.__name__: crds.manifest(d) for d in crds.DEFINITIONS}


def schema_of(kind: str) -> dict[str, Any]:
    (version,) = MANIFESTS[kind]["spec"]["versions"]
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return schema


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from nodes(schema[key], f"{path}[]")


def test_the_files_are_current() -> None:
    written = {path.name: path.read_text() for path in CRDS.glob("fairlead.dev_*.yaml")}
    assert written == crds.render(), "run: fairlead crds --output manifests/crds"


@pytest.mark.parametrize("kind", MANIFESTS)
def test_every_property_has_a_description_and_a_type(kind: str) -> None:
    for path, node in nodes(schema_of(kind)):
        if path != ".metadata" and not path.endswith("[]"):
            assert node.get("description"), f"{kind}{path}: no description"
        assert "type" in node or node.get("x-kubernetes-int-or-string"), f"{kind}{path}: no type"


@pytest.mark.parametrize("kind", MANIFESTS)
def test_schemas_are_structural(kind: str) -> None:
    for path, node in nodes(schema_of(kind)):
        assert not {"$ref", "$defs", "anyOf", "oneOf", "allOf", "const", "nullable", "title"} & set(node), path
        assert not ("properties" in node and "additionalProperties" in node), path
        if node.get("type") == "array":
            assert "items" in node, path
            assert node["x-kubernetes-list-type"] in {"atomic", "map", "set"}, path
            for key in node.get("x-kubernetes-list-map-keys", ()):
                item = node["items"]
                assert key in item["required"] or "default" in item["properties"][key], path
        for name in node.get("required", ()):
            assert name in node["properties"], path


@pytest.mark.parametrize("kind", MANIFESTS)
def test_every_list_map_and_text_is_bounded(kind: str) -> None:
    """The apiserver refuses a rule whose worst case it cannot bound, and who writes too much is told the field."""
    for path, node in nodes(schema_of(kind)):
        assert node.get("type") != "array" or "maxItems" in node, path
        if path.startswith(".spec"):
            assert not isinstance(node.get("additionalProperties"), dict) or "maxProperties" in node, path
            assert node.get("type") != "string" or "maxLength" in node or "enum" in node, path


def broken(kind: str, object_: dict[str, Any], old: dict[str, Any] | None = None) -> list[str]:
    """Messages of the rules that the object breaks, evaluated as the apiserver does."""
    messages = []

    def visit(schema: dict[str, Any], value: Any, before: Any) -> None:
        for rule in schema.get("x-kubernetes-validations", ()):
            program = cel.compile(rule["rule"], cel.RULE)
            transition = "oldSelf" in rule["rule"]
            if transition and before is None:
                continue
            if program.evaluate({"self": value} | ({"oldSelf": before} if transition else {})) is not True:
                messages.append(rule["message"])
        if isinstance(value, dict):
            for name, child in schema.get("properties", {}).items():
                if name in value:
                    visit(child, value[name], before.get(name) if isinstance(before, dict) else None)
        if isinstance(value, list):
            for item in value:
                visit(schema["items"], item, None)

    visit(schema_of(kind), object_, old)
    return messages


def test_the_rules_hold_where_they_should_and_break_where_they_should() -> None:
    def queue(**spec: Any) -> dict[str, Any]:
        return {"metadata": {"name": "ml"}, "spec": spec}

    def flavor(**spec: Any) -> dict[str, Any]:
        return {"metadata": {"name": "f"}, "spec": {"deviceSelector": "true"} | spec}

    def resource_flavor(**spec: Any) -> dict[str, Any]:
        return {"metadata": {"name": "f"}, "spec": spec}

    capacity = {"measure": "Capacity", "capacityName": "memory"}
    assert broken("Queue", {"metadata": {"name": "ml"}}) == []
    assert broken("Queue", queue(parent="root", flavors=[{"flavor": "x", "deserved": 1, "limit": 1}])) == []
    assert broken("Queue", queue(flavors=[{"flavor": "x", "deserved": "2Gi", "limit": 1}])) == []
    assert broken("Queue", queue(flavors=[{"flavor": "x", "deserved": 2, "limit": 1}])) == [
        "limit must not be below deserved"
    ]
    assert broken("Queue", queue(parent="ml")) == ["spec.parent: a queue cannot be its own parent"]
    assert broken("Flavor", flavor(measure="Devices")) == []
    assert broken("Flavor", flavor(**capacity)) == []
    assert broken("Flavor", flavor(measure="Capacity"))[0].startswith("capacityName is required")
    assert broken("Flavor", flavor(measure="Share", capacityName="memory"))[0].startswith("capacityName is required")
    assert broken("Flavor", flavor(**capacity), flavor(**capacity)) == []
    assert broken("Flavor", flavor(measure="Devices"), flavor(measure="Share"))[0].startswith("measure is immutable")
    cpu = {"measure": "Resource", "resourceName": "cpu"}
    assert broken("Flavor", resource_flavor(**cpu, nodeSelector={"pool": "fast"})) == []
    assert broken("Flavor", resource_flavor(measure="Resource"))[0].startswith("resourceName is required")
    assert broken("Flavor", flavor(measure="Devices", resourceName="cpu"))[0].startswith("resourceName is required")
    assert broken("Flavor", flavor(**cpu))[0].startswith("measure Resource counts what pods request")
    assert broken("Flavor", flavor(measure="Devices", nodeSelector={"a": "b"}))[0].startswith("measure Resource counts")
    other = broken("Flavor", resource_flavor(**cpu | {"resourceName": "memory"}), resource_flavor(**cpu))
    assert other[0].startswith("resourceName is immutable")
    changed = broken("Flavor", flavor(measure="Capacity", capacityName="cores"), flavor(**capacity))
    assert changed[0].startswith("capacityName is immutable")
