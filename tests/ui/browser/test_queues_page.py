"""The tree of queues in a browser: bars of one scale begin and end at the same place, however deep a queue lies, at every width."""

import pytest
from playwright.async_api import Browser

from tests.support import ui
from tests.support.browser import WIDTHS, tab
from tests.support.ui_ledger import ledger

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]
BARS = "() => [...document.querySelectorAll('svg.bar')].map(each => { const box = each.getBoundingClientRect(); return [box.left, box.right]; })"


@pytest.mark.parametrize("width", WIDTHS)
async def test_bars_of_one_scale_begin_and_end_at_the_same_place(chromium: Browser, width: int) -> None:
    lists = ui.empty()
    names = ["all", *(f"below-{at}" for at in range(1, 8))]
    lists["queues"] = [ui.queue(name, parent=above) for above, name in zip([None, *names], names, strict=False)]
    async with (
        ui.reader(ui.source(ui.Apiserver(lists)), ledger()) as reader,
        tab(chromium, reader.address, width=width) as seen,
    ):
        await seen.open("/queues")
        bars = await seen.page.evaluate(BARS)
        assert len(bars) == 8
        assert all(bar == pytest.approx(bars[0], abs=1.0) for bar in bars), bars
        assert await seen.overflow() == []
