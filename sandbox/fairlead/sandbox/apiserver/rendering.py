"""Stored objects as answers, in the form that the Accept header requests: object, list, table, metadata only; JSON or YAML.

Get, list and watch show an object the same way and encode it once: a list is joined from encoded objects. Protobuf and CBOR are not
supported: a client that accepts JSON, too, gets JSON, another gets 406.
Source: k8s.io/apiserver/pkg/endpoints/handlers/negotiation (1.36).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
import yaml

from fairlead.sandbox.apiserver import statuses
from fairlead.sandbox.apiserver.kinds.base import Kind, Strategy
from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.apiserver.store import Stored
from fairlead.sandbox.apiserver.wire.bodies import YAML
from fairlead.sandbox.apiserver.wire.exchange import JSON, Response, encode

_META = "meta.k8s.io"


def converts(kind: Kind) -> bool:
    """Whether this version shows objects in another form than they are stored."""
    return type(kind.strategy).from_storage is not Strategy.from_storage


def body_of(kind: Kind, stored: Stored) -> bytes:
    """JSON of the object without apiVersion and kind."""
    if not converts(kind):
        return stored.body
    shown = kind.strategy.from_storage(stored.obj)
    return encode({k: v for k, v in shown.items() if k not in ("apiVersion", "kind")})


def _head(kind: str, api_version: str) -> bytes:
    return f'{{"kind":"{kind}","apiVersion":"{api_version}",'.encode()


def object_json(kind: Kind, stored: Stored) -> bytes:
    """The whole object as JSON."""
    return _head(kind.kind, kind.api_version) + body_of(kind, stored)[1:]


def shown(kind: Kind, obj: Json) -> Json:
    """An object as this version shows it."""
    return {**kind.strategy.from_storage(obj), "kind": kind.kind, "apiVersion": kind.api_version}


def partial(obj: Json, version: str = "v1") -> Json:
    return {"kind": "PartialObjectMetadata", "apiVersion": f"{_META}/{version}", "metadata": obj.get("metadata", {})}


def table(
    kind: Kind,
    objects: Sequence[Json],
    metadata: Json,
    now: datetime,
    *,
    version: str,
    include: str,
    header: bool = True,
) -> Json:
    """meta.k8s.io Table. `include` says what each row contains: None, Metadata, Object."""
    strategy = kind.strategy
    rows = []
    for stored_obj in objects:
        obj = strategy.from_storage(stored_obj)
        row: Json = {"cells": strategy.cells(obj, now)}
        if include == "Object":
            row["object"] = {**obj, "kind": kind.kind, "apiVersion": kind.api_version}
        elif include != "None":
            row["object"] = partial(obj, version)
        rows.append(row)
    body: Json = {"kind": "Table", "apiVersion": f"{_META}/{version}", "metadata": metadata}
    if header:
        body["columnDefinitions"] = [
            {"name": c.name, "type": c.type, "format": c.format, "description": c.description, "priority": c.priority}
            for c in strategy.columns()
        ]
    else:
        body["columnDefinitions"] = None
    body["rows"] = rows
    return body


def respond(value: Json | bytes, wanted: Wanted, status: int = 200) -> Response:
    """A body in the negotiated encoding."""
    if not wanted.yaml:
        return Response(status, value if isinstance(value, bytes) else encode(value), wanted.content_type)
    plain = _decode(value) if isinstance(value, bytes) else value
    return Response(status, yaml.safe_dump(plain, sort_keys=False).encode(), wanted.content_type)


def _decode(value: bytes) -> Any:
    return msgspec.json.decode(value)


def one(kind: Kind, stored: Stored, wanted: Wanted, now: datetime, *, include: str = "", status: int = 200) -> Response:
    """One object in the wanted form."""
    if wanted.form == TABLE:
        metadata = {"resourceVersion": stored.obj["metadata"].get("resourceVersion", "")}
        body = table(kind, [stored.obj], metadata, now, version=wanted.version, include=include)
        return respond(body, wanted, status)
    if wanted.form == METADATA:
        return respond(partial(stored.obj, wanted.version), wanted, status)
    return respond(object_json(kind, stored), wanted, status)


def many(
    kind: Kind, found: Sequence[Stored], metadata: Json, wanted: Wanted, now: datetime, *, include: str
) -> Response:
    """A list in the wanted form. Items of built-in kinds do not repeat apiVersion and kind; custom resources do."""
    if wanted.form == TABLE:
        objects = [stored.obj for stored in found]
        return respond(table(kind, objects, metadata, now, version=wanted.version, include=include), wanted)
    if wanted.form == METADATA:
        items = [partial(stored.obj, wanted.version) for stored in found]
        api_version = f"{_META}/{wanted.version}"
        body = {"kind": "PartialObjectMetadataList", "apiVersion": api_version, "metadata": metadata, "items": items}
        return respond(body, wanted)
    assert wanted.form == OBJECT
    render = object_json if kind.strategy.custom_resource else body_of
    joined = b",".join(render(kind, stored) for stored in found)
    head = _head(kind.list_kind, kind.api_version)
    return respond(head + b'"metadata":' + encode(metadata) + b',"items":[' + joined + b"]}", wanted)


OBJECT, TABLE, METADATA = "object", "table", "metadata"
_ACCEPTED = (JSON, YAML, "application/vnd.kubernetes.protobuf")
_PARTIAL = {"PartialObjectMetadata", "PartialObjectMetadataList"}
_DISCOVERY = "APIGroupDiscoveryList"


@dataclass(frozen=True)
class Wanted:
    """`version` is that of meta.k8s.io (v1 or v1beta1) or, for discovery, of apidiscovery.k8s.io (v2, v2beta1)."""

    form: str = OBJECT
    yaml: bool = False
    version: str = "v1"

    @property
    def content_type(self) -> str:
        return YAML if self.yaml else JSON


@dataclass(frozen=True)
class _Clause:
    media_type: str
    params: dict[str, str]
    quality: float


def _clauses(accept: str) -> list[_Clause]:
    """The header's clauses, best first; equals keep their order."""
    clauses = []
    for part in accept.split(","):
        media_type, *params = (piece.strip() for piece in part.split(";"))
        if not media_type:
            continue
        found = dict(param.split("=", 1) for param in params if "=" in param)
        try:
            quality = float(found.pop("q", "1"))
        except ValueError:
            quality = 0.0
        clauses.append(_Clause(media_type.lower(), found, quality))
    return sorted(clauses, key=lambda clause: -clause.quality)


