"""The page of gangs in a browser: its headers sort it, also without scripts, finished gangs are folded, and / finds what has a name."""

from contextlib import AsyncExitStack

import pytest
from playwright.async_api import Browser, expect

from tests.support import ui
from tests.support.browser import tab

from .test_live import shown

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without"])
async def test_a_header_sorts_and_says_how_it_is_sorted(chromium: Browser, scripts: bool) -> None:
    async with ui.pages(ui.a_cluster(6)) as reader, tab(chromium, reader.address, java_script_enabled=scripts) as seen:
        await seen.open("/gangs")
        first = seen.page.locator("#list tbody tr").first
        await seen.page.get_by_role("link", name="GPUs").click()
        await expect(first).to_contain_text("team-0/run-0")
        await expect(seen.page.locator("th[aria-sort=descending]")).to_have_text("GPUs")
        await seen.page.get_by_role("link", name="GPUs").click()
        await expect(first).to_contain_text("team-3/wait-00003")
        await expect(seen.page.locator("th[aria-sort=ascending]")).to_have_text("GPUs")


async def test_finished_gangs_are_folded_and_stay_open_once_opened(chromium: Browser) -> None:
    async with AsyncExitStack() as stack:
        made = await shown(stack, chromium, "/gangs")
        page = made.tab.page
        await expect(page.get_by_text("Finished gangs")).to_be_hidden()
        await made.change("gangs", ui.gang("done", "team-0", phase="Finished"))
        link = page.get_by_role("link", name="team-0/done")
        await expect(page.get_by_text("Finished gangs")).to_be_visible()
        await expect(link).to_be_hidden()
        await page.get_by_text("Finished gangs").click()
        await expect(link).to_be_visible()
        await made.change("gangs", ui.gang("also", "team-0", phase="Finished"))
        await expect(page.get_by_role("link", name="team-0/also")).to_be_visible()
        assert await made.tab.faults() == []
        assert made.tab.seen.complaints == []


async def test_the_slash_leads_to_the_search_and_the_search_to_what_is_meant(chromium: Browser) -> None:
    async with ui.pages(ui.a_cluster(6)) as reader, tab(chromium, reader.address) as seen:
        page = seen.page
        for path in ("/queues", "/gangs"):  # of which one has the field
            await seen.open(path)
            await page.keyboard.press("/")
            field = page.get_by_role("searchbox", name="Gang, queue or node")
            await expect(field).to_be_focused()
            await expect(field).to_have_value("")
            await page.keyboard.type("a/b")
            await expect(field).to_have_value("a/b")
            await field.fill("run-1")
            await page.keyboard.press("Enter")
            await page.wait_for_url("**/gangs/team-1/run-1")
        await seen.open("/search?q=wait")
        assert await seen.faults() == []
        assert await seen.overflow() == []
        assert seen.seen.complaints == []
