"""POST serviceaccounts/x/token: a token for a service account, bound to a pod if requested."""

from __future__ import annotations

from datetime import timedelta

from fairlead.sandbox.apiserver import statuses
from fairlead.sandbox.apiserver.authn import API_AUDIENCE, identity
from fairlead.sandbox.apiserver.call import Call
from fairlead.sandbox.apiserver.kinds.request import Json, timestamp
from fairlead.sandbox.apiserver.wire.bodies import read_object
from fairlead.sandbox.apiserver.wire.exchange import Response, json_response

_BODY = ("authentication.k8s.io", "v1", "TokenRequest")
_DEFAULT_S = 3600


async def create(call: Call) -> Response:
    """Tokens for the apiserver do not expire here; the answer has the requested expiry, by which clients refresh."""
    given: Json = read_object(call.request, call.kind, call.state.registry, body_kind=_BODY).value
    account = call.state.store.get(call.kind.storage, call.key)
    if account is None:
        raise statuses.not_found(call.kind, call.target.name)
    spec = given.get("spec") or {}
    seconds = spec.get("expirationSeconds") or _DEFAULT_S
    user = f"system:serviceaccount:{call.namespace}:{call.target.name}"
    extra = _bound_to(call, spec.get("boundObjectRef") or {})
    uid, ends = account.obj["metadata"]["uid"], call.state.now() + timedelta(seconds=seconds)
    audiences = spec.get("audiences") or []
    if audiences and API_AUDIENCE not in audiences:
        token = call.state.tokens.bind(identity(user, (), extra, uid), audiences, ends)
    else:
        token = call.state.tokens.issue(user, extra=extra, uid=uid)
    expires = timestamp(ends)
    body = {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"name": call.target.name, "namespace": call.namespace},
        "spec": {"audiences": [API_AUDIENCE], **spec, "expirationSeconds": seconds},
        "status": {"token": token, "expirationTimestamp": expires},
    }
    return json_response(body, 201)


def _bound_to(call: Call, reference: Json) -> dict[str, tuple[str, ...]]:
    if reference.get("kind") != "Pod":
        return {}
    pod = call.state.get("", "pods", reference.get("name", ""), call.namespace)
    if pod is None:
        raise statuses.not_found_resource("", "pods", reference.get("name", ""))
    prefix = "authentication.kubernetes.io"
    extra: dict[str, tuple[str, ...]] = {
        f"{prefix}/pod-name": (pod["metadata"]["name"],),
        f"{prefix}/pod-uid": (pod["metadata"]["uid"],),
    }
    node = pod.get("spec", {}).get("nodeName")
    if node:
        extra[f"{prefix}/node-name"] = (node,)
    return extra
