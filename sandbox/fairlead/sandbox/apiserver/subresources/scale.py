"""The scale subresource: the replicas of any kind as one autoscaling/v1 object."""

from __future__ import annotations

from typing import Any

from fairlead.sandbox.apiserver import rendering, statuses
from fairlead.sandbox.apiserver.call import Call, check_write_options, options_of
from fairlead.sandbox.apiserver.kinds.base import Subresource
from fairlead.sandbox.apiserver.kinds.errors import invalid
from fairlead.sandbox.apiserver.kinds.request import Json, clone
from fairlead.sandbox.apiserver.patches import jsonpatch
from fairlead.sandbox.apiserver.store import Stored
from fairlead.sandbox.apiserver.verbs.writing import modify
from fairlead.sandbox.apiserver.wire.bodies import ParseError, parse_json, read_object
from fairlead.sandbox.apiserver.wire.exchange import Response, json_response

_BODY = ("autoscaling", "v1", "Scale")
_KEPT = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


async def get(call: Call) -> Response:
    return json_response(_scale_of(call, _stored(call)))


async def update(call: Call) -> Response:
    call.context.dry_run = check_write_options(call.request, "UpdateOptions")
    given: Json = read_object(call.request, call.kind, call.state.registry, body_kind=_BODY).value
    return await _write(call, lambda _: given, "UpdateOptions")


async def patch(call: Call) -> Response:
    """JSON and merge patches; a strategic patch of a Scale is a merge patch."""
    call.context.dry_run = check_write_options(call.request, "PatchOptions")
    try:
        body = parse_json(call.request.body).value
    except ParseError as error:
        raise statuses.bad_request(f"error decoding patch: {error}") from error

    def patched(current: Json) -> Json:
        try:
            by_operations = call.request.content_type == "application/json-patch+json"
            found: Json = jsonpatch.apply(current, body) if by_operations else jsonpatch.merge(current, body)
        except jsonpatch.PatchError as error:
            raise statuses.generic(422, str(error)) from error
        return found

    return await _write(call, patched, "PatchOptions")


async def _write(call: Call, change: Any, options_kind: str) -> Response:
    sub = _subresource(call)

    def transform(stored: Stored | None) -> Json:
        if stored is None:
            raise statuses.not_found(call.kind, call.target.name)
        wanted = change(_scale_of(call, stored))
        replicas = (wanted.get("spec") or {}).get("replicas", 0)
        if isinstance(replicas, bool) or not isinstance(replicas, int) or replicas < 0:
            error = invalid("spec.replicas", replicas, "must be greater than or equal to 0")
            raise statuses.invalid_kind("autoscaling", "Scale", call.target.name, [error])
        new = clone(rendering.shown(call.kind, stored.obj))
        version = (wanted.get("metadata") or {}).get("resourceVersion")
        if version:
            new["metadata"]["resourceVersion"] = version
        _put(new, sub.spec_replicas, replicas)
        return new

    stored, _ = await modify(call, transform, options_of(call, options_kind))
    return json_response(_scale_of(call, stored))


def _stored(call: Call) -> Stored:
    stored = call.state.store.get(call.kind.storage, call.key)
    if stored is None:
        raise statuses.not_found(call.kind, call.target.name)
    return stored


def _subresource(call: Call) -> Subresource:
    sub = call.kind.subresource("scale")
    assert sub is not None
    return sub


def _scale_of(call: Call, stored: Stored) -> Json:
    return scale_of(stored.obj, _subresource(call))


def scale_of(obj: Json, sub: Subresource) -> Json:
    """An object as autoscaling/v1 Scale; admission sees it in this form, too."""
    metadata = {field: obj["metadata"][field] for field in _KEPT if field in obj["metadata"]}
    status: Json = {"replicas": _find(obj, sub.status_replicas) or 0}
    selector = _find(obj, sub.label_selector) if sub.label_selector else _rendered(_find(obj, ".spec.selector"))
    if selector:
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": {"replicas": _find(obj, sub.spec_replicas) or 0},
        "status": status,
    }


def scaled(obj: Json, sub: Subresource, scale: Json) -> Json:
    """A copy of the object with the replicas of its Scale."""
    new = clone(obj)
    _put(new, sub.spec_replicas, (scale.get("spec") or {}).get("replicas", 0))
    return new


def _find(obj: Any, path: str) -> Any:
    for part in path.strip(".").split("."):
        if not isinstance(obj, dict):
            return None
        obj = obj.get(part)
    return obj


def _put(obj: Json, path: str, value: Any) -> None:
    *parents, last = path.strip(".").split(".")
    for part in parents:
        obj = obj.setdefault(part, {})
    obj[last] = value


def _rendered(selector: Any) -> str:
    """A label selector as text."""
    if not isinstance(selector, dict):
        return ""
    labels = selector.get("matchLabels", selector if "matchExpressions" not in selector else {})
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()) if isinstance(value, str))
