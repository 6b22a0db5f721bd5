"""The harness itself: what it is to find, planted, is found. A check that cannot fail would say nothing about the pages."""

import pytest

from tests.support import ui
from tests.support.browser import PHONE, tab

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

PLANTED = """kind => {
  const add = (tag, attributes) => document.querySelector('main').append(Object.assign(document.createElement(tag), attributes));
  const sheet = rule => { const made = new CSSStyleSheet(); made.replaceSync(rule); document.adoptedStyleSheets = [made]; };
  if (kind === 'contrast') sheet('p, td, .soft { color: #ccc !important }');
  if (kind === 'name') add('input', {type: 'text'});
  if (kind === 'target') sheet('nav a { font-size: 4px !important; padding: 0 !important } nav li { margin: 0 } header ul { gap: 0 }');
  if (kind === 'wide') sheet('h1 { width: 3000px }');
  if (kind === 'console') console.error('planted');
  if (kind === 'uncaught') setTimeout(() => { throw new Error('planted') });
}"""


@pytest.mark.parametrize(
    ("kind", "rule"), [("contrast", "color-contrast"), ("name", "label"), ("target", "target-size")]
)
async def test_what_a_reader_cannot_use_is_found(chromium, kind, rule):
    async with ui.pages(ui.a_cluster(2)) as reader, tab(chromium, reader.address) as seen:
        await seen.open("/gangs")
        assert await seen.faults() == []
        await seen.page.evaluate(PLANTED, kind)
        assert {each.partition(" ")[0] for each in await seen.faults()} == {rule}


async def test_what_is_wider_than_the_window_is_named(chromium):
    async with (
        ui.pages(ui.a_cluster(2)) as reader,
        tab(chromium, reader.address, width=PHONE) as seen,
    ):
        await seen.open("/queues")
        assert await seen.overflow() == []
        await seen.page.evaluate(PLANTED, "wide")
        (found,) = await seen.overflow()
        assert found.startswith("h1")


async def test_complaints_and_other_hosts_are_noticed(chromium):
    async with ui.pages(ui.a_cluster(2)) as reader, tab(chromium, reader.address) as seen:
        await seen.open("/queues")
        async with seen.page.expect_console_message():
            await seen.page.evaluate(PLANTED, "console")
        async with seen.page.expect_event("pageerror"):
            await seen.page.evaluate(PLANTED, "uncaught")
        assert seen.seen.complaints == ["error: planted", "uncaught: planted"]
        # The policy of the pages keeps the request from being made; that it was tried is a complaint.
        async with seen.page.expect_console_message():
            await seen.page.evaluate("fetch('http://elsewhere.example/').catch(() => null)")
        assert any("elsewhere.example" in each for each in seen.seen.complaints)


async def test_a_page_of_another_site_would_be_seen_as_one(chromium):
    async with (
        ui.pages(ui.a_cluster(2)) as reader,
        tab(chromium, reader.address, bypass_csp=True) as seen,
    ):
        await seen.open("/queues")
        async with seen.page.expect_event("requestfailed"):
            await seen.page.evaluate("fetch('http://elsewhere.example/').catch(() => null)")
        assert "elsewhere.example" in seen.seen.hosts
