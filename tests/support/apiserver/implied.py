"""Which objects a recording takes for granted: shown, changed or deleted, though no request made them.

Pure. An object is there from the start, or from after the last step that would have shown it and did not: an actor
outside the recording made it in between.
"""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.sandbox.apiserver.call import Target, target_of
from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.apiserver.selectors import SelectorError, parse_labels
from fairlead.sandbox.apiserver.wire.exchange import Request
from tests.support.apiserver.recording import Exchange, made_by_loops, objects_of

Id = tuple[str, str, str]  # resource, namespace, name


@dataclass(frozen=True)
class Implied:
    """`since` is the step before which the object must be there."""

    since: int
    target: Target
    obj: Json


def implied_by(exchanges: list[Exchange]) -> list[Implied]:
    """Objects in the order in which they are first met."""
    made: set[Id] = set()
    found: list[Implied] = []
    request: Json = {}
    for index, exchange in enumerate(exchanges):
        request = exchange.request or request  # a next page shows the same collection
        target = target_of(Request.of(request["method"], request["path"]))
        for name, obj in _met(request, target, exchange):
            if obj is not None and (target.resource, target.namespace, name) not in made:
                since = _unseen_until(exchanges[:index], target, name, obj)
                found.append(Implied(since, target, obj))
            made.add((target.resource, target.namespace, name))
    return found


def namespaces_made_by(exchanges: list[Exchange]) -> set[str]:
    """Those that the recording creates, and that must not be there before."""
    created = [
        exchange
        for exchange in exchanges
        if exchange.request and exchange.request["method"] == "POST" and exchange.response["status"] == 201
    ]
    return {
        exchange.response["body"]["metadata"]["name"]
        for exchange in created
        if target_of(Request.of("POST", exchange.request["path"] if exchange.request else "")).resource == "namespaces"
    }


def _met(request: Json, target: Target, exchange: Exchange) -> list[tuple[str, Json | None]]:
    """Objects that a step shows or uses, by name; None for those that the step (or what a watch saw) makes."""
    response, method = exchange.response, request["method"]
    if response["status"] >= 300 or target.subresource:
        return []
    body = response.get("body")
    if method == "POST" and isinstance(body, dict):
        return [((body.get("metadata") or {}).get("name", ""), None)]
    if "resourceVersion=" in request["path"] and "events" in response:
        return [(event["object"].get("metadata", {}).get("name", ""), None) for event in response["events"]]
    if method in {"GET", "DELETE"} and not (method == "DELETE" and target.name):
        return [(obj["metadata"]["name"], obj) for obj in objects_of(response) if not made_by_loops(obj)]
    if request.get("contentType", "").startswith("application/apply-patch"):
        return [(target.name, None)]
    bare: Json = {"metadata": {"name": target.name}}
    if target.namespace and target.resource != "namespaces":
        bare["metadata"]["namespace"] = target.namespace
    return [(target.name, next(iter(objects_of(response)), bare))]


def _unseen_until(before: list[Exchange], target: Target, name: str, obj: Json) -> int:
    """The step after the last one that should have shown the object and did not."""
    for index in range(len(before) - 1, -1, -1):
        request, response = before[index].request, before[index].response
        if request is None or request["method"] != "GET":
            continue
        other = target_of(Request.of("GET", request["path"]))
        if (other.resource, other.namespace, other.subresource) != (target.resource, target.namespace, ""):
            continue
        if other.name == name and response["status"] == 404:
            return index + 1
        if other.name in {"", name} and response["status"] == 200 and _whole(response) and _selects(request, obj):
            return index + 1
    return 0


def _whole(response: Json) -> bool:
    """Whether the answer is a list that shows all there is."""
    body = response.get("body")
    return isinstance(body, dict) and "items" in body and "continue" not in body["metadata"]


def _selects(request: Json, obj: Json) -> bool:
    query = Request.of("GET", request["path"])
    if query.param("continue"):
        return False
    try:
        return parse_labels(query.param("labelSelector")).matches(obj["metadata"].get("labels") or {})
    except SelectorError:
        return False
