"""Handlers of subresources that are more than a part of the object, and of resources that are not stored (reviews).

By (subresource or group/resource, verb). A write to any other subresource is an update of the object, which the kind's
strategy validates.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fairlead.sandbox.apiserver import statuses
from fairlead.sandbox.apiserver.call import Call
from fairlead.sandbox.apiserver.subresources import binding, eviction, finalize, reviews, scale, tokenrequest
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


SUBRESOURCES: dict[tuple[str, str], Handler] = {
    ("binding", "create"): binding.bind,
    ("/bindings", "create"): binding.bind,
    ("eviction", "create"): eviction.evict,
    ("finalize", "update"): finalize.finalize,
    ("scale", "get"): scale.get,
    ("scale", "update"): scale.update,
    ("scale", "patch"): scale.patch,
    ("token", "create"): tokenrequest.create,
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
