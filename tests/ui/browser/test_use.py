"""How pages are used: by keyboard, at twice the size, without motion, in the reader's own colours, and without scripts."""

import pytest

from tests.support import ui
from tests.support.browser import PHONE, Tab, tab

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

PATHS = ["/", "/map", "/map?node=node-001", "/queues", "/gangs", "/gangs/team-0/wait-00000", "/gangs/team-0/wait-0000"]
# What the page offers, and what has the focus, by a name that both have: links, controls.
OFFERED = """() => [...document.querySelectorAll('a, button, input, select, summary')].filter(each => each.checkVisibility())
    .map(each => each.outerHTML.slice(0, 200))"""
FOCUSED = """() => {
  const each = document.activeElement, look = getComputedStyle(each), box = each.getBoundingClientRect();
  return {
    is: each === document.body ? '' : each.outerHTML.slice(0, 200),
    outlined: look.outlineStyle !== 'none' && parseFloat(look.outlineWidth) >= 2,
    seen: box.width > 0 && box.height > 0 && box.left >= 0 && box.right <= innerWidth + 1 && box.bottom > 0 && box.top < innerHeight,
  };
}"""


def reader(**options):
    return ui.pages(ui.a_cluster(options.pop("nodes", 3), waiting=5))


async def walked(seen: Tab) -> list[str]:
    """Tab from the top of the page to its end: what had the focus, each one outlined and in sight."""
    found: list[str] = []
    while True:
        await seen.page.keyboard.press("Tab")
        now = await seen.page.evaluate(FOCUSED)
        if not now["is"] or now["is"] in found[:1]:
            return found
        assert now["outlined"], now
        assert now["seen"], now
        found.append(now["is"])


@pytest.mark.parametrize("path", PATHS)
async def test_everything_is_reached_by_keyboard_in_its_order_and_shows_that_it_is(chromium, path):
    # Without motion: a smooth scroll to what has the focus would still be on its way.
    async with reader() as served, tab(chromium, served.address, reduced_motion="reduce") as seen:
        await seen.open(path)
        assert await walked(seen) == await seen.page.evaluate(OFFERED)


async def test_a_reader_finds_what_holds_a_gpu_by_keyboard_alone(chromium):
    async with reader() as served, tab(chromium, served.address, reduced_motion="reduce") as seen:
        await seen.open("/map")
        await seen.page.get_by_role("link", name="node-001").focus()
        await seen.page.keyboard.press("Enter")
        await seen.page.get_by_role("heading", name="Node node-001").wait_for()
        assert await seen.page.evaluate("document.querySelector('#node').getBoundingClientRect().top < innerHeight")
        await seen.page.get_by_role("link", name="team-1/run-1").first.focus()
        await seen.page.keyboard.press("Enter")
        await seen.page.get_by_role("heading", name="team-1/run-1").wait_for()


async def test_gangs_are_chosen_by_the_form(chromium):
    async with reader() as served, tab(chromium, served.address) as seen:
        await seen.open("/gangs")
        await seen.page.get_by_role("searchbox", name="Text").fill("wait")
        await seen.page.get_by_role("combobox", name="Queue").select_option("queue-1")
        await seen.page.get_by_role("button", name="Show").click()
        await seen.page.wait_for_url("**/gangs?text=wait**")
        rows = seen.page.get_by_role("row")
        assert await rows.count() == 2
        assert "team-1/wait-00001" in await rows.nth(1).inner_text()
        assert await seen.page.get_by_role("combobox", name="Queue").input_value() == "queue-1"


@pytest.mark.parametrize("path", PATHS)
async def test_text_of_twice_the_size_and_a_window_of_320_pixels_fit(chromium, path):
    async with reader() as served:
        async with tab(chromium, served.address, width=320) as seen:
            await seen.open(path)
            assert await seen.overflow() == []
        async with tab(chromium, served.address, width=PHONE) as seen:
            await seen.open(path)
            await seen.page.evaluate(
                "() => { const made = new CSSStyleSheet(); made.replaceSync('html { font-size: 200% } body { font-size: 32px }');"
                " document.adoptedStyleSheets = [made]; }"
            )
            assert await seen.overflow() == []


async def test_nothing_moves_for_a_reader_who_wants_no_motion(chromium):
    async with reader() as served:
        for motion, behaviour in (("reduce", "auto"), ("no-preference", "smooth")):
            async with tab(chromium, served.address, reduced_motion=motion) as seen:
                for path in PATHS:
                    await seen.open(path)
                    assert (
                        await seen.page.evaluate("getComputedStyle(document.documentElement).scrollBehavior")
                        == behaviour
                    )
                    if motion == "reduce":
                        assert await seen.page.evaluate("document.getAnimations().length") == 0


async def test_states_are_told_apart_in_the_readers_own_colours(chromium):
    async with reader() as served, tab(chromium, served.address, forced_colors="active") as seen:
        await seen.open("/map")
        fills = "where => getComputedStyle(document.querySelector(where)).fill"
        held = await seen.page.evaluate(fills, ".nodes rect.held")
        free = await seen.page.evaluate(fills, ".nodes rect.c.free")
        assert held != free
        assert await seen.faults() == []


async def test_every_page_is_the_same_without_scripts(chromium):
    async with reader() as served, tab(chromium, served.address, java_script_enabled=False) as plain:
        for path in PATHS:
            await plain.open(path)
            assert await plain.page.locator("h1").inner_text()
            assert not any(each.endswith(".js") for each in plain.seen.requests)
            assert not [each for each in plain.seen.complaints if "status of 404" not in each]
