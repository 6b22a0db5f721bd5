"""PATCH: the four kinds of patch, each a function from the stored object to the new one.

The rest is an update's (writing.py), so admission and validation see no difference. The configuration of a server-side apply is neither
defaulted nor completed with zero values: a manager owns only the fields that it gives.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from fairlead.sandbox.apiserver import meta, rendering, statuses
from fairlead.sandbox.apiserver.call import Call, check_write_options, options_of
from fairlead.sandbox.apiserver.kinds.errors import forbidden, required
from fairlead.sandbox.apiserver.kinds.request import DecodeError, Json, clone
from fairlead.sandbox.apiserver.ownership import managed
from fairlead.sandbox.apiserver.patches import jsonpatch, strategic
from fairlead.sandbox.apiserver.rendering import negotiate
from fairlead.sandbox.apiserver.store import Stored
from fairlead.sandbox.apiserver.verbs.writing import Transform, decode, modify
from fairlead.sandbox.apiserver.wire.bodies import Body, ParseError, parse_json, parse_yaml
from fairlead.sandbox.apiserver.wire.exchange import Response

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
_CUSTOM = (JSON_PATCH, MERGE_PATCH, APPLY_PATCH)
_BUILT_IN = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH)


async def patch(call: Call) -> Response:
    request = call.request
    content_type = request.content_type
    if call.kind.strategy.custom_resource:
        if content_type not in _CUSTOM:
            raise statuses.unsupported_media_type(_CUSTOM)
    elif content_type not in _BUILT_IN:
        raise statuses.generic(415, "")
    wanted = negotiate(request.accept)
    call.context.dry_run = check_write_options(request, "PatchOptions")
    transform = _transform(call, content_type)
    track = content_type != APPLY_PATCH
    stored, created = await modify(call, transform, options_of(call, "PatchOptions"), track=track)
    include = request.param("includeObject") or "Metadata"
    return rendering.one(call.kind, stored, wanted, call.state.now(), include=include, status=201 if created else 200)


def _transform(call: Call, content_type: str) -> Transform:
    if content_type == APPLY_PATCH:
        return _apply(call)
    if call.request.flag("force"):
        error = forbidden("force", "may not be specified for non-apply patch")
        raise statuses.invalid_kind("meta.k8s.io", "PatchOptions", "", [error])
    try:
        body = parse_json(call.request.body)
    except ParseError as error:
        raise statuses.bad_request(f"error decoding patch: {error}") from error
    given = body.value
    if content_type != JSON_PATCH and not isinstance(given, dict):
        raise statuses.bad_request(f"error decoding patch: {_not_an_object(given)}")

    def transform(stored: Stored | None) -> Json:
        if stored is None:
            raise statuses.not_found(call.kind, call.target.name)
        current = rendering.shown(call.kind, stored.obj)
        try:
            if content_type == JSON_PATCH:
                patched = jsonpatch.apply(current, given)
            elif content_type == MERGE_PATCH:
                patched = jsonpatch.merge(current, given)
            else:
                patched = strategic.apply(current, given, call.kind.strategy.schema)
        except jsonpatch.TooManyOperationsError as error:
            raise statuses.ApiError(413, "RequestEntityTooLarge", f"Request entity too large: {error}", {}) from error
        except jsonpatch.MalformedPatch as error:
            raise statuses.bad_request(f"error decoding patch: {error}") from error
        except jsonpatch.PatchError as error:
            raise statuses.generic(422, str(error)) from error
        except strategic.StrategicPatchError as error:
            raise statuses.bad_request(str(error)) from error
        return _fit(call, patched, stored, body.duplicates)

    return transform


def _not_an_object(given: object) -> str:
    return f"json: cannot unmarshal {meta.go_type(given)} into Go value of type map[string]interface {{}}"


def _fit(call: Call, patched: object, stored: Stored, duplicates: list[str]) -> Json:
    """A patched document as an object of its kind (a copy: parts shared with the store are not changed)."""
    if not isinstance(patched, dict):
        raise statuses.bad_request(_not_an_object(patched))
    obj = clone(patched)
    if obj.get("kind") != call.kind.kind or obj.get("apiVersion") != call.kind.api_version:
        shown = json.dumps({"kind": obj.get("kind"), "apiVersion": obj.get("apiVersion")})
        raise statuses.bad_request(f"a patch may not change kind or apiVersion: {shown}")
    decode(call, obj, duplicates)
    return obj


def _apply(call: Call) -> Transform:
    """Server-side apply."""
    manager = call.request.param("fieldManager")
    if not manager:
        error = required("fieldManager", "is required for apply patch")
        raise statuses.invalid_kind("meta.k8s.io", "PatchOptions", "", [error])
    try:
        body = parse_yaml(call.request.body)
    except ParseError as error:
        raise statuses.bad_request(f"error decoding YAML: {error}") from error
    copy_of = _config_of(call, body)
    force = call.request.flag("force")

    def transform(stored: Stored | None) -> Json:
        applied = copy_of()
        if stored is None:
            if call.target.subresource:
                raise statuses.not_found(call.kind, call.target.name)
            managed.apply_new(call, applied, manager)
            decode(call, applied)
            return applied
        live = rendering.shown(call.kind, stored.obj)
        new = clone(managed.apply(call, live, applied, manager, force=force))
        decode(call, new)
        return new

    return transform


def _config_of(call: Call, body: Body) -> Callable[[], Json]:
    """A fresh copy of the configuration at each call. Raises 400 for a body that is none."""
    config = body.value
    if not isinstance(config, dict):
        raise statuses.bad_request(
            f"error decoding YAML: json: cannot unmarshal {meta.go_type(config)} into Go value of type map[string]interface {{}}"
        )
    for field, wanted in (("apiVersion", call.kind.api_version), ("kind", call.kind.kind)):
        if not config.get(field):
            raise statuses.bad_request(
                f"error decoding YAML: Object '{field[0].upper() + field[1:]}' is missing in '{_text(config)}'"
            )
        if config[field] != wanted:
            raise statuses.bad_request(
                f"failed to create typed patch object: the {field} of the patch is {config[field]!r}, the resource's is {wanted!r}"
            )
    metadata = config.get("metadata")
    if isinstance(metadata, dict) and metadata.get("managedFields"):
        raise statuses.bad_request("metadata.managedFields must be nil")
    _check(call, clone(config), body.duplicates)
    config["metadata"] = {"name": call.target.name, **(config.get("metadata") or {})}
    meta.match_url(call, config)
    return lambda: clone(config)


def _text(config: Json) -> str:
    return json.dumps(config, separators=(",", ":"))


def _check(call: Call, config: Json, duplicates: list[str]) -> None:
    """Types must fit and fields be known: an unknown field cannot be owned. Changes its argument."""
    try:
        problems = [f'duplicate field "{path}"' for path in duplicates]
        problems += meta.decode(config, call.kind.kind)
        problems += call.kind.strategy.decode(config)
    except DecodeError as error:
        raise statuses.cannot_decode(call.kind, str(error)) from error
    if problems:
        name = "/".join(part for part in (call.namespace, call.target.name) if part)
        field = problems[0].partition('"')[2].rstrip('"')
        raise statuses.ApiError(
            500,
            "",
            f"failed to create typed patch object ({name}; {call.kind.api_version}, Kind={call.kind.kind}): "
            f".{field}: field not declared in schema",
        )
