"""The body of a server-side apply: which configurations are valid, and the configuration as the schema sees it.

The configuration is neither defaulted nor completed with zero values: a manager owns only the fields that it gives.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from fairlead.sandbox.apiserver import meta, statuses
from fairlead.sandbox.apiserver.call import Call
from fairlead.sandbox.apiserver.jsonvalue import clone
from fairlead.sandbox.apiserver.kinds.request import DecodeError, Json
from fairlead.sandbox.apiserver.wire.bodies import Body


def config_of(call: Call, body: Body) -> Callable[[], Json]:
    """A fresh copy of the configuration at each call. Raises 400 for a body that is none."""
    config = body.value
    if not isinstance(config, dict):
        raise statuses.bad_request(
            f"error decoding YAML: json: cannot unmarshal {meta.go_type(config)} into Go value of type map[string]interface {{}}"
        )
    for field, wanted in (("apiVersion", call.kind.api_version), ("kind", call.kind.kind)):
        if not config.get(field):
            raise statuses.bad_request(
                f"error decoding YAML: Object '{field[0].upper() + field[1:]}' is missing in '{body_text(config)}'"
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


def body_text(config: Json) -> str:
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
