"""Non-resource paths: health, version, discovery, OpenAPI."""

from __future__ import annotations

from fairlead.sandbox.apiserver import discovery, openapi, rendering, statuses
from fairlead.sandbox.apiserver.openapi import second
from fairlead.sandbox.apiserver.routing import Target
from fairlead.sandbox.apiserver.state import State
from fairlead.sandbox.apiserver.wire.exchange import JSON, Request, Response, json_response, text_response
from fairlead.sandbox.apiserver.wire.negotiation import aggregated_discovery, negotiate

PUBLIC = frozenset({"/healthz", "/livez", "/readyz", "/version"})
_HEALTH = ("/healthz", "/livez", "/readyz")


def answer(request: Request, target: Target, state: State, address: str) -> Response:
    """The document at a path; 404 in plain text where there is none, as in the real one."""
    if target.verb not in {"get", "head"}:
        raise statuses.generic(405, "")
    path, parts = target.path, request.segments
    if path in _HEALTH or path.startswith(tuple(f"{one}/" for one in _HEALTH)):
        return text_response("ok")
    if path == "/version":
        return json_response(discovery.version(state.release))
    if path == "/":
        return json_response({"paths": sorted(_known(state))})
    if parts[:1] == ("openapi",):
        return _openapi(request, parts, state)
    if path in {"/api", "/apis"}:
        return _groups(request, path, state, address)
    body = None
    if parts[0] == "api" and len(parts) == 2:
        body = discovery.resources(state.registry, "", parts[1])
    elif parts[0] == "apis" and len(parts) == 2:
        body = discovery.group(state.registry, parts[1])
    elif parts[0] == "apis" and len(parts) == 3:
        body = discovery.resources(state.registry, parts[1], parts[2])
    if body is None and parts[0] in {"api", "apis"}:
        return missing(state, parts[1] if parts[0] == "apis" else "")
    if body is None:
        return text_response("404 page not found\n", 404)
    return rendering.respond(body, negotiate(request.accept))


def missing(state: State, group: str) -> Response:
    """404: a Status where the group is a built-in one, plain text elsewhere, as in the real one."""
    if any(kind.group == group and not kind.strategy.custom_resource for kind in state.registry):
        raise statuses.no_such_resource()
    return text_response("404 page not found\n", 404)


def _groups(request: Request, path: str, state: State, address: str) -> Response:
    wanted = aggregated_discovery(request.accept)
    if wanted is not None:
        body = discovery.aggregated(state.registry, core=path == "/api", version=wanted.version)
        response = rendering.respond(body, wanted)
        response.content_type = (
            f"{wanted.content_type};g=apidiscovery.k8s.io;v={wanted.version};as=APIGroupDiscoveryList"
        )
        return response
    body = discovery.core_versions(address) if path == "/api" else discovery.group_list(state.registry)
    return rendering.respond(body, negotiate(request.accept))


def _known(state: State) -> list[str]:
    found = ["/api", "/api/v1", "/apis", "/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"]
    for group, versions in state.registry.groups().items():
        if group:
            found += [f"/apis/{group}", *(f"/apis/{group}/{version}" for version in versions)]
    return found


def _openapi(request: Request, parts: tuple[str, ...], state: State) -> Response:
    if parts == ("openapi", "v2"):
        if second.PROTOBUF in request.accept:
            return Response(200, second.as_protobuf(state.release), second.RETURNED)
        return Response(200, second.as_json(state.release), JSON)
    if parts[1:2] != ("v3",):
        return text_response("404 page not found\n", 404)
    path = "/".join(parts[2:])
    document = openapi.document(path, state.registry, state.release)
    if document is None:
        return text_response("404 page not found\n", 404)
    return Response(200, document, JSON if path else "text/plain; charset=utf-8")
