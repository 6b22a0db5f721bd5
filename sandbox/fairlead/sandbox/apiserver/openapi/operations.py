"""The paths of a document: for every kind the operations that its verbs allow, as far as kubectl reads them.

kubectl finds a kind by the group-version-kind of its operations, and reads from the PATCH operation whether the server
supports `dryRun`, `fieldValidation` and strategic merge patches.
"""

from __future__ import annotations

from fairlead.sandbox.apiserver.kinds.base import Kind
from fairlead.sandbox.apiserver.kinds.request import Json

_WRITE = ("dryRun", "fieldManager", "fieldValidation")
_PATCH_TYPES = ("application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml")
_STRATEGIC = "application/strategic-merge-patch+json"
_READ = ("continue", "fieldSelector", "labelSelector", "limit", "resourceVersion", "timeoutSeconds", "watch")
_OK: Json = {"200": {"description": "OK"}}


def paths_of(kind: Kind) -> Json:
    """Path → operations."""
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    collection = f"{root}/namespaces/{{namespace}}/{kind.plural}" if kind.namespaced else f"{root}/{kind.plural}"
    item = f"{collection}/{{name}}"
    where = [_in_path("namespace")] if kind.namespaced else []
    out: Json = {
        collection: {**_collection(kind), "parameters": where},
        item: {**_item(kind), "parameters": [*where, _in_path("name")]},
    }
    if kind.namespaced and "list" in kind.verbs:
        out[f"{root}/{kind.plural}"] = {"get": _operation(kind, "list", _READ), "parameters": []}
    for subresource in kind.subresources:
        if subresource.verbs == ("get", "patch", "update"):
            out[f"{item}/{subresource.name}"] = {**_item(kind), "parameters": [*where, _in_path("name")]}
    return {path: operations for path, operations in out.items() if len(operations) > 1}


def _collection(kind: Kind) -> Json:
    out: Json = {}
    if "list" in kind.verbs:
        out["get"] = _operation(kind, "list", _READ)
    if "create" in kind.verbs:
        out["post"] = _operation(kind, "post", _WRITE)
    if "deletecollection" in kind.verbs:
        out["delete"] = _operation(kind, "deletecollection", _READ)
    return out


def _item(kind: Kind) -> Json:
    out: Json = {}
    if "get" in kind.verbs:
        out["get"] = _operation(kind, "get", ())
    if "update" in kind.verbs:
        out["put"] = _operation(kind, "put", _WRITE)
    if "patch" in kind.verbs:
        types = _PATCH_TYPES if kind.strategy.custom_resource else (*_PATCH_TYPES, _STRATEGIC)
        out["patch"] = _operation(kind, "patch", (*_WRITE, "force"))
        out["patch"]["requestBody"] = {"content": {one: {"schema": {"type": "object"}} for one in types}}
    if "delete" in kind.verbs:
        out["delete"] = _operation(kind, "delete", ("dryRun", "gracePeriodSeconds", "propagationPolicy"))
    return out


def _operation(kind: Kind, action: str, parameters: tuple[str, ...]) -> Json:
    return {
        "operationId": f"{action}{kind.group.partition('.')[0].title()}{kind.version.title()}{kind.kind}",
        "parameters": [_query(name) for name in parameters],
        "responses": _OK,
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
    }


def _query(name: str) -> Json:
    types = {"limit": "integer", "timeoutSeconds": "integer", "gracePeriodSeconds": "integer", "watch": "boolean"}
    return {"name": name, "in": "query", "schema": {"type": types.get(name, "string"), "uniqueItems": True}}


def _in_path(name: str) -> Json:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "uniqueItems": True}}
