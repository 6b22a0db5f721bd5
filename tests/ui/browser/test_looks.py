"""What pages look like, loosely: a small picture of each is compared with one that a person looked at and kept.

Fonts differ from machine to machine, so a page is taken together into a few hundred coloured fields, and those may differ somewhat. What is
found is a page without its style, a colour or a column that is gone, a part that is elsewhere. After a change that is meant:
`LOOKS=record` writes the pictures anew (look at them: they lie in looks/).
"""

import io
import os
from pathlib import Path

import pytest
from PIL import Image, ImageChops, ImageStat

from tests.support import ui
from tests.support.browser import PHONE, WIDE, Tab, tab
from tests.support.ui_ledger import ledger

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

KEPT = Path(__file__).parent / "looks"
FIELD = 20  # pixels of a field's side
HEIGHT = 900
# Mean difference of a colour's part, of 255, over the page; and how many of a hundred fields may differ by more than FAR.
MEAN, FAR, SHARE = 5.0, 48, 6.0
PAGES = {
    "overview": "/",
    "map": "/map",
    "node": "/map?node=node-004",
    "queues": "/queues",
    "gangs": "/gangs",
    "gang": "/gangs/team-0/wait-00000",
    "time": "/time?window=24h",
    "cost": "/cost?window=1d",
    "trouble": "/gangs/team-0/wait-0000",
}
LOOKS = [(WIDE, False), (PHONE, True)]


async def look(seen: Tab) -> Image.Image:
    await seen.settled()
    png = await seen.page.screenshot(animations="disabled")
    whole = Image.open(io.BytesIO(png)).convert("RGB")
    return whole.resize((whole.width // FIELD, whole.height // FIELD), Image.Resampling.BOX)


def differences(one: Image.Image, other: Image.Image) -> tuple[float, float]:
    """The mean over all fields, and the share of fields (of 100) that differ much."""
    between = ImageChops.difference(one, other)
    mean = sum(ImageStat.Stat(between).mean) / 3
    red, green, blue = between.split()
    most = ImageChops.lighter(ImageChops.lighter(red, green), blue)
    far = sum(most.histogram()[FAR + 1 :])
    return mean, 100 * far / (one.width * one.height)


def alike(one: Image.Image, other: Image.Image) -> bool:
    mean, share = differences(one, other)
    return mean <= MEAN and share <= SHARE


def served():
    return ui.reader(ui.source(ui.Apiserver(ui.a_cluster(12, waiting=12))), ledger())


@pytest.mark.parametrize(("width", "dark"), LOOKS, ids=["wide", "phone"])
async def test_pages_look_as_they_did_when_somebody_looked(chromium, width, dark):
    async with served() as reader, tab(chromium, reader.address, width=width, dark=dark) as seen:
        unlike = {}
        for name, path in PAGES.items():
            await seen.open(path)
            found, kept = await look(seen), KEPT / f"{name}-{width}.png"
            if os.environ.get("LOOKS") == "record":
                found.save(kept, optimize=True)
            elif not alike(found, before := Image.open(kept).convert("RGB")):
                unlike[name] = differences(found, before)
        assert not unlike, f"mean (at most {MEAN}) and share (at most {SHARE}); see LOOKS=record above"


@pytest.mark.parametrize(
    "change",
    [
        "",
        ":root { color-scheme: dark; --paper: #000; --ink: #fff }",
        ".nodes rect { fill: red !important }",
        "main { padding-left: 12rem }",
    ],
    ids=["no style", "dark", "colours", "moved"],
)
async def test_a_page_that_looks_otherwise_is_noticed(chromium, change):
    async with served() as reader, tab(chromium, reader.address) as seen:
        await seen.open("/map")
        before = await look(seen)
        await seen.page.evaluate(
            "rule => { const made = new CSSStyleSheet(); made.replaceSync(rule); document.adoptedStyleSheets = [made];"
            " document.styleSheets[0].disabled = !rule; }",
            change,
        )
        assert not alike(await look(seen), before)


async def test_another_font_is_no_other_look(chromium):
    async with served() as reader, tab(chromium, reader.address) as seen:
        for path in PAGES.values():
            await seen.open(path)
            before = await look(seen)
            await seen.page.evaluate(
                "() => { const made = new CSSStyleSheet(); made.replaceSync('body { font-family: sans-serif; letter-spacing: .1px }');"
                " document.adoptedStyleSheets = [made]; }"
            )
            assert alike(await look(seen), before), path
