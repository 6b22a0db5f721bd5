"""Pages that say what is the matter, in a browser: readable for everybody, and the way on is a link that works."""

import pytest

from fairlead.ui.reading.live import FRESH_S
from tests.support import ui
from tests.support.browser import PHONE, tab

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

EVERY_KIND = ("gangs", "pods", "queues", "resourceclaims", "nodes", "resourceslices", "deviceclasses")
OF_OTHERS = ("gangs", "pods", "resourceclaims")
PAGES = ("/", "/map", "/queues", "/gangs")


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


@pytest.mark.parametrize("state", STATES)
async def test_what_is_the_matter_can_be_read_by_everybody(chromium, state):
    async with ui.reader(ui.source(STATES[state]())) as served, tab(chromium, served.address, width=PHONE) as seen:
        for path in PAGES:
            assert await seen.open(path) in {200, 403}
            assert await seen.faults() == [], path
            assert await seen.overflow() == [], path


async def test_a_cluster_that_was_away_is_shown_again_after_reloading(chromium):
    apiserver, times = ui.Apiserver(ui.a_cluster(3)), ui.Times()
    apiserver.away = True
    async with ui.reader(ui.source(apiserver, times)) as served, tab(chromium, served.address) as seen:
        assert await seen.open("/") == 503
        assert await seen.page.get_by_role("heading", level=1).inner_text() == "The cluster cannot be read"
        apiserver.away = False
        times.now += FRESH_S
        await seen.page.reload()
        assert "of 24" in await seen.page.get_by_role("main").inner_text()
        apiserver.away = True
        times.now += FRESH_S
        await seen.page.reload()
        assert "does not answer" in await seen.page.get_by_role("status").inner_text()
        assert "of 24" in await seen.page.get_by_role("main").inner_text(), "what was read stays"
