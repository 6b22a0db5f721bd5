"""Logging in with a browser, over TLS: the form, the cookie, one's own rows and nobody else's, and how a session ends."""

import contextlib
import re

import pytest

from fairlead.ui.access.sessions import IDLE_S
from fairlead.ui.app import Certificate
from tests.support import ui
from tests.support.browser import PHONE, WIDE, Tab, tab
from tests.support.ui_login import Login, by_token
from tests.ui.test_scope import OTHERS, shared

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

TOKEN = "token-of-alice"
PATHS = ["/", "/map", "/map?node=node-001", "/queues", "/gangs", "/gangs/team-0/wait-00000", "/time", "/cost"]


@contextlib.asynccontextmanager
async def with_login(chromium, *, width: int = WIDE, nodes: bool = True, lists: ui.Lists | None = None):
    """The server with a certificate of its own, and a browser that takes it. Alice may list gangs of team-0, and queues."""
    certificate = Certificate(None, covered=("127.0.0.1",))
    async with (
        certificate.context(None, told=lambda _: None) as context,
        by_token(lists or shared(), tls=context) as login,
        tab(chromium, login.address, width=width, ignore_https_errors=True) as seen,
    ):
        login.reviewer.rights.add(("alice", "queues", ""))
        login.reviewer.user(TOKEN, "alice", gangs=("team-0",), nodes=nodes)
        yield login, seen


async def logged_in(login: Login, seen: Tab, path: str = "/gangs") -> None:
    await seen.open(path)
    await seen.page.get_by_label("Bearer token").fill(TOKEN)
    await seen.page.get_by_role("button", name="Log in").click()
    await seen.page.get_by_role("button", name="Log out").wait_for()


@pytest.mark.parametrize("width", [WIDE, PHONE])
async def test_the_form_is_for_everybody_and_says_what_was_wrong(chromium, width):
    async with with_login(chromium, width=width) as (_, seen):
        assert await seen.open("/gangs") == 401
        assert await seen.faults() == []
        assert await seen.overflow() == []
        await seen.page.get_by_label("Bearer token").fill("not-a-token")
        await seen.page.get_by_role("button", name="Log in").click()
        await seen.page.get_by_role("alert").wait_for()
        assert await seen.page.get_by_role("alert").inner_text()
        assert await seen.faults() == []


async def test_a_login_leads_to_the_page_that_was_asked_for_and_lasts_from_page_to_page(chromium):
    async with with_login(chromium) as (login, seen):
        await logged_in(login, seen, "/gangs?text=wait")
        assert seen.page.url == f"{login.address}/gangs?text=wait"
        await seen.page.get_by_role("link", name="Queues").click()
        await seen.page.get_by_role("heading", name="Queues", exact=True).wait_for()
        assert "alice" in await seen.page.get_by_role("banner").inner_text()
        (cookie,) = await seen.page.context.cookies()
        assert cookie["name"].startswith("__Host-")
        assert (cookie["httpOnly"], cookie["secure"], cookie["sameSite"]) == (True, True, "Strict")
        assert await seen.page.evaluate("document.cookie") == "", "no script reads it"


@pytest.mark.parametrize("nodes", [True, False], ids=["with nodes", "without nodes"])
async def test_nothing_of_another_tenant_is_on_any_page_as_a_browser_has_it(chromium, nodes):
    async with with_login(chromium, nodes=nodes) as (login, seen):
        await logged_in(login, seen)
        for path in PATHS:
            status = await seen.open(path)
            shown = await seen.page.content()  # tooltips, labels and attributes, too
            assert not OTHERS.findall(shown), path
            assert status == (200 if nodes or not path.startswith("/map") else 403), path
            assert await seen.faults() == [], path
        await seen.open("/gangs")
        assert "team-0/wait-00000" in await seen.page.get_by_role("main").inner_text()


async def test_a_session_that_is_over_leads_to_the_form_and_back(chromium):
    async with with_login(chromium) as (login, seen):
        await logged_in(login, seen, "/queues")
        login.times.now += IDLE_S + 1
        assert await seen.open("/gangs?text=wait") == 401
        await seen.page.get_by_label("Bearer token").fill(TOKEN)
        await seen.page.get_by_role("button", name="Log in").click()
        await seen.page.get_by_role("heading", name="Gangs").wait_for()
        assert seen.page.url == f"{login.address}/gangs?text=wait"


async def test_after_logging_out_neither_a_page_nor_the_way_back_shows_anything(chromium):
    async with with_login(chromium) as (login, seen):
        await logged_in(login, seen)
        await seen.page.get_by_role("button", name="Log out").click()
        await seen.page.get_by_label("Bearer token").wait_for()
        assert await seen.page.context.cookies() == []
        await seen.page.go_back(wait_until="load")
        assert not re.search("team-0/", await seen.page.content())
