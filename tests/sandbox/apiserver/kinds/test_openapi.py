"""The published schemas: complete, referring only to what is there, new whenever the kinds are."""

from __future__ import annotations

import json
from typing import Any

from fairlead.sandbox.apiserver.kinds import catalogue
from fairlead.sandbox.apiserver.openapi import document
from tests.support.apiserver.served import Served

CRD = {
    "metadata": {"name": "things.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Cluster",
        "names": {"kind": "Thing", "plural": "things"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {"spec": {"type": "object", "properties": {"x": {"type": "string"}}}},
                    }
                },
            }
        ],
    },
}


async def read(api: Served, path: str) -> Any:
    status, body = await api.get(path)
    assert status == 200
    return body if isinstance(body, dict) else json.loads(body)


def references(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*(references(one) for one in value.values()))
    return set().union(*(references(one) for one in value)) if isinstance(value, list) else set()


async def test_every_reference_leads_to_a_schema(api: Served) -> None:
    index = await read(api, "/openapi/v3")
    for path, entry in index["paths"].items():
        found = await read(api, entry["serverRelativeURL"])
        names = {f"#/components/schemas/{name}" for name in found["components"]["schemas"]}
        assert references(found) <= names, path


async def test_every_kind_is_found_by_its_operations_and_its_schema(api: Served) -> None:
    for kind in catalogue.kinds():
        prefix = f"apis/{kind.group}/{kind.version}" if kind.group else f"api/{kind.version}"
        raw = document(prefix, api.state.registry)
        assert raw is not None
        found = json.loads(raw)
        gvk = {"group": kind.group, "version": kind.version, "kind": kind.kind}
        operations = [one for path in found["paths"].values() for one in path.values() if isinstance(one, dict)]
        assert any(one["x-kubernetes-group-version-kind"] == gvk for one in operations), kind.plural
        schemas = found["components"]["schemas"].values()
        assert any(gvk in one.get("x-kubernetes-group-version-kind", []) for one in schemas), kind.plural


async def test_a_custom_kind_comes_with_a_new_address_and_goes_with_its_definition(api: Served) -> None:
    await api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", CRD)
    first = (await read(api, "/openapi/v3"))["paths"]["apis/example.com/v1"]["serverRelativeURL"]
    schema = (await read(api, first))["components"]["schemas"]["com.example.v1.Thing"]
    assert set(schema["properties"]) == {"apiVersion", "kind", "metadata", "spec"}
    versions = json.loads(json.dumps(CRD["spec"]["versions"]).replace('"x"', '"y"'))  # type: ignore[index]
    crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.com"
    await api.patch(crd, {"spec": {"versions": versions}})
    second = (await read(api, "/openapi/v3"))["paths"]["apis/example.com/v1"]["serverRelativeURL"]
    assert second != first
    schema = (await read(api, second))["components"]["schemas"]["com.example.v1.Thing"]
    assert set(schema["properties"]["spec"]["properties"]) == {"y"}
    await api.delete(crd)
    assert "apis/example.com/v1" not in (await read(api, "/openapi/v3"))["paths"]
