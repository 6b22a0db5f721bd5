"""DELETE: at once, later, or when the last finalizer is removed; and its answers."""

from datetime import timedelta

import pytest

CM = "/api/v1/namespaces/ml/configmaps"
PODS = "/api/v1/namespaces/ml/pods"
HOLD = "example.com/hold"


async def create(inside, name="a", target=CM, finalizers=(), **more):
    metadata = {"name": name, **({"finalizers": list(finalizers)} if finalizers else {})}
    status, body = await inside.post(target, {"metadata": metadata, **more})
    assert status == 201, body
    return body


async def running_pod(inside, name="p"):
    await create(inside, name, PODS, spec={"containers": []})
    status, _ = await inside.post(
        f"{PODS}/{name}/binding", {"metadata": {"name": name}, "target": {"kind": "Node", "name": "n"}}
    )
    assert status == 201


async def test_a_finalizer_holds_an_object_until_it_is_removed(inside):
    await create(inside, finalizers=[HOLD])
    status, marked = await inside.delete(f"{CM}/a")
    assert (status, marked["kind"]) == (200, "ConfigMap")
    assert marked["metadata"]["deletionTimestamp"] == "2026-11-20T12:00:00Z"
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 0
    revision = inside.state.store.revision
    assert (await inside.delete(f"{CM}/a"))[1] == marked, "a second deletion changes nothing"
    assert inside.state.store.revision == revision
    status, last = await inside.patch(f"{CM}/a", {"metadata": {"finalizers": None}})
    assert (status, "finalizers" in last["metadata"]) == (200, False)
    assert (await inside.get(f"{CM}/a"))[0] == 404


async def test_what_is_being_deleted_gets_no_new_finalizers_and_stays_marked(inside):
    await create(inside, finalizers=[HOLD])
    _, marked = await inside.delete(f"{CM}/a")
    status, body = await inside.patch(f"{CM}/a", {"metadata": {"finalizers": [HOLD, "example.com/more"]}})
    assert status == 422
    assert 'found new finalizers []string{"example.com/more"}' in body["message"]
    _, body = await inside.put(f"{CM}/a", {"metadata": {"name": "a", "finalizers": [HOLD]}, "data": {"x": "1"}})
    assert body["metadata"]["deletionTimestamp"] == marked["metadata"]["deletionTimestamp"]


@pytest.mark.parametrize(
    ("precondition", "message"),
    [
        ({"uid": "other"}, "the UID in the precondition"),
        ({"resourceVersion": "1"}, "the ResourceVersion in the precondition"),
    ],
)
async def test_a_precondition_that_fails_is_a_conflict(inside, precondition, message):
    await create(inside)
    status, body = await inside.delete(f"{CM}/a", {"preconditions": precondition})
    assert (status, body["reason"]) == (409, "Conflict")
    assert message in body["message"]


@pytest.mark.parametrize(
    ("policy", "finalizer"), [("Foreground", "foregroundDeletion"), ("Orphan", "orphan"), ("Background", None)]
)
async def test_propagation_is_told_to_the_garbage_collector_by_finalizer(inside, policy, finalizer):
    await create(inside)
    status, body = await inside.delete(f"{CM}/a", {"propagationPolicy": policy})
    assert status == (202 if policy == "Foreground" else 200)
    if finalizer is None:
        assert body["status"] == "Success"
    else:
        assert body["metadata"]["finalizers"] == [finalizer]
        assert (await inside.get(f"{CM}/a"))[1]["metadata"]["deletionTimestamp"]


@pytest.mark.parametrize(
    "options", [{"propagationPolicy": "Sideways"}, {"propagationPolicy": "Orphan", "orphanDependents": True}]
)
async def test_options_that_make_no_sense_are_refused(inside, options):
    await create(inside)
    status, body = await inside.delete(f"{CM}/a", options)
    assert (status, body["details"]["kind"]) == (422, "DeleteOptions")


async def test_a_running_pod_gets_its_grace_and_a_second_deletion_may_only_shorten_it(inside):
    await running_pod(inside)
    status, pod = await inside.delete(f"{PODS}/p")
    assert (status, pod["kind"], pod["metadata"]["deletionGracePeriodSeconds"]) == (200, "Pod", 30)
    assert pod["metadata"]["deletionTimestamp"] == "2026-11-20T12:00:30Z"
    assert pod["metadata"]["generation"] == 2
    inside.now += timedelta(seconds=5)
    _, same = await inside.delete(f"{PODS}/p", {"gracePeriodSeconds": 60})
    assert same["metadata"]["deletionTimestamp"] == "2026-11-20T12:00:30Z"
    _, shorter = await inside.delete(f"{PODS}/p", {"gracePeriodSeconds": 10})
    assert shorter["metadata"]["deletionTimestamp"] == "2026-11-20T12:00:10Z"
    _, last = await inside.delete(f"{PODS}/p", {"gracePeriodSeconds": 0})
    assert last["metadata"]["deletionGracePeriodSeconds"] == 0
    assert (await inside.get(f"{PODS}/p"))[0] == 404


async def test_a_namespace_goes_when_its_loop_says_that_it_is_empty(inside):
    status, body = await inside.delete("/api/v1/namespaces/ops")
    assert (status, body["status"]["phase"]) == (200, "Terminating")
    assert "deletionGracePeriodSeconds" not in body["metadata"]
    assert await inside.delete("/api/v1/namespaces/ops") == (200, body)
    body["spec"]["finalizers"] = []
    status, _ = await inside.put("/api/v1/namespaces/ops/finalize", body)
    assert (status, (await inside.get("/api/v1/namespaces/ops"))[0]) == (200, 404)
