"""What a recording takes for granted, so that a replay neither invents nor misses it."""

import gzip
import json

from fairlead.sandbox.apiserver.server import ApiServer
from tests.support.apiserver.implied import implied_by, namespaces_made_by
from tests.support.apiserver.recording import Exchange, load
from tests.support.apiserver.replaying import Replay

CM = "/api/v1/namespaces/n/configmaps"


def thing(name, **labels):
    return {"metadata": {"name": name, "namespace": "n", "labels": labels}}


def exchange(step, method, path, status=200, body=None, **more):
    request = {"method": method, "path": path, **more}
    return Exchange("s", str(step), request, {"status": status, "body": body})


def listed(*items, **metadata):
    return {"kind": "ConfigMapList", "apiVersion": "v1", "metadata": metadata, "items": list(items)}


def found(*exchanges):
    return [(one.since, one.obj["metadata"]["name"]) for one in implied_by(list(exchanges))]


def test_what_is_shown_and_was_not_made_is_there_from_the_start():
    assert found(exchange(1, "GET", f"{CM}/a", body=thing("a")), exchange(2, "GET", CM, body=listed(thing("b")))) == [
        (0, "a"),
        (0, "b"),
    ]


def test_what_a_request_makes_is_not_taken_for_granted():
    assert (
        found(
            exchange(1, "POST", CM, 201, thing("a")),
            exchange(2, "PATCH", f"{CM}/b", 201, thing("b"), contentType="application/apply-patch+yaml"),
            exchange(3, "GET", CM, body=listed(thing("a"), thing("b"))),
        )
        == []
    )


def test_what_an_earlier_list_did_not_show_comes_after_it():
    assert found(
        exchange(1, "GET", f"{CM}/a", 404, {"kind": "Status"}),
        exchange(2, "GET", CM, body=listed()),
        exchange(3, "GET", f"{CM}?labelSelector=x%3D1", body=listed()),
        exchange(4, "GET", CM, body=listed(thing("a"), thing("b", x="1"))),
    ) == [(2, "a"), (3, "b")]


def test_a_page_and_another_selection_say_nothing_about_what_is_missing():
    assert found(
        exchange(1, "GET", f"{CM}?limit=1", body=listed(thing("a"), **{"continue": "x"})),
        exchange(2, "GET", f"{CM}?labelSelector=y%3D1", body=listed()),
        exchange(3, "GET", CM, body=listed(thing("a"), thing("b"))),
    ) == [(0, "a"), (0, "b")]


def test_what_is_deleted_or_changed_must_have_been_there():
    assert found(
        exchange(1, "DELETE", f"{CM}/a", body={"kind": "Status", "metadata": {}}),
        exchange(2, "PATCH", f"{CM}/b", body=thing("b"), contentType="application/merge-patch+json"),
        exchange(3, "DELETE", f"{CM}/a", 404, {"kind": "Status"}),
    ) == [(0, "a"), (0, "b")]


def test_namespaces_that_the_recording_makes_are_known():
    assert namespaces_made_by([exchange(1, "POST", "/api/v1/namespaces", 201, {"metadata": {"name": "n"}})]) == {"n"}


async def test_a_recording_is_read_and_replayed_with_what_it_implies(tmp_path):
    lines = [
        {
            "scenario": "s",
            "step": 1,
            "request": {"method": "GET", "path": CM},
            "response": {"status": 200, "body": listed()},
        },
        {"scenario": "s", "note": "somebody makes a and b"},
        {
            "scenario": "s",
            "step": 2,
            "request": {"method": "GET", "path": f"{CM}?limit=1"},
            "response": {"status": 200, "body": listed(thing("a"), **{"continue": "x"})},
        },
        {"scenario": "s", "note": "next page", "response": {"status": 200, "body": listed(thing("b"))}},
        {
            "scenario": "s",
            "step": 3,
            "request": {
                "method": "PUT",
                "path": f"{CM}/a",
                "body": {"metadata": {"name": "a", "resourceVersion": "<stale>"}},
            },
            "response": {"status": 409, "body": {"kind": "Status"}},
        },
    ]
    path = tmp_path / "apiserver-x.jsonl.gz"
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    outcomes = await Replay(ApiServer(workdir=tmp_path)).run(load(path))
    assert [outcome.status for outcome in outcomes] == [200, 200, 200, 409]
    assert [[item["metadata"]["name"] for item in outcome.body["items"]] for outcome in outcomes[:3]] == [
        [],
        ["a"],
        ["b"],
    ]
