"""GET and LIST: forms, pages, revisions."""

import base64

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


async def test_a_list_at_an_exact_revision_shows_the_past_and_a_compacted_one_is_gone(inside):
    await fill(inside, 1)
    then = inside.state.store.revision
    await inside.delete(f"{CM}/c0")
    found, _ = await names_of(inside, f"{CM}?resourceVersion={then}&resourceVersionMatch=Exact")
    assert found == ["c0"]
    inside.state.store.compact()
    status, body = await inside.get(f"{CM}?resourceVersion={then}&resourceVersionMatch=Exact")
    assert (status, body["reason"]) == (410, "Expired")


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
