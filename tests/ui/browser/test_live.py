"""A live page in a real browser: what changes is shown, what has focus keeps it, and nothing is complained of."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest
from playwright.async_api import Browser, Route, expect

from fairlead.kube.resources import Raw
from fairlead.ui.serve import views
from tests.support import ui
from tests.support.browser import tab
from tests.support.kube import VirtualTime

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


class Shown:
    """A watched cluster, its server, and one page of it."""

    def __init__(self, apiserver: ui.Apiserver, time: VirtualTime, opened: Any) -> None:
        self.apiserver, self.time, self.tab = apiserver, time, opened

    async def change(self, plural: str, raw: Raw) -> None:
        self.apiserver.put(plural, raw)
        await self.time.advance(1)


async def shown(stack: AsyncExitStack, chromium: Browser, path: str) -> Shown:
    apiserver, time = ui.Apiserver(ui.a_cluster(6)), VirtualTime(ui.NOW)
    source = await stack.enter_async_context(ui.watched(apiserver, time))
    reader = await stack.enter_async_context(ui.reader(source))
    opened = await stack.enter_async_context(tab(chromium, reader.address))
    async with opened.page.expect_response(lambda answer: "/live?" in answer.url):
        await opened.open(path)
    return Shown(apiserver, time, opened)


async def test_what_changes_is_shown_and_focus_stays(chromium: Browser) -> None:
    async with AsyncExitStack() as stack:
        made = await shown(stack, chromium, "/gangs")
        page = made.tab.page
        link = page.get_by_role("link", name="team-0/wait-00000")
        await link.focus()
        await made.change("gangs", ui.gang("wait-00000", "team-0", position=1, message="changed just now"))
        await expect(page.get_by_text("changed just now")).to_be_visible()
        await expect(link).to_be_focused()
        await made.change("gangs", ui.gang("first", "team-0", position=0))
        await expect(page.get_by_role("link", name="team-0/first")).to_be_visible()
        await expect(link).to_be_focused()
        assert await made.tab.faults() == []
        assert made.tab.seen.complaints == []


async def test_the_stream_is_opened_when_a_script_comes_late(chromium: Browser) -> None:
    """On a slow network the extension comes after htmx."""
    async with AsyncExitStack() as stack:
        source = await stack.enter_async_context(ui.watched(ui.Apiserver(ui.a_cluster(6)), VirtualTime(ui.NOW)))
        reader = await stack.enter_async_context(ui.reader(source))
        page = (await stack.enter_async_context(tab(chromium, reader.address))).page
        first = asyncio.Event()
        page.on("requestfinished", lambda request: first.set() if "/htmx." in request.url else None)

        async def late(route: Route) -> None:
            await first.wait()
            await asyncio.sleep(0.3)  # htmx runs meanwhile
            await route.continue_()

        await page.route("**/hx-sse*", late)
        async with page.expect_response(lambda answer: "/live?" in answer.url):
            await page.goto(f"{reader.address.rstrip('/')}/gangs")


async def test_what_is_being_typed_stays(chromium: Browser) -> None:
    async with AsyncExitStack() as stack:
        made = await shown(stack, chromium, "/gangs")
        page = made.tab.page
        queue = page.locator("select[name=queue]")
        await queue.select_option("queue-1")
        text = page.get_by_label("Text")
        await text.fill("half a wo")
        await made.change("gangs", ui.gang("new", "team-new", queue="queue-new", position=9))
        await expect(page.get_by_role("link", name="team-new/new")).to_be_visible()
        await expect(text).to_have_value("half a wo")
        await expect(text).to_be_focused()
        await expect(queue).to_have_value("queue-1")
        assert made.tab.seen.complaints == []


async def test_a_node_that_breaks_is_drawn_so(chromium: Browser) -> None:
    async with AsyncExitStack() as stack:
        made = await shown(stack, chromium, "/map?node=node-002")
        page = made.tab.page
        await made.change("nodes", ui.node("node-002", ready=False))
        await expect(page.locator("#node").get_by_text("the node is not ready").first).to_be_visible()
        await expect(page.locator("#nodes .away")).to_have_text(["node-002"])
        await expect(page.locator("#as-of")).to_contain_text("08:00:01")
        assert made.tab.seen.complaints == []


async def test_a_page_goes_on_after_a_break(chromium: Browser) -> None:
    async with AsyncExitStack() as stack:
        made = await shown(stack, chromium, "/gangs")
        page = made.tab.page
        await page.context.set_offline(True)
        await made.change("gangs", ui.gang("wait-00000", "team-0", position=1, message="meanwhile"))
        await page.context.set_offline(False)
        await made.change("gangs", ui.gang("wait-00001", "team-1", position=1, message="and then"))
        await expect(page.get_by_text("meanwhile")).to_be_visible()
        await expect(page.get_by_text("and then")).to_be_visible()


async def test_a_table_that_was_opened_stays_open(chromium: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "LEDGER_EVERY_S", 0.5)
    async with AsyncExitStack() as stack:
        made = await shown(stack, chromium, "/time")
        page = made.tab.page
        await page.get_by_text("The same as a table").click()
        await made.change("gangs", ui.gang("newest", "team-2", queue="queue-1", position=1))
        await expect(page.locator("#rows").get_by_role("link", name="team-2/newest")).to_be_visible()
        assert await made.tab.faults() == []
        assert made.tab.seen.complaints == []
