"""OpenAPI v2: only what kubectl still reads of it, whether writes are validated by the server.

kubectl asks version 3 first. For a kind that no document of version 3 has, such as one whose CRD is not installed yet, it asks version
2, as protobuf, and looks for `fieldValidation` among the parameters of a Namespace's PATCH. So that is what the document has, and the
error is the real one: "no matches for kind … ensure CRDs are installed first".
Sources: k8s.io/cli-runtime/pkg/resource/query_param_verifier.go; github.com/google/gnostic-models/openapiv2/OpenAPIv2.proto (field numbers).
"""

from __future__ import annotations

import json

from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.release import Release

PROTOBUF = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
RETURNED = PROTOBUF.replace("@", ".")
"""A media type has no @: kube-openapi answers so."""
_PATH = "/api/v1/namespaces/{name}"
_KIND = {"group": "", "kind": "Namespace", "version": "v1"}
_PARAMETER = "fieldValidation"


def as_json(release: Release) -> bytes:
    operation = {
        "operationId": "patchCoreV1Namespace",
        "parameters": [{"in": "query", "name": _PARAMETER, "type": "string", "uniqueItems": True}],
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-group-version-kind": _KIND,
    }
    document: Json = {
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": f"v{release.version}"},
        "paths": {_PATH: {"patch": operation}},
        "definitions": {},
    }
    return json.dumps(document, separators=(",", ":")).encode()


def as_protobuf(release: Release) -> bytes:
    """The same document. A field is written as its number, its length and its bytes."""
    info = _field(1, b"Kubernetes") + _field(2, f"v{release.version}".encode())
    query = _field(2, b"query") + _field(4, _PARAMETER.encode())
    parameter = _field(1, _field(2, _field(3, query)))  # ParametersItem: Parameter: NonBodyParameter: query
    extension = _field(1, b"x-kubernetes-group-version-kind") + _field(2, _field(2, json.dumps(_KIND).encode()))
    operation = _field(5, b"patchCoreV1Namespace") + _field(8, parameter) + _field(13, extension)
    path = _field(1, _PATH.encode()) + _field(2, _field(8, operation))
    return _field(1, b"2.0") + _field(2, info) + _field(8, _field(2, path))


def _field(number: int, content: bytes) -> bytes:
    """A length-delimited field of a protobuf message."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
