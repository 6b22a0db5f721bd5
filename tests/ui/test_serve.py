"""The server: headers of every answer, names of hosts, validators, JSON by header or query, and a cluster that goes away."""

import gzip
import json

import aiohttp
import pytest

from fairlead.kube.resources import Raw
from fairlead.ui.model.facts import Facts
from fairlead.ui.reading.live import FRESH_S
from fairlead.ui.serve.answers import takes_gzip, wants_json
from tests.support import ui

from .markup import Page, check

PATHS = [
    "/",
    "/map",
    "/map?node=node-001",
    "/queues",
    "/gangs",
    "/gangs/team-0/wait-00000",
    "/healthz",
    "/style.css",
    "/page.js",
    "/icon.svg",
]


@pytest.mark.parametrize("path", [*PATHS, "/none", "/gangs/x/y", "/gangs?sort=x", "/queues?format=json"])
async def test_every_answer_has_the_headers_of_security(path):
    async with ui.pages() as reader:
        status, headers, _ = await reader.get(path)
        assert status in {200, 400, 404}
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; ")
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert "Set-Cookie" not in headers
        assert "Access-Control-Allow-Origin" not in headers


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8470", "127.0.0.1.evil.example", "127.0.0.1:1", "localhost", ""]
)
async def test_a_request_that_means_another_host_is_refused(host):
    async with ui.pages() as reader:
        status, headers, text = await reader.get("/gangs?format=json", Host=host)
        assert status == 421
        assert "team-0" not in text
        assert "Content-Security-Policy" in headers


async def test_loopback_has_its_usual_names():
    async with ui.pages() as reader:
        port = reader.address.rstrip("/").rpartition(":")[2]
        for host in (f"127.0.0.1:{port}", f"localhost:{port}", f"LOCALHOST:{port}", f"[::1]:{port}"):
            assert (await reader.get("/", Host=host))[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
async def test_nothing_is_answered_but_reads(method):
    async with ui.pages() as reader:
        status, headers, _ = await reader.get("/gangs", method=method)
        assert (status, headers["Allow"]) == (405, "GET, HEAD")


async def test_a_page_that_is_known_is_not_sent_again():
    async with ui.pages() as reader:
        _, headers, text = await reader.get("/")
        assert text
        status, again, text = await reader.get("/", If_None_Match=headers["ETag"])
        assert (status, text, again["ETag"]) == (304, "", headers["ETag"])
        assert (await reader.get("/queues", If_None_Match=headers["ETag"]))[0] == 200


async def test_answers_are_compressed_for_those_who_take_it():
    async with (
        ui.pages() as reader,
        aiohttp.ClientSession(auto_decompress=False) as session,
    ):
        async with session.get(reader.address, headers={"Accept-Encoding": "gzip"}) as answer:
            assert answer.headers["Content-Encoding"] == "gzip"
            check(gzip.decompress(await answer.read()).decode())
        async with session.get(reader.address, headers={"Accept-Encoding": "gzip;q=0"}) as answer:
            assert "Content-Encoding" not in answer.headers
            check((await answer.read()).decode())


@pytest.mark.parametrize(
    ("accept", "query", "json_"),
    [
        ("*/*", "", False),
        ("application/json", "", True),
        ("text/html,application/json", "", False),
        ("text/html", "json", True),
        ("application/json", "html", False),
    ],
)
def test_what_a_request_wants(accept, query, json_):
    assert wants_json(accept, query) is json_


@pytest.mark.parametrize(
    ("said", "taken"),
    [("gzip", True), ("br, gzip;q=0.5", True), ("*", True), ("", False), ("gzip; q=0", False), ("identity", False)],
)
def test_what_gzip_is_taken_by(said, taken):
    assert takes_gzip(said) is taken


async def test_the_same_address_answers_json():
    async with ui.pages() as reader:
        for path in ("/", "/map", "/queues", "/gangs", "/gangs/team-0/wait-00000", "/gangs/x/y"):
            by_header = await reader.get(path, Accept="application/json")
            by_query = await reader.get(f"{path}?format=json")
            assert by_header[2] == by_query[2]
            assert by_header[1]["Content-Type"].startswith("application/json")
            json.loads(by_header[2])


@pytest.mark.slow
async def test_every_link_leads_to_a_page_or_to_its_json():
    async with ui.pages(ui.a_cluster(6, waiting=120)) as reader:
        found, pages = ["/"], 0
        for path in found:  # Breadth first, so that the same addresses are asked in every run.
            status, headers, text = await reader.get(path)
            assert status == 200, path
            if headers["Content-Type"].startswith("application/json"):
                json.loads(text)
                continue
            pages += 1
            found += sorted({address.partition("#")[0] or path for address in Page(text).links} - set(found))
            if pages > 150:
                break
        assert pages > 100


async def test_the_cluster_is_asked_once_for_many_readers_and_not_while_no_page_is_asked_for():
    apiserver, times = ui.Apiserver(ui.a_cluster()), ui.Times()
    async with ui.reader(ui.source(apiserver, times)) as reader:
        times.now += 100 * FRESH_S
        assert apiserver.asked == 0
        for path in PATHS:
            await reader.get(path)
        assert apiserver.asked == 7 + 1, "and the events of the gang"
        times.now += FRESH_S
        await reader.get("/")
        assert apiserver.asked == 14 + 1


async def test_an_error_of_the_program_is_a_page_without_its_details():
    class Broken:
        async def facts(self) -> Facts:
            raise RuntimeError("secret")

        async def events(self, kind: str, namespace: str, name: str) -> tuple[Raw, ...]:
            return ()

    async with ui.reader(Broken()) as reader:
        status, headers, text = await reader.get("/")
        assert status == 500
        assert "secret" not in text
        assert "Content-Security-Policy" in headers
        check(text)


async def test_the_page_of_a_gang_has_its_events_newest_first_and_works_without_the_right_to_list_them():
    lists = ui.a_cluster()
    gang = next(raw for raw in lists["gangs"] if raw["metadata"]["name"] == "wait-00000")
    lists["events"] = [
        ui.event(gang, "NoDevices", "8 wanted <b>", ago_s=500, count=3),
        ui.event(gang, "Forecast", "in ten minutes", ago_s=20, warning=True),
        {**ui.event(gang, "Other", "of a pod"), "involvedObject": {"kind": "Pod", "name": "wait-00000"}},
        {**ui.event(gang, "Odd", "without a time"), "lastTimestamp": "soon"},
    ]
    apiserver = ui.Apiserver(lists)
    async with ui.reader(ui.source(apiserver)) as reader:
        _, _, page = await reader.get("/gangs/team-0/wait-00000")
        text = check(page).text
        assert text.index("Warning: Forecast") < text.index("8 wanted <b> (3 times)") < text.index("Odd")
        assert "8 wanted <b>" in text
        assert "of a pod" not in text
        apiserver.refused.add("events")
        status, _, text = await reader.get("/gangs/team-0/wait-00000?again=1")
        assert (status, "Forecast</bdi>" in text) == (200, False)
        asked = apiserver.asked
        assert (await reader.get("/gangs/x/y"))[0] == 404
        assert apiserver.asked == asked, "no list is made for what an address holds"
