"""Request bodies in Kubernetes' protobuf encoding, for the kinds that kubectl's own commands send that way.

kubectl (auth can-i, create namespace, drain, …) writes protobuf without negotiation. Decodes to the same dicts as JSON;
never encodes: every client that writes protobuf also reads JSON. A kind or field that messages.yaml lacks is refused by
name, never dropped. Source: the wire format of protobuf 2.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from fairlead.sandbox.files import table

Json = dict[str, Any]

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_Fields = dict[int, tuple[str, str]]
"""Field number → JSON name and type."""


@cache
def _messages() -> dict[str, _Fields]:
    found: dict[str, str] = table(__file__, "messages.yaml")
    rows = {message: [row.split() for row in fields.split(",")] for message, fields in found.items()}
    return {message: {int(number): (name, kind) for number, name, kind in fields} for message, fields in rows.items()}


class UnsupportedError(ValueError):
    """A kind or field that the tables do not have."""


class MalformedError(ValueError):
    """Not protobuf as Kubernetes wraps it."""


def decode(data: bytes) -> Json:
    """A body (magic number, then a runtime.Unknown) as JSON would have it. Raises UnsupportedError, MalformedError."""
    if not data.startswith(_MAGIC):
        raise MalformedError("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
    api_version = kind = ""
    raw = b""
    for number, value in _parse(memoryview(data)[len(_MAGIC) :]):
        if number == 1:
            types = {field: bytes(one).decode() for field, one in _parse(value)}
            api_version, kind = types.get(1, ""), types.get(2, "")
        elif number == 2:
            raw = bytes(value)
    if kind not in _messages() or kind.endswith("Spec"):
        raise UnsupportedError(f"{api_version}, Kind={kind} in protobuf is not understood here; send JSON")
    return {"apiVersion": api_version, "kind": kind, **_message(memoryview(raw), kind)}


def _parse(data: memoryview) -> Iterator[tuple[int, Any]]:
    """(field number, value): an int for numbers, a view for bytes."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        if wire == _BYTES:
            size, at = _varint(data, at)
        elif wire in {_FIXED64, _FIXED32}:
            size = 8 if wire == _FIXED64 else 4
        else:
            raise MalformedError(f"wire type {wire} of field {number}")
        if at + size > len(data):
            raise MalformedError("unexpected EOF")
        yield number, data[at : at + size]
        at += size


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise MalformedError("unexpected EOF")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _message(data: memoryview, name: str) -> Json:
    """One message. Empty strings are absent, as JSON leaves them out."""
    found: Json = {}
    fields = _messages()[name]
    for number, raw in _parse(data):
        if number not in fields:
            raise UnsupportedError(f"field {number} of {name} in protobuf is not understood here; send JSON")
        field, kind = fields[number]
        if kind.endswith("skip"):
            continue
        if kind.startswith("*"):
            found.setdefault(field, []).append(_value(raw, kind[1:]))
        elif kind.startswith("%"):
            entry = dict(_parse(raw))
            key = bytes(entry.get(1, b"")).decode()
            found.setdefault(field, {})[key] = _value(entry.get(2, memoryview(b"")), kind[1:])
        else:
            value = _value(raw, kind)
            if value not in ("", None):
                found[field] = value
    return found


def _value(raw: Any, kind: str) -> Any:
    if kind == "string":
        return bytes(raw).decode()
    if kind == "int":
        return raw - (1 << 64) if raw >> 63 else raw
    if kind == "bool":
        return bool(raw)
    if kind == "bytes":
        return base64.b64encode(bytes(raw)).decode()
    if kind == "quantity":
        return bytes(dict(_parse(raw)).get(1, b"0")).decode()
    if kind == "intstr":
        parts = dict(_parse(raw))
        return bytes(parts.get(3, b"")).decode() if parts.get(1) else parts.get(2, 0)
    if kind in {"time", "micro"}:
        return _time(dict(_parse(raw)), micro=kind == "micro")
    if kind == "Strings":
        return _message(raw, kind).get("items", [])
    return _message(raw, kind)


def _time(parts: dict[int, Any], *, micro: bool) -> str | None:
    seconds = parts.get(1, 0)
    seconds = seconds - (1 << 64) if seconds >> 63 else seconds
    if not parts or seconds <= 0:
        return None
    moment = _EPOCH + timedelta(seconds=seconds, microseconds=parts.get(2, 0) // 1000)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")
