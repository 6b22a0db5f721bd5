"""GET and LIST: forms, pages, revisions."""

import base64
import json

import pytest

CM = "/api/v1/namespaces/ml/configmaps"


async def fill(inside, count, prefix="c"):
    for index in range(count):
        labels = {"even": str(index % 2 == 0).lower()}
        await inside.post(CM, {"metadata": {"name": f"{prefix}{index}", "labels": labels}})


async def names_of(inside, target):
    status, body = await inside.get(target)
    assert status == 200, body
    return [item["metadata"]["name"] for item in body["items"]], body["metadata"]


async def test_items_of_built_in_kinds_do_not_repeat_their_kind_and_those_of_custom_ones_do(inside):
    await fill(inside, 1)
    await inside.post("/apis/example.com/v1/namespaces/ml/widgets", {"metadata": {"name": "w"}})
    _, body = await inside.get(CM)
    assert (body["kind"], "kind" in body["items"][0]) == ("ConfigMapList", False)
    _, body = await inside.get("/apis/example.com/v1/widgets")
    assert (body["items"][0]["kind"], body["items"][0]["apiVersion"]) == ("Widget", "example.com/v1")


async def test_pages_show_one_revision_though_objects_come_and_go(inside):
    await fill(inside, 5)
    first, meta = await names_of(inside, f"{CM}?limit=2")
    assert (first, meta["remainingItemCount"]) == (["c0", "c1"], 3)
    await inside.delete(f"{CM}/c3")
    await inside.post(CM, {"metadata": {"name": "c1a"}})
    second, later = await names_of(inside, f"{CM}?limit=2&continue={meta['continue']}")
    third, last = await names_of(inside, f"{CM}?limit=2&continue={later['continue']}")
    assert (second, third) == (["c2", "c3"], ["c4"])
    assert meta["resourceVersion"] == later["resourceVersion"] == last["resourceVersion"]
    assert "continue" not in last


async def test_pages_of_a_selection_do_not_tell_how_much_remains(inside):
    await fill(inside, 6)
    found, meta = await names_of(inside, f"{CM}?limit=2&labelSelector=even%3Dtrue")
    assert found == ["c0", "c2"]
    assert "remainingItemCount" not in meta
    found, _ = await names_of(inside, f"{CM}?limit=2&labelSelector=even%3Dtrue&continue={meta['continue']}")
    assert found == ["c4"]


async def test_pages_over_all_namespaces_go_on_in_the_next_one(inside):
    await fill(inside, 2)
    await inside.post("/api/v1/namespaces/ops/configmaps", {"metadata": {"name": "c0"}})
    _, body = await inside.get("/api/v1/configmaps?limit=2")
    _, body = await inside.get(f"/api/v1/configmaps?limit=2&continue={body['metadata']['continue']}")
    assert [item["metadata"]["namespace"] for item in body["items"]] == ["ops"]


async def test_an_expired_page_is_410_with_a_token_that_goes_on_all_the_same(inside):
    await fill(inside, 3)
    _, meta = await names_of(inside, f"{CM}?limit=1")
    await inside.delete(f"{CM}/c1")
    inside.state.store.compact()
    status, body = await inside.get(f"{CM}?limit=1&continue={meta['continue']}")
    assert (status, body["reason"]) == (410, "Expired")
    assert "inconsistent list" in body["message"]
    found, _ = await names_of(inside, f"{CM}?limit=5&continue={body['metadata']['continue']}")
    assert found == ["c2"]


@pytest.mark.parametrize(
    ("token", "message"),
    [
        ("garbage", "continue key is not valid"),
        ("!!!", "illegal base64 data at input byte 0"),
        (base64.urlsafe_b64encode(b'{"v":"v9"}').decode(), 'does not recognize this encoded version "v9"'),
        (base64.urlsafe_b64encode(b'{"v":"meta.k8s.io/v1","rv":1}').decode(), "encoded start key empty"),
        (base64.urlsafe_b64encode(b'{"v":"meta.k8s.io/v1","rv":1,"start":"/a/b/c"}').decode(), "invalid start key"),
    ],
)
async def test_a_token_that_makes_no_sense_is_refused(inside, token, message):
    status, body = await inside.get(f"{CM}?continue={token}")
    assert (status, body["reason"]) == (400, "BadRequest")
    assert message in body["message"]


