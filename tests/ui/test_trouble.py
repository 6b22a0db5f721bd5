"""What is the matter with a cluster, said by each page: nothing to show, rights that are missing, an apiserver that is away, too much."""

from fairlead.ui.reading.live import FRESH_S
from tests.support import ui

from .markup import check

EVERY_KIND = ("gangs", "pods", "queues", "resourceclaims", "nodes", "resourceslices", "deviceclasses")


def without_queues():
    lists = ui.a_cluster(3, waiting=4)
    lists["queues"] = []
    for raw in lists["gangs"]:
        raw["status"].pop("queue", None)
    return lists


def without_gpus():
    lists = ui.a_cluster(3, waiting=4)
    lists["resourceslices"], lists["resourceclaims"] = [], []
    lists["gangs"] = [raw for raw in lists["gangs"] if raw["status"]["phase"] == "Waiting"]
    return lists


async def texts(lists, *paths, **options):
    async with ui.pages(lists, **options) as reader:
        return [(status, check(text).text) for status, _, text in [await reader.get(path) for path in paths]]


async def test_a_cluster_without_queues_says_how_gangs_wait_and_shows_them():
    (_, queues), (_, gangs), (_, cluster) = await texts(without_queues(), "/queues", "/gangs", "/map")
    assert "No queues: every gang waits in one line, without quota" in queues
    assert "team-0/wait-00000" in gangs
    assert "no queue known" in cluster


async def test_a_cluster_without_gpus_says_where_to_look_and_how_many_gangs_wait():
    ((status, text),) = await texts(without_gpus(), "/map")
    assert status == 200
    assert "No devices are published" in text
    assert "3 nodes exist" in text
    assert "4 gangs wait for devices" in text
    assert "kubectl get resourceslices" in text
    ((_, text),) = await texts(ui.empty(), "/map")
    assert "No node exists" in text
    assert "for devices" not in text


async def test_a_viewer_without_any_right_reads_on_each_page_which_one_it_needs():
    found = await texts(ui.a_cluster(2), "/map", "/queues", "/gangs", "/gangs/team-0/run-0", refused=EVERY_KIND)
    assert [status for status, _ in found] == [403, 403, 403, 404]
    for (_, text), words in zip(
        found,
        ("list nodes", "list queues.fairlead.dev", "list gangs.fairlead.dev", "list gangs.fairlead.dev"),
        strict=True,
    ):
        assert f"may not {words}" in text
        assert "kubectl auth can-i list" in text
    assert "in namespace default" in found[2][1], "the context's namespace was tried, too"


async def test_a_map_without_the_claims_of_others_says_that_free_may_be_held():
    (_, text), (_, gangs) = await texts(
        ui.a_cluster(6), "/map", "/gangs", refused=["gangs", "pods", "resourceclaims"], own="team-1"
    )
    assert "devices that claims of other namespaces hold are shown as free" in text
    assert "gangs of other namespaces than team-1: you may not list them" in gangs
    assert "team-1/run-1" in gangs
    ((_, text),) = await texts(ui.a_cluster(6), "/map")
    assert "shown as free" not in text


async def test_an_apiserver_that_is_away_for_a_minute_is_said_on_every_page_and_then_no_more():
    apiserver, times = ui.Apiserver(ui.a_cluster(3)), ui.Times()
    paths = ("/", "/map", "/queues", "/gangs", "/gangs/team-0/run-0")
    async with ui.reader(ui.source(apiserver, times)) as reader:
        for path in paths:
            assert (await reader.get(path))[0] == 200
        apiserver.away = True
        for _ in range(12):
            times.now += FRESH_S
            for path in paths:
                status, _, text = await reader.get(path)
                assert status == 200
                assert "the cluster does not answer: connection refused" in check(text).text
                assert "this is as of 2027-01-15T08:00:00Z" in check(text).text
        apiserver.away = False
        times.now += FRESH_S
        for path in paths:
            assert "does not answer" not in (await reader.get(path))[2]
