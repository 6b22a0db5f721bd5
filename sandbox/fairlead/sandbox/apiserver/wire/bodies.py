"""Request bodies: bytes to a dict, with the error texts of the real decoder.

JSON, YAML or protobuf; reports duplicate fields (for fieldValidation); kind and apiVersion are those of the body, or those
that the URL implies. Source: k8s.io/apiserver/pkg/endpoints/handlers/create.go, rest.go (1.36).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import yaml

from fairlead.bounded import yaml_text
from fairlead.bounded.limits import UnreadableError
from fairlead.sandbox.apiserver import statuses
from fairlead.sandbox.apiserver.kinds import decode
from fairlead.sandbox.apiserver.kinds.base import Kind, Registry
from fairlead.sandbox.apiserver.kinds.errors import FieldError, invalid
from fairlead.sandbox.apiserver.kinds.request import DecodeError, Json
from fairlead.sandbox.apiserver.wire import protobuf
from fairlead.sandbox.apiserver.wire.exchange import JSON, Request

YAML = "application/yaml"
BODY_TYPES = (JSON, YAML, protobuf.MEDIA_TYPE)  # as listed in 415
_SHOWN = 30
BODY_LIMIT_BYTES = 3 * 1024 * 1024

INTERNAL_PACKAGES = {"": "core", "events.k8s.io": "core", "rbac.authorization.k8s.io": "rbac"}


@dataclass
class Body:
    """A parsed body. `duplicates` are field paths that occur twice."""

    value: Any
    duplicates: list[str] = field(default_factory=list)


class ParseError(ValueError):
    """The bytes are no JSON (or YAML); the text is the real decoder's."""


def parse(data: bytes, content_type: str) -> Body:
    """Raises ParseError; ApiError 415 for a media type that bodies cannot have."""
    if content_type in {"", JSON}:
        return parse_json(data)
    if content_type == YAML:
        return parse_yaml(data)
    if content_type == protobuf.MEDIA_TYPE:
        return _parse_protobuf(data)
    raise statuses.unsupported_media_type(BODY_TYPES)


def _parse_protobuf(data: bytes) -> Body:
    try:
        return Body(protobuf.decode(data))
    except protobuf.UnsupportedError as error:
        raise statuses.ApiError(415, "UnsupportedMediaType", str(error)) from error
    except ValueError as error:
        raise ParseError(str(error)) from error


