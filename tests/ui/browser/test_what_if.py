"""The form of what if in a browser: a question is asked, its answer is a page for everybody, and what is wrong is said beside the form."""

import pytest

from tests.support.browser import PHONE, WIDE, tab
from tests.ui.test_what_if import served, snapshot  # noqa: F401 - a fixture

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


@pytest.mark.parametrize("width", [WIDE, PHONE])
async def test_a_question_is_answered_on_the_page(chromium, snapshot, width):  # noqa: F811
    async with served(snapshot) as reader, tab(chromium, reader.address, width=width) as seen:
        await seen.open("/what-if")
        assert await seen.faults() == []
        await seen.page.get_by_label("Number").first.fill("2")
        await seen.page.get_by_label("like").first.select_option("hgx-h100")
        await seen.page.locator("summary", has_text="team").click()
        await seen.page.get_by_label("team h100 deserved").fill("8")
        await seen.page.get_by_role("button", name="Forecast").click()
        await seen.page.locator("#answer").wait_for(timeout=60_000)
        assert await seen.page.get_by_label("Number").first.input_value() == "2", "to ask again with a change"
        assert await seen.page.get_by_label("team h100 deserved").input_value() == "8"
        assert await seen.faults() == []
        assert await seen.overflow() == []
        assert seen.seen.complaints == []


async def test_what_cannot_be_asked_is_said_and_the_form_keeps_what_was_written(chromium, snapshot):  # noqa: F811
    async with served(snapshot) as reader, tab(chromium, reader.address) as seen:
        await seen.open("/what-if?queue=team.nonsense%3D1")
        await seen.page.get_by_role("button", name="Forecast").click()
        assert "nonsense" in await seen.page.get_by_role("alert").inner_text(timeout=60_000)
        assert await seen.page.get_by_label("Of other queues").input_value() == "team.nonsense=1"
        assert await seen.faults() == []
