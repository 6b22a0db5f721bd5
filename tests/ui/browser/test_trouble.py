"""Pages that say what is the matter, in a browser: readable for everybody, and the way on is a link that works."""

import pytest

from fairlead.ui.reading.live import FRESH_S
from tests.support import ui
from tests.support.browser import PHONE, WIDE, tab

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

EVERY_KIND = ("gangs", "pods", "queues", "resourceclaims", "nodes", "resourceslices", "deviceclasses")
OF_OTHERS = ("gangs", "pods", "resourceclaims")
PAGES = ("/", "/queues", "/gangs")


def no_gpus():
    lists = ui.a_cluster(3, waiting=4)
    lists["resourceslices"], lists["resourceclaims"] = [], []
    return lists


STATES = {
    "no-rights": lambda: ui.Apiserver(ui.a_cluster(3), refused=EVERY_KIND),
    "own-namespace": lambda: ui.Apiserver(ui.a_cluster(6), refused=OF_OTHERS, own="team-1"),
    "nothing": lambda: ui.Apiserver(ui.empty()),
    "no-gpus": lambda: ui.Apiserver(no_gpus()),
}


@pytest.mark.parametrize("width", [WIDE, PHONE])
@pytest.mark.parametrize("state", STATES)
async def test_what_is_the_matter_can_be_read_by_everybody(chromium, state, width):
    async with ui.reader(ui.source(STATES[state]())) as served, tab(chromium, served.address, width=width) as seen:
        for path in PAGES:
            assert await seen.open(path) in {200, 403}
            assert await seen.faults() == [], path
            assert await seen.overflow() == [], path


async def test_a_viewer_without_rights_finds_the_way_from_page_to_page(chromium):
    apiserver = ui.Apiserver(ui.a_cluster(3), refused=("nodes", "resourceslices"))
    async with ui.reader(ui.source(apiserver)) as served, tab(chromium, served.address) as seen:
        assert await seen.open("/") == 403
        await seen.page.get_by_role("main").get_by_role("link", name="Gangs").click()
        await seen.page.get_by_role("heading", name="Gangs").wait_for()
        assert await seen.page.get_by_role("row").count() > 1


async def test_a_cluster_that_was_away_is_shown_again_after_reloading(chromium):
    apiserver, times = ui.Apiserver(ui.a_cluster(3)), ui.Times()
    apiserver.away = True
    async with ui.reader(ui.source(apiserver, times)) as served, tab(chromium, served.address) as seen:
        assert await seen.open("/") == 503
        assert await seen.page.get_by_role("heading", level=1).inner_text() == "The cluster cannot be read"
        apiserver.away = False
        times.now += FRESH_S
        await seen.page.reload()
        assert "24 GPUs" in await seen.page.get_by_role("heading", level=2).first.inner_text()
        apiserver.away = True
        times.now += FRESH_S
        await seen.page.reload()
        assert "does not answer" in await seen.page.get_by_role("status").inner_text()
        assert await seen.page.get_by_role("link", name="node-000").count() == 1, "what was read stays"


async def test_ten_thousand_waiting_gangs_are_read_page_by_page(chromium):
    apiserver = ui.Apiserver(ui.a_cluster(2, waiting=10_000))
    async with ui.reader(ui.source(apiserver)) as served, tab(chromium, served.address) as seen:
        await seen.open("/gangs?phase=Waiting")
        assert "10000 Waiting" in await seen.page.get_by_role("main").inner_text()
        await seen.page.get_by_role("link", name="next").click()
        await seen.page.wait_for_url("**page=2*")
        assert await seen.page.locator("#count").inner_text() == "101 to 200 of 10000"
        assert await seen.overflow() == []
