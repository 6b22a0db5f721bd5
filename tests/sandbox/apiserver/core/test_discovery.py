"""What there is, plain and aggregated, as kinds come and go; and which request means what."""

import pytest

from fairlead.sandbox.apiserver.call import target_of
from fairlead.sandbox.apiserver.kinds.base import Kind
from fairlead.sandbox.apiserver.wire.exchange import Request
from tests.support.apiserver.inside import Custom

AGGREGATED = {"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"}


async def test_a_kind_appears_and_goes_with_its_registration(inside):
    assert (await inside.get("/apis/new.io/v1"))[0] == 404
    inside.state.registry.add(Kind("new.io", "v1", "boxes", "Box", True, Custom(), short_names=("bx",)))
    _, body = await inside.get("/apis/new.io/v1")
    assert [one["name"] for one in body["resources"]] == ["boxes", "boxes/status"]
    assert body["resources"][0]["shortNames"] == ["bx"]
    _, body = await inside.get("/apis/new.io")
    assert body["preferredVersion"] == {"groupVersion": "new.io/v1", "version": "v1"}
    _, body = await inside.get("/apis")
    assert "new.io" in [group["name"] for group in body["groups"]]
    inside.state.registry.remove("new.io", "v1", "boxes")
    assert (await inside.get("/apis/new.io"))[0] == 404


async def test_the_aggregated_form_has_all_groups_at_once(inside):
    _, body = await inside.get("/apis", headers=AGGREGATED)
    assert inside.last.content_type == "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    groups = {item["metadata"]["name"]: item["versions"] for item in body["items"]}
    (deployment,) = groups["apps"][0]["resources"]
    assert {sub["subresource"]: sub["responseKind"]["kind"] for sub in deployment["subresources"]} == {
        "scale": "Scale",
        "status": "Deployment",
    }
    _, core = await inside.get("/api", headers=AGGREGATED)
    assert core["items"][0]["versions"][0]["version"] == "v1"


@pytest.mark.parametrize(
    ("method", "url", "verb", "resource", "namespace", "name", "subresource"),
    [
        ("GET", "/api/v1/pods", "list", "pods", "", "", ""),
        ("GET", "/api/v1/pods?watch=1", "watch", "pods", "", "", ""),
        ("GET", "/api/v1/pods?watch=false", "list", "pods", "", "", ""),
        ("GET", "/api/v1/namespaces/a/pods/p", "get", "pods", "a", "p", ""),
        ("GET", "/api/v1/namespaces/a/pods/p/log", "get", "pods", "a", "p", "log"),
        ("GET", "/api/v1/namespaces", "list", "namespaces", "", "", ""),
        ("GET", "/api/v1/namespaces/a", "get", "namespaces", "a", "a", ""),
        ("PUT", "/api/v1/namespaces/a/finalize", "update", "namespaces", "a", "a", "finalize"),
        ("GET", "/api/v1/namespaces/a/status", "get", "namespaces", "a", "a", "status"),
        ("POST", "/apis/x.io/v1/namespaces/a/boxes", "create", "boxes", "a", "", ""),
        ("PATCH", "/apis/x.io/v1/boxes/system%3Ab/status", "patch", "boxes", "", "system:b", "status"),
        ("DELETE", "/apis/x.io/v1/boxes", "deletecollection", "boxes", "", "", ""),
        ("GET", "/api/v1/watch/pods", "watch", "pods", "", "", ""),
        ("GET", "/api/v1/pods?fieldSelector=metadata.name%3Dp", "list", "pods", "", "p", ""),
        ("GET", "/apis/x.io", "get", "", "", "", ""),
        ("GET", "/healthz", "get", "", "", "", ""),
    ],
)
def test_a_request_means_one_thing(method, url, verb, resource, namespace, name, subresource):
    target = target_of(Request.of(method, url))
    found = (target.verb, target.resource, target.namespace, target.name, target.subresource)
    assert found == (verb, resource, namespace, name, subresource)
