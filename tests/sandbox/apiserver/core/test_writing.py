"""POST, PUT and PATCH: metadata, conflicts, what costs a revision, what is refused."""

import asyncio

import pytest

from fairlead.sandbox.apiserver.kinds.base import Kind, NoAdmission
from tests.support.apiserver.inside import Inside, OpenStrategy, open_kinds

CM = "/api/v1/namespaces/ml/configmaps"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/ml/resourceclaims"
DEPLOYMENTS = "/apis/apps/v1/namespaces/ml/deployments"


async def create(inside, name="a", target=CM, **more):
    status, body = await inside.post(target, {"metadata": {"name": name}, **more})
    assert status == 201, body
    return body


async def test_the_server_fills_in_what_only_it_knows(inside):
    sent = {"name": "a", "uid": "mine", "creationTimestamp": "2001-01-01T00:00:00Z", "generation": 9, "selfLink": "/x"}
    _, body = await inside.post(CM, {"metadata": sent})
    metadata = body["metadata"]
    assert metadata["uid"] not in {"", "mine"}
    assert metadata["creationTimestamp"] == "2026-11-20T12:00:00Z"
    assert (metadata["namespace"], "generation" in metadata, "selfLink" in metadata) == ("ml", False, False)


async def test_a_write_with_the_revision_that_was_read_wins_and_a_stale_one_loses(inside):
    read = await create(inside)
    _, written = await inside.put(f"{CM}/a", {**read, "data": {"x": "1"}})
    assert int(written["metadata"]["resourceVersion"]) > int(read["metadata"]["resourceVersion"])
    status, body = await inside.put(f"{CM}/a", {**read, "data": {"x": "2"}})
    assert (status, body["reason"]) == (409, "Conflict")


@pytest.mark.parametrize("kind", ["merge", "json", "strategic", "put"])
async def test_a_write_that_changes_nothing_costs_no_revision(inside, kind):
    before = await create(inside, data={"x": "1"})
    revision = inside.state.store.revision
    if kind == "put":
        _, after = await inside.put(f"{CM}/a", before)
    else:
        patch = [{"op": "replace", "path": "/data/x", "value": "1"}] if kind == "json" else {"data": {"x": "1"}}
        _, after = await inside.patch(f"{CM}/a", patch, kind)
    assert after == before
    assert inside.state.store.revision == revision


async def test_generation_counts_changes_of_spec_only(inside):
    first = await create(inside, target=DEPLOYMENTS, spec={"replicas": 1})
    assert first["metadata"]["generation"] == 1
    for target, patch, generation in (
        (f"{DEPLOYMENTS}/a", {"metadata": {"labels": {"a": "b"}}}, 1),
        (f"{DEPLOYMENTS}/a/status", {"status": {"replicas": 1}}, 1),
        (f"{DEPLOYMENTS}/a", {"spec": {"replicas": 2}}, 2),
        (f"{DEPLOYMENTS}/a", {"metadata": {"generation": 77}}, 2),
    ):
        _, body = await inside.patch(target, patch)
        assert body["metadata"]["generation"] == generation


async def test_status_is_written_at_its_own_door_only(inside):
    await create(inside, target=CLAIMS, spec={"x": 1})
    _, body = await inside.patch(f"{CLAIMS}/a", {"spec": {"x": 2}, "status": {"y": 1}})
    assert (body["spec"], "status" in body) == ({"x": 2}, False)
    _, body = await inside.patch(
        f"{CLAIMS}/a/status", {"spec": {"x": 3}, "status": {"y": 1}, "metadata": {"labels": {"no": "way"}}}
    )
    assert (body["spec"], body["status"]) == ({"x": 2}, {"y": 1})
    assert "labels" not in body["metadata"]