def _is_yaml(media_type: str) -> bool | None:
    """None when the type is neither JSON nor YAML."""
    if media_type in {JSON, "*/*", "application/*"}:
        return False
    return True if media_type == YAML else None


def negotiate(accept: str) -> Wanted:
    """The form of the answer for objects, lists and watches. Raises 406."""
    if not accept.strip():
        return Wanted()
    for clause in _clauses(accept):
        is_yaml = _is_yaml(clause.media_type)
        if is_yaml is None:
            continue
        wanted, group, version = clause.params.get("as"), clause.params.get("g"), clause.params.get("v", "")
        if wanted is None:
            return Wanted(OBJECT, is_yaml)
        if group != "meta.k8s.io" or version not in {"v1", "v1beta1"}:
            continue
        if wanted == "Table":
            return Wanted(TABLE, is_yaml, version)
        if wanted in _PARTIAL:
            return Wanted(METADATA, is_yaml, version)
    raise statuses.not_acceptable(_ACCEPTED)


def aggregated_discovery(accept: str) -> Wanted | None:
    """The aggregated form, when the client prefers it; None for the plain one. Raises 406."""
    if not accept.strip():
        return None
    for clause in _clauses(accept):
        is_yaml = _is_yaml(clause.media_type)
        if is_yaml is None:
            continue
        if clause.params.get("as") is None:
            return None
        if clause.params.get("as") == _DISCOVERY and clause.params.get("g") == "apidiscovery.k8s.io":
            version = clause.params.get("v", "")
            if version in {"v2", "v2beta1"}:
                return Wanted(_DISCOVERY, is_yaml, version)
    raise statuses.not_acceptable(_ACCEPTED)