async def test_a_token_and_a_revision_do_not_go_together(inside):
    await fill(inside, 2)
    _, meta = await names_of(inside, f"{CM}?limit=1")
    status, body = await inside.get(f"{CM}?continue={meta['continue']}&resourceVersion=3")
    assert (status, body["message"]) == (400, "specifying resource version is not allowed when using continue")


async def test_a_list_at_an_exact_revision_shows_the_past_and_a_compacted_one_is_gone(inside):
    await fill(inside, 1)
    then = inside.state.store.revision
    await inside.delete(f"{CM}/c0")
    found, _ = await names_of(inside, f"{CM}?resourceVersion={then}&resourceVersionMatch=Exact")
    assert found == ["c0"]
    inside.state.store.compact()
    status, body = await inside.get(f"{CM}?resourceVersion={then}&resourceVersionMatch=Exact")
    assert (status, body["reason"]) == (410, "Expired")


async def test_revision_zero_ignores_the_limit(inside):
    await fill(inside, 3)
    found, meta = await names_of(inside, f"{CM}?resourceVersion=0&limit=1")
    assert (len(found), "continue" in meta) == (3, False)


async def test_a_revision_of_the_future_is_a_timeout(inside):
    status, body = await inside.get(f"{CM}?resourceVersion=999999")
    assert (status, body["reason"]) == (504, "Timeout")
    assert inside.last.headers["Retry-After"] == "1"


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("resourceVersionMatch=Exact", "resourceVersionMatch"),
        ("resourceVersionMatch=Sometimes&resourceVersion=1", "resourceVersionMatch"),
        ("resourceVersionMatch=Exact&resourceVersion=0", "resourceVersionMatch"),
        ("sendInitialEvents=true", "sendInitialEvents"),
    ],
)
async def test_list_options_that_contradict_are_refused(inside, query, field):
    status, body = await inside.get(f"{CM}?{query}")
    assert (status, body["details"]["causes"][0]["field"]) == (422, field)


async def test_a_table_has_columns_and_rows_with_metadata(inside):
    await fill(inside, 1)
    accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
    _, body = await inside.get(CM, headers=accept)
    assert body["kind"] == "Table"
    assert [column["name"] for column in body["columnDefinitions"]] == ["Name", "Created At"]
    assert body["rows"][0]["cells"][0] == "c0"
    assert body["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    _, body = await inside.get(f"{CM}?includeObject=Object", headers=accept)
    assert body["rows"][0]["object"]["kind"] == "ConfigMap"
    _, body = await inside.get(f"{CM}?includeObject=None", headers=accept)
    assert "object" not in body["rows"][0]


async def test_metadata_alone_is_served_on_request(inside):
    await fill(inside, 1)
    accept = {"Accept": "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"}
    _, body = await inside.get(f"{CM}/c0", headers=accept)
    assert (body["kind"], set(body)) == ("PartialObjectMetadata", {"kind", "apiVersion", "metadata"})


async def test_yaml_is_served_on_request(inside):
    await fill(inside, 1)
    status, text = await inside.get(f"{CM}/c0", headers={"Accept": "application/yaml"})
    assert (status, text.splitlines()[:2]) == (200, ["kind: ConfigMap", "apiVersion: v1"])


@pytest.mark.parametrize(
    "accept",
    ["text/html", "application/vnd.kubernetes.protobuf", "application/json;as=Table;v=v7;g=meta.k8s.io"],
)
async def test_a_form_that_is_not_spoken_is_406(inside, accept):
    status, body = await inside.get(CM, headers={"Accept": accept})
    assert (status, body["reason"]) == (406, "NotAcceptable")
    assert "application/json" in body["message"]


async def test_a_client_that_likes_protobuf_better_gets_json(inside):
    status, body = await inside.get(CM, headers={"Accept": "application/vnd.kubernetes.protobuf,application/json"})
    assert (status, body["kind"]) == (200, "ConfigMapList")


async def test_a_missing_object_and_a_missing_resource_are_told_apart(inside):
    status, body = await inside.get(f"{CM}/none")
    assert (status, body["details"]) == (404, {"name": "none", "kind": "configmaps"})
    status, body = await inside.get("/api/v1/nothings")
    assert (status, body["message"]) == (404, "the server could not find the requested resource")
    assert await inside.get("/apis/nope.example.com/v1/things") == (404, "404 page not found\n")
    assert json.dumps(body)
