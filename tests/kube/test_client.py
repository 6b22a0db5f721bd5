"""The client's calls, and its behaviour under faults, over real HTTP. Not here: watches in the long run (informer)."""

import json

import pytest

from fairlead.kube import credentials, errors, resources
from fairlead.kube.client import Client, Patch
from fairlead.kube.core import Pod
from fairlead.kube.objects import ObjectMeta
from fairlead.kube.watching import Bookmark


async def drain(watch):
    async for _ in watch:
        pass


async def test_an_object_is_decoded_to_its_struct(client, server):
    server.answer({"metadata": {"name": "a", "namespace": "ml"}, "spec": {"nodeName": "n", "unheardOf": {"x": 1}}})
    got = await client.get(resources.PODS, "a", "ml")
    assert isinstance(got, Pod)
    assert got.spec.node_name == "n"
    method, path, _, _, headers = server.seen[0]
    assert (method, path) == ("GET", "/api/v1/namespaces/ml/pods/a")
    assert headers["Authorization"] == "Bearer t"


async def test_a_raw_resource_keeps_fields_that_no_struct_knows(client, server):
    server.answer({"metadata": {"name": "a", "namespace": "ml"}, "spec": {"unheardOf": {"x": 1}}})
    got = await client.get(resources.raw(resources.PODS), "a", "ml")
    assert got["spec"] == {"unheardOf": {"x": 1}}


async def test_a_list_is_read_in_pages_and_keeps_the_version_of_the_first(client, server):
    server.answer({"metadata": {"resourceVersion": "5", "continue": "next"}, "items": [{"metadata": {"name": "a"}}]})
    server.answer({"metadata": {"resourceVersion": "5"}, "items": [{"metadata": {"name": "b"}}]})
    listing = await client.list(resources.PODS, labels="app=x", fields="spec.nodeName=n")
    assert [item.metadata.name for item in listing.items] == ["a", "b"]
    assert listing.resource_version == "5"
    queries = [query for _, _, query, _, _ in server.seen]
    assert queries[0] == {"limit": "500", "labelSelector": "app=x", "fieldSelector": "spec.nodeName=n"}
    assert queries[1]["continue"] == "next"


async def test_a_list_whose_pages_expire_is_asked_for_whole(client, server):
    server.answer({"metadata": {"resourceVersion": "5", "continue": "next"}, "items": [{"metadata": {"name": "a"}}]})
    server.refuse(410, "Expired")
    server.answer({"metadata": {"resourceVersion": "9"}, "items": [{"metadata": {"name": "b"}}]})
    listing = await client.list(resources.PODS)
    assert [item.metadata.name for item in listing.items] == ["b"]
    assert listing.resource_version == "9"
    assert "limit" not in server.seen[2][2]


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        (400, "BadRequest", errors.BadRequest),
        (403, "Forbidden", errors.Forbidden),
        (404, "NotFound", errors.NotFound),
        (409, "Conflict", errors.Conflict),
        (409, "AlreadyExists", errors.AlreadyExists),
        (410, "Expired", errors.Gone),
        (422, "Invalid", errors.Invalid),
        (500, "InternalError", errors.ServerError),
    ],
)
async def test_a_refusal_is_an_error_of_its_kind_and_is_not_repeated(client, server, status, reason, kind):
    server.refuse(status, reason, "because")
    with pytest.raises(kind, match="because") as caught:
        await client.get(resources.NODES, "n")
    assert type(caught.value) is kind
    assert (caught.value.status, caught.value.reason) == (status, reason)
    assert len(server.seen) == 1


async def test_429_is_repeated_after_the_time_it_names(client, server, naps):
    server.refuse(429, "TooManyRequests", Retry_After="3")
    server.refuse(429, "TooManyRequests", Retry_After="4")
    server.answer({"metadata": {"name": "n"}})
    assert (await client.get(resources.NODES, "n")).metadata.name == "n"
    assert naps == [3, 4]


async def test_429_without_end_is_raised_after_a_bounded_number_of_attempts(client, server, naps):
    server.refuse(429, "TooManyRequests", Retry_After="1")
    with pytest.raises(errors.TooManyRequests) as caught:
        await client.get(resources.NODES, "n")
    assert caught.value.retry_after_s == 1
    assert len(server.seen) == 6


async def test_an_eviction_that_a_budget_forbids_fails_at_once(client, server, naps):
    server.refuse(429, "TooManyRequests", "would violate the pod's disruption budget")
    with pytest.raises(errors.TooManyRequests):
        await client.evict("a", "ml")
    assert naps == []
    assert server.seen[0][1] == "/api/v1/namespaces/ml/pods/a/eviction"


async def test_a_401_is_tried_once_more_with_fresh_credentials(server):
    tokens = iter(["old", "new"])
    current = ""

    async def authorization(*, force: bool = False) -> str:
        nonlocal current
        if force or not current:
            current = next(tokens)
        return f"Bearer {current}"

    server.refuse(401, "Unauthorized")
    server.answer({"metadata": {"name": "n"}})
    async with Client(credentials.Credentials(url=server.url, authorization=authorization)) as client:
        await client.get(resources.NODES, "n")
    assert [headers["Authorization"] for *_, headers in server.seen] == ["Bearer old", "Bearer new"]