def parse_json(data: bytes) -> Body:
    """JSON as encoding/json reads it: the last of two equal keys wins, and is reported."""
    twice: list[str] = []

    def build(pairs: list[tuple[str, Any]]) -> Json:
        found = dict(pairs)
        if len(found) != len(pairs):
            seen: set[str] = set()
            for key, _ in pairs:
                if key in seen:
                    twice.append(key)
                seen.add(key)
        return found

    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ParseError(f"invalid UTF-8 in body: {error.reason}") from error
    try:
        value = json.loads(text, object_pairs_hook=build, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise ParseError(go_json_error(text, error)) from error
    except RecursionError as error:
        raise ParseError("exceeded max depth") from error
    duplicates = _paths_of(twice, text) if twice else []
    return Body(value, duplicates)


def _no_constant(name: str) -> Any:
    """NaN and Infinity are Python's, not JSON's."""
    char = name.lstrip("-")[0]
    raise ParseError(f"invalid character '{char}' looking for beginning of value")


def _paths_of(keys: list[str], text: str) -> list[str]:
    """Dotted paths of duplicate keys: parse once more, keeping paths (rare, so speed does not matter)."""
    found: list[str] = []

    def walk(value: Any, path: str) -> None:
        if isinstance(value, _Pairs):
            seen: set[str] = set()
            for key, inner in value:
                here = f"{path}.{key}" if path else key
                if key in seen:
                    found.append(here)
                seen.add(key)
                walk(inner, here)
        elif isinstance(value, list):
            for index, inner in enumerate(value):
                walk(inner, f"{path}[{index}]")

    walk(json.loads(text, object_pairs_hook=_Pairs), "")
    return list(dict.fromkeys(found)) or keys


class _Pairs(list[tuple[str, Any]]):
    """An object with its keys in order, duplicates included."""


def go_json_error(text: str, error: json.JSONDecodeError) -> str:
    """About the text of encoding/json for an error at the same position."""
    rest = text[error.pos :].lstrip()
    if not rest or error.msg.startswith("Unterminated") or not text.strip():
        return "unexpected end of JSON input"
    char = rest[0]
    if error.msg.startswith("Extra data"):
        return f"invalid character {_go_char(char)} after top-level value"
    if error.msg.startswith("Expecting property name"):
        return f"invalid character {_go_char(char)} looking for beginning of object key string"
    if error.msg.startswith("Expecting ':'"):
        return f"invalid character {_go_char(char)} after object key"
    if error.msg.startswith("Expecting ','"):
        return f"invalid character {_go_char(char)} after object key:value pair"
    return f"invalid character {_go_char(char)} looking for beginning of value"


def _go_char(char: str) -> str:
    if char == "'":
        return "'\\''"
    if char == '"':
        return "'\"'"
    return f"'{char}'" if char.isprintable() else "'" + char.encode("unicode_escape").decode() + "'"


class _Loader(yaml.CSafeLoader):
    """YAML as Kubernetes reads it: timestamps stay strings."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def parse_yaml(data: bytes) -> Body:
    """One YAML document; JSON is YAML too, and much faster read as JSON."""
    if data.lstrip()[:1] == b"{":
        try:
            return parse_json(data)
        except ParseError:
            pass
    try:
        yaml_text.check(data)
        value = yaml.load(data, Loader=_Loader)  # noqa: S506 (a safe loader, less timestamps)
    except UnreadableError as error:
        raise ParseError(f"error converting YAML to JSON: yaml: {error}") from error
    except yaml.YAMLError as error:
        raise ParseError(f"error converting YAML to JSON: yaml: {_yaml_problem(error)}") from error
    return Body(_stringly(value))


def _yaml_problem(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    return f"line {mark.line + 1}: {problem}" if mark else problem


def _stringly(value: Any) -> Any:
    """JSON has string keys only."""
    if isinstance(value, dict):
        return {_key(key): _stringly(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_stringly(inner) for inner in value]
    return value


def _key(key: Any) -> str:
    if isinstance(key, bool):
        return "true" if key else "false"
    return str(key)


def summary(data: bytes) -> str:
    if not data:
        return "<empty>"
    if data[:1] == b"{":
        text = data.decode(errors="replace")
        return text[:_SHOWN] + " ..." if len(data) > _SHOWN else text
    return data[:_SHOWN].hex() + " ..." if len(data) > _SHOWN else data.hex()


def read_object(
    request: Request, kind: Kind, registry: Registry, *, body_kind: tuple[str, str, str] | None = None
) -> Body:
    """The body of a POST or PUT as an object of `kind` (or of `body_kind`: group, version, kind)."""
    group, version, name = body_kind or (kind.group, kind.version, kind.kind)
    try:
        body = parse(request.body, request.content_type)
    except ParseError as error:
        shown = f"couldn't get version/kind; json parse error: {error}"
        if request.content_type == YAML:
            shown = str(error)
        raise statuses.bad_request(
            f"the object provided is unrecognized (must be of type {name}): {shown} ({summary(request.body)})"
        ) from error
    body = check_type(body, request.body, group, version, name, kind, registry)
    if body_kind is not None or kind.verbs == ("create",):
        try:
            decode.fit(body.value, name)
        except DecodeError as error:
            raise statuses.cannot_decode_as(name, version, name, str(error)) from error
    return body


def check_type(body: Body, data: bytes, group: str, version: str, name: str, kind: Kind, registry: Registry) -> Body:
    """Check kind and apiVersion: absent means the URL's; others are refused with the texts of the real one."""
    obj = body.value
    if not isinstance(obj, dict):
        what = {list: "array", str: "string", bool: "bool", int: "number", float: "number"}.get(type(obj), "null")
        raise statuses.bad_request(
            f"the object provided is unrecognized (must be of type {name}): couldn't get version/kind; json parse error: "
            f'json: cannot unmarshal {what} into Go value of type struct {{ APIVersion string "json:\\"apiVersion,omitempty\\""; '
            f'Kind string "json:\\"kind,omitempty\\"" }} ({summary(data)})'
        )
    api_version = f"{group}/{version}" if group else version
    given_version = obj.get("apiVersion") or api_version
    given_kind = obj.get("kind") or name
    if not isinstance(given_version, str) or not isinstance(given_kind, str):
        raise statuses.bad_request(
            f"the object provided is unrecognized (must be of type {name}): couldn't get version/kind; json parse error: "
            f"json: cannot unmarshal into Go struct field .apiVersion of type string ({summary(data)})"
        )
    if given_version != api_version or given_kind != name:
        _refuse_type(given_version, given_kind, api_version, group, version, name, kind, registry)
    body.value = {"apiVersion": api_version, "kind": name, **obj} | {"apiVersion": api_version, "kind": name}
    return body


def _refuse_type(
    given_version: str,
    given_kind: str,
    api_version: str,
    group: str,
    version: str,
    name: str,
    kind: Kind,
    registry: Registry,
) -> None:
    given_group, _, short = given_version.rpartition("/")
    if kind.strategy.custom_resource:
        if given_version != api_version:
            raise statuses.bad_request(
                f"the API version in the data ({given_version}) does not match the expected API version ({api_version})"
            )
        raise statuses.invalid(kind, "", [_kind_error(given_kind, name)])
    if registry.of_kind(given_group, short, given_kind) is None:
        why = f'no kind "{given_kind}" is registered for version "{given_version}" in scheme "pkg/api/legacyscheme/scheme.go:30"'
    elif given_version != api_version and given_kind == name:
        raise statuses.bad_request(
            f"the API version in the data ({given_version}) does not match the expected API version ({api_version})"
        )
    else:
        package = INTERNAL_PACKAGES.get(group, group.partition(".")[0])
        why = f"converting ({short}.{given_kind}) to ({package}.{name}): unknown conversion"
    raise statuses.cannot_decode_as(given_kind, short, name, why)


def _kind_error(given: str, wanted: str) -> FieldError:
    return invalid("kind", given, f"must be {wanted}")
