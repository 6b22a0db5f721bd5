"""A gang's page in a browser: what was opened stays open while the page goes on, and what comes to be folded appears."""

from contextlib import AsyncExitStack

import pytest
from playwright.async_api import Browser, expect

from fairlead.kube import timestamps
from fairlead.kube.resources import Raw
from tests.support import ui

from .test_live import shown

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


def waits(message: str, *, blockers: list[str]) -> Raw:
    raw = next(each for each in ui.a_cluster(1, waiting=1)["gangs"] if each["metadata"]["name"] == "wait-00000")
    raw["status"]["why"] |= {"message": message, "details": [f"of {message}"], "blockers": blockers}
    return raw


async def test_what_was_opened_stays_open_and_what_is_not_there_is_not_offered(chromium: Browser) -> None:
    async with AsyncExitStack() as stack:
        made = await shown(stack, chromium, "/gangs/team-0/wait-00000")
        page = made.tab.page
        await expect(page.get_by_text("Why nothing is evicted for it")).to_be_hidden()
        await made.change("gangs", waits("9 wanted", blockers=["its queue holds its share"]))
        await expect(page.locator("#why").get_by_text("9 wanted")).to_be_visible()
        await expect(page.get_by_text("of 9 wanted")).to_be_hidden()
        await page.get_by_text("In detail").click()
        await page.get_by_text("Why nothing is evicted for it").click()
        await expect(page.get_by_text("its queue holds its share")).to_be_visible()
        await made.change("gangs", waits("10 wanted", blockers=["nothing may be evicted now"]))
        await expect(page.get_by_text("of 10 wanted")).to_be_visible()
        await expect(page.get_by_text("nothing may be evicted now")).to_be_visible()
        gone = ui.gang("wait-00000", "team-0", phase="Running", admittedTime=timestamps.seconds(ui.NOW - 60))
        await made.change("gangs", gone)
        await expect(page.locator("#summary")).to_contain_text("Runs 6")
        await expect(page.get_by_text("In detail")).to_be_hidden()
        assert await made.tab.faults() == []
        assert made.tab.seen.complaints == []
