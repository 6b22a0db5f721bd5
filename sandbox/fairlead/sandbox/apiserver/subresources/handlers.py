"""Handlers of subresources that are more than a part of the object, and of resources that are not stored (reviews).

By (subresource or group/resource, verb). A write to any other subresource is an update of the object, which the kind's
strategy validates. PUT namespaces/x/finalize is the namespace controller's; with the last finalizer the namespace is removed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fairlead.sandbox.apiserver import meta, rendering, statuses
from fairlead.sandbox.apiserver.call import Call, check_write_options, options_of
from fairlead.sandbox.apiserver.kinds.request import Json, clone
from fairlead.sandbox.apiserver.rendering import negotiate
from fairlead.sandbox.apiserver.store import Stored
from fairlead.sandbox.apiserver.subresources import pods, reviews, scale
from fairlead.sandbox.apiserver.verbs.writing import decode, modify
from fairlead.sandbox.apiserver.wire.bodies import read_object
from fairlead.sandbox.apiserver.wire.exchange import Response, Stream

Handler = Callable[[Call], Awaitable[Response | Stream]]


async def _no_containers(call: Call) -> Response:
    """Logs, exec and the like need a container that runs; here containers are simulated."""
    raise statuses.ApiError(
        501,
        "NotImplemented",
        f"{call.kind.plural} {call.target.name!r}: containers of this cluster are simulated, so there is no {call.target.subresource}",
        {"name": call.target.name, "kind": call.kind.plural},
    )


async def finalize(call: Call) -> Response:
    """Write finalizers and metadata, and nothing else of the spec; metadata is written as by any update."""
    wanted = negotiate(call.request.accept)
    call.context.dry_run = check_write_options(call.request, "UpdateOptions")
    body = read_object(call.request, call.kind, call.state.registry)
    decode(call, body.value, body.duplicates)
    meta.match_url(call, body.value)
    metadata = body.value["metadata"]
    finalizers = (body.value.get("spec") or {}).get("finalizers") or []

    def transform(stored: Stored | None) -> Json:
        if stored is None:
            raise statuses.not_found(call.kind, call.target.name)
        new = {**clone(rendering.shown(call.kind, stored.obj)), "metadata": clone(metadata)}
        spec = new.setdefault("spec", {})
        spec.pop("finalizers", None)
        if finalizers:
            spec["finalizers"] = clone(finalizers)
        return new

    stored, _ = await modify(call, transform, options_of(call, "UpdateOptions"))
    return rendering.one(call.kind, stored, wanted, call.state.now())


SUBRESOURCES: dict[tuple[str, str], Handler] = {
    ("binding", "create"): pods.bind,
    ("/bindings", "create"): pods.bind,
    ("eviction", "create"): pods.evict,
    ("finalize", "update"): finalize,
    ("scale", "get"): scale.get,
    ("scale", "update"): scale.update,
    ("scale", "patch"): scale.patch,
    ("token", "create"): reviews.request_token,
    ("authorization.k8s.io/selfsubjectaccessreviews", "create"): reviews.self_access,
    ("authorization.k8s.io/subjectaccessreviews", "create"): reviews.access,
    ("authorization.k8s.io/localsubjectaccessreviews", "create"): reviews.access,
    ("authorization.k8s.io/selfsubjectrulesreviews", "create"): reviews.self_rules,
    ("authentication.k8s.io/selfsubjectreviews", "create"): reviews.self_subject,
    ("authentication.k8s.io/tokenreviews", "create"): reviews.token,
    **{
        (name, verb): _no_containers
        for name in ("log", "exec", "attach", "portforward", "proxy")
        for verb in ("get", "create", "update", "patch", "delete")
    },
}
