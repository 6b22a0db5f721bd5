"""Reviews of permissions and identity, which are answered and not stored, and tokens of service accounts.

SelfSubjectAccessReview (`kubectl auth can-i`), SubjectAccessReview and its local form, SelfSubjectRulesReview
(`can-i --list`), SelfSubjectReview (`auth whoami`), TokenReview; POST serviceaccounts/x/token, bound to a pod if requested.
"""

from __future__ import annotations

from datetime import timedelta

from fairlead.sandbox.apiserver import statuses
from fairlead.sandbox.apiserver.authn import API_AUDIENCE, SERVICE_ACCOUNT, identity
from fairlead.sandbox.apiserver.call import Call
from fairlead.sandbox.apiserver.kinds.errors import invalid
from fairlead.sandbox.apiserver.kinds.request import Access, Json, UserInfo, timestamp
from fairlead.sandbox.apiserver.wire.bodies import read_object
from fairlead.sandbox.apiserver.wire.exchange import Response, json_response


async def self_access(call: Call) -> Response:
    given = _given(call)
    return _answer(call, given, _verdict(call, call.user, _access(call, given)))


async def access(call: Call) -> Response:
    """For another user, named in spec."""
    given = _given(call)
    spec = given["spec"]
    if not spec.get("user") and not spec.get("groups"):
        error = invalid("spec.user", "", "at least one of user or group must be specified")
        raise statuses.invalid(call.kind, "", [error])
    user = UserInfo(
        spec.get("user") or "", tuple(spec.get("groups") or ()), spec.get("uid") or "", spec.get("extra") or {}
    )
    if call.namespace and (spec.get("resourceAttributes") or {}).get("namespace") != call.namespace:
        error = invalid("spec.resourceAttributes.namespace", call.namespace, "must match metadata.namespace")
        raise statuses.invalid(call.kind, "", [error])
    return _answer(call, given, _verdict(call, user, _access(call, given)))


async def self_rules(call: Call) -> Response:
    given = _given(call)
    rules = call.state.authorizer.rules_of(call.user, given["spec"].get("namespace") or "")
    resources = [rule for rule in rules if "nonResourceURLs" not in rule]
    paths = [rule for rule in rules if "nonResourceURLs" in rule]
    status = {"resourceRules": resources, "nonResourceRules": paths, "incomplete": False}
    return _answer(call, given, status)


async def self_subject(call: Call) -> Response:
    given = _given(call)
    given.pop("spec", None)
    return _answer(call, given, {"userInfo": call.user.as_json()})


async def token(call: Call) -> Response:
    given = _given(call)
    spec = given["spec"]
    found = call.state.tokens.review(spec.get("token") or "", spec.get("audiences") or (), call.state.now())
    if found is None or _gone(call, found[0]):
        return _answer(call, given, {"user": {}, "error": "the token is not known to this cluster"})
    user, audiences = found
    return _answer(call, given, {"authenticated": True, "user": user.as_json(), "audiences": list(audiences)})


def _gone(call: Call, user: UserInfo) -> bool:
    """Whether it is of a service account that was deleted: its tokens end with it."""
    account = SERVICE_ACCOUNT.fullmatch(user.name)
    if account is None or not user.uid:
        return False
    found = call.state.get("", "serviceaccounts", account[2], account[1])
    return found is None or found["metadata"]["uid"] != user.uid


def _given(call: Call) -> Json:
    given: Json = read_object(call.request, call.kind, call.state.registry).value
    if not isinstance(given.get("spec"), dict):
        given["spec"] = {}
    return given


def _access(call: Call, given: Json) -> Access:
    spec = given["spec"]
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if (resource is None) == (path is None):
        why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        raise statuses.invalid(call.kind, "", [invalid("spec.resourceAttributes", resource, why)])
    if path is not None:
        return Access(path.get("verb", ""), path=path.get("path", ""))
    return Access(
        resource.get("verb", ""),
        resource.get("group", ""),
        resource.get("resource", ""),
        resource.get("subresource", ""),
        resource.get("namespace", ""),
        resource.get("name", ""),
    )


def _verdict(call: Call, user: UserInfo, asked: Access) -> Json:
    allowed, reason = call.state.authorizer.explain(user, asked)
    return {"allowed": allowed, "reason": reason} if reason else {"allowed": allowed}


def _answer(call: Call, given: Json, status: Json) -> Response:
    body = {"kind": call.kind.kind, "apiVersion": call.kind.api_version, "metadata": given.get("metadata") or {}}
    if "spec" in given:
        body["spec"] = given["spec"]
    body["status"] = status
    return json_response(body, 201)


_BODY = ("authentication.k8s.io", "v1", "TokenRequest")
_DEFAULT_S = 3600


async def request_token(call: Call) -> Response:
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
