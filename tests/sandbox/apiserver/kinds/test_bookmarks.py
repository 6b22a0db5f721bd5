"""Bookmarks of the real kinds: the zero object as Go encodes it, nulls and empty structs included."""

import json

import pytest


@pytest.mark.parametrize(
    ("path", "zero"),
    [
        ("/api/v1/pods", {"spec": {"containers": None}, "status": {}}),
        ("/api/v1/namespaces", {"spec": {}, "status": {}}),
        ("/apis/batch/v1/jobs", {"spec": {"template": {"metadata": {}, "spec": {"containers": None}}}, "status": {}}),
        ("/apis/resource.k8s.io/v1/resourceclaims", {"spec": {"devices": {"requests": None}}, "status": {}}),
        (
            "/apis/resource.k8s.io/v1/resourceclaimtemplates",
            {"spec": {"metadata": {}, "spec": {"devices": {"requests": None}}}},
        ),
        (
            "/apis/resource.k8s.io/v1/resourceslices",
            {"spec": {"driver": "", "pool": {"name": "", "generation": 0, "resourceSliceCount": 0}}},
        ),
        ("/apis/resource.k8s.io/v1/deviceclasses", {"spec": {}}),
        ("/apis/rbac.authorization.k8s.io/v1/roles", {"rules": None}),
    ],
)
async def test_a_bookmark_is_the_zero_object_of_its_kind_as_go_writes_it(api, path, zero):
    api.state.bookmark_interval_s = 0.01
    stream = await api.watch(f"{path}?watch=true&resourceVersion={api.state.store.revision}&allowWatchBookmarks=true")
    obj = json.loads(await anext(stream.chunks))["object"]
    assert obj.pop("metadata") == {"resourceVersion": str(api.state.store.revision), "creationTimestamp": None}
    assert {key: value for key, value in obj.items() if key not in {"kind", "apiVersion"}} == zero
    assert obj["kind"]
    await stream.chunks.aclose()