async def test_an_object_that_went_through_a_struct_is_never_put(client, server):
    with pytest.raises(TypeError, match="raw"):
        await client.replace(resources.PODS, Pod(metadata=ObjectMeta(name="a", namespace="ml")))


async def test_each_patch_has_its_content_type(client, server):
    server.answer({"metadata": {"name": "a"}})
    await client.patch(resources.PODS, "a", {"x": 1}, namespace="ml")
    await client.patch(resources.PODS, "a", [{"op": "remove", "path": "/x"}], namespace="ml", kind=Patch.JSON)
    await client.patch(
        resources.PODS, "a", {"x": 1}, namespace="ml", kind=Patch.APPLY, field_manager="me", force=True,
        subresource="status",
    )  # fmt: skip
    assert [headers["Content-Type"] for *_, headers in server.seen] == [
        "application/merge-patch+json",
        "application/json-patch+json",
        "application/apply-patch+yaml",
    ]
    assert server.seen[2][1].endswith("/pods/a/status")
    assert server.seen[2][2] == {"fieldManager": "me", "force": "true", "fieldValidation": "Ignore"}
    assert server.seen[2][3] == {"apiVersion": "v1", "kind": "Pod", "x": 1}


async def test_a_deletion_carries_its_preconditions(client, server):
    server.answer({"kind": "Status"})
    await client.delete(resources.PODS, "a", "ml", uid="u", resource_version="7", grace_period_s=0)
    assert server.seen[0][3]["preconditions"] == {"uid": "u", "resourceVersion": "7"}
    assert server.seen[0][3]["gracePeriodSeconds"] == 0


async def test_a_watch_gives_events_however_the_bytes_are_cut(client, server):
    line = json.dumps({"type": "ADDED", "object": {"metadata": {"name": "é" * 200_000}}}).encode() + b"\n"
    server.stream(line[:7], line[7:100_000], line[100_000:] + b'{"type":"BOOKMARK","object":{"metadata":', b'{"resourceVersion":"7"}}}\n')  # fmt: skip
    events = [event async for event in client.watch(resources.PODS, resource_version="3")]
    assert events[0].object.metadata.name == "é" * 200_000
    assert events[1:] == [Bookmark("7")]
    query = server.seen[0][2]
    assert (query["resourceVersion"], query["allowWatchBookmarks"], query["watch"]) == ("3", "true", "true")


async def test_an_answer_that_does_not_come_is_unreachable_and_says_how_long_it_was_waited_for(client, server):
    server.hang()
    with pytest.raises(errors.Unreachable, match=r"GET http.*/nodes/n: no answer within 0\.1 s$"):
        await client.guarded(lambda: None, timeout_s=0.1).get(resources.NODES, "n")


async def test_an_object_without_metadata_is_no_answer_of_an_apiserver(client, server):
    server.answer({"kind": "Node"})
    with pytest.raises(errors.ServerError, match="Node n: the apiserver's answer cannot be read: it has no metadata"):
        await client.get(resources.raw(resources.NODES), "n")


async def test_a_watch_that_is_cut_off_is_unreachable(client, server):
    server.stream(b'{"type":"ADDED","object":{"metadata":{"name":"a"}}}\n', cut=True)
    with pytest.raises(errors.Unreachable):
        await drain(client.watch(resources.PODS, resource_version="3"))


async def test_an_error_inside_a_watch_is_raised_as_what_it_means(client, server):
    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
    server.stream(json.dumps({"type": "ERROR", "object": status}).encode() + b"\n")
    with pytest.raises(errors.Gone, match="too old"):
        await drain(client.watch(resources.PODS, resource_version="3"))


def test_a_path_that_would_address_the_wrong_thing_is_refused():
    assert resources.PODS.path("ml", "a", "status") == "/api/v1/namespaces/ml/pods/a/status"
    assert resources.GANGS.path() == "/apis/fairlead.dev/v1alpha1/gangs"
    with pytest.raises(ValueError, match="empty name"):
        resources.PODS.path("ml", "")
    with pytest.raises(ValueError, match="namespaced"):
        resources.PODS.path(None, "a")
    with pytest.raises(ValueError, match="cluster-scoped"):
        resources.NODES.path("ml", "n")


async def test_a_guard_is_called_before_every_attempt(client, server):
    asked = 0

    def guard() -> None:
        nonlocal asked
        asked += 1
        if asked == 2:
            raise RuntimeError("the lease is lost")

    server.refuse(429, "TooManyRequests", Retry_After="1")
    with pytest.raises(RuntimeError):
        await client.guarded(guard, timeout_s=5, retries=3).get(resources.NODES, "n")
    assert len(server.seen) == 1