@pytest.mark.parametrize(
    ("metadata", "field"),
    [
        ({"name": "UPPER"}, "metadata.name"),
        ({"generateName": "Bad_"}, "metadata.generateName"),
        ({"name": "a", "labels": {"-x": "1"}}, "metadata.labels"),
        ({"name": "a", "labels": {"x": "-1"}}, "metadata.labels"),
        ({"name": "a", "annotations": {"/x": "1"}}, "metadata.annotations"),
        ({"name": "a", "annotations": {"x": "1" * 300_000}}, "metadata.annotations"),
        ({"name": "a", "finalizers": ["bare"]}, "metadata.finalizers[0]"),
        (
            {"name": "a", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p"}]},
            "metadata.ownerReferences[0].uid",
        ),
    ],
)
async def test_metadata_that_makes_no_sense_is_refused_by_field(inside, metadata, field):
    status, body = await inside.post(CM, {"metadata": metadata})
    assert status == 422
    assert field in [cause["field"] for cause in body["details"]["causes"]]


async def test_dry_runs_answer_as_if_and_keep_nothing(inside):
    await create(inside, data={"x": "1"})
    revision = inside.state.store.revision
    status, body = await inside.post(f"{CM}?dryRun=All", {"metadata": {"name": "b"}})
    assert (status, "resourceVersion" in body["metadata"]) == (201, False)
    assert (await inside.patch(f"{CM}/a?dryRun=All", {"data": {"x": "2"}}))[1]["data"] == {"x": "2"}
    assert (await inside.delete(f"{CM}/a?dryRun=All"))[0] == 200
    assert inside.state.store.revision == revision
    status, body = await inside.post(f"{CM}?dryRun=Some", {"metadata": {"name": "b"}})
    assert (status, body["details"]["kind"]) == (422, "CreateOptions")


async def test_unknown_and_double_fields_are_refused_warned_of_or_ignored(inside):
    body = b'{"metadata":{"name":"s","bogus":1},"data":{"k":"1","k":"2"}}'
    problems = ['duplicate field "data.k"', 'unknown field "metadata.bogus"']
    status, refused = await inside.post(f"{CM}?fieldValidation=Strict", body)
    assert status == 400
    assert all(problem in refused["message"] for problem in problems)
    status, _ = await inside.post(f"{CM}?fieldValidation=Ignore", body)
    assert (status, inside.last.warnings) == (201, [])
    await inside.put(f"{CM}/s", body)
    assert inside.last.warnings == problems
    status, refused = await inside.post(f"{CM}?fieldValidation=Never", body)
    assert (status, refused["details"]["causes"][0]["field"]) == (422, "fieldValidation")


async def test_a_missing_namespace_takes_nothing_and_a_terminating_one_neither(inside):
    status, body = await inside.post("/api/v1/namespaces/none/configmaps", {"metadata": {"name": "a"}})
    assert (status, body["message"]) == (404, 'namespaces "none" not found')
    await inside.delete("/api/v1/namespaces/ops")
    status, body = await inside.post("/api/v1/namespaces/ops/configmaps", {"metadata": {"name": "a"}})
    assert (status, body["details"]["causes"][0]["reason"]) == (403, "NamespaceTerminating")


class Meddling(NoAdmission):
    """Admission that lets another writer in while it waits."""

    def __init__(self, meddle):
        self._meddle = meddle

    async def mutate(self, attributes):
        meddle, self._meddle = self._meddle, None
        if meddle and attributes.operation == "UPDATE":
            await asyncio.sleep(0)
            await meddle()


async def test_a_patch_is_tried_again_on_the_newer_object_when_admission_took_long(inside):
    await create(inside, data={"x": "1"})

    async def meddle():
        await inside.patch(f"{CM}/a", {"data": {"y": "2"}})

    inside.state.admission = Meddling(meddle)
    status, body = await inside.patch(f"{CM}/a", {"data": {"x": "3"}})
    assert (status, body["data"]) == (200, {"x": "3", "y": "2"})


async def test_a_strategy_that_breaks_is_a_500_and_the_server_lives(caplog):
    class Broken(OpenStrategy):
        def validate_create(self, obj, context):
            raise ZeroDivisionError("by design")

    inside = Inside([*open_kinds(), Kind("", "v1", "brokens", "Broken", False, Broken())])
    status, body = await inside.post("/api/v1/brokens", {"metadata": {"name": "a"}})
    assert (status, body["reason"]) == (500, "InternalError")
    assert "by design" in body["message"]
    assert (await inside.get("/api/v1/brokens"))[0] == 200


async def test_a_write_without_a_revision_overwrites(inside):
    await create(inside)
    status, body = await inside.put(f"{CM}/a", {"metadata": {"name": "a"}, "data": {"x": "1"}})
    assert (status, body["data"]) == (200, {"x": "1"})


async def test_an_object_that_was_recreated_is_not_overwritten(inside):
    old = await create(inside)
    await inside.delete(f"{CM}/a")
    await create(inside)
    del old["metadata"]["resourceVersion"]
    status, body = await inside.put(f"{CM}/a", old)
    assert (status, body["reason"]) == (409, "Conflict")
    assert "Precondition failed: UID in precondition" in body["message"]


@pytest.mark.parametrize("field", ["uid", "creationTimestamp", "namespace"])
async def test_what_the_server_set_cannot_be_patched(inside, field):
    await create(inside)
    value = "2001-01-01T00:00:00Z" if field == "creationTimestamp" else "other"
    status, body = await inside.patch(f"{CM}/a", {"metadata": {field: value}})
    assert (status, body["details"]["causes"][0]["message"]) == (422, f'Invalid value: "{value}": field is immutable')
