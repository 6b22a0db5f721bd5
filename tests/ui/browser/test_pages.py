"""Every page in a browser: no complaint, no other host, readable by those who cannot see it, and at every width."""

import pytest

from tests.support import browser as browsers
from tests.support import ui
from tests.support.browser import WIDTHS, tab
from tests.support.ui_ledger import ledger

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

PATHS = {
    "overview": "/",
    "map": "/map",
    "node": "/map?node=node-004#node",
    "no-node": "/map?node=none",
    "queues": "/queues",
    "gangs": "/gangs",
    "chosen": "/gangs?queue=queue-1&sort=age",
    "none-chosen": "/gangs?text=nothing",
    "gang-waits": "/gangs/team-0/wait-00000",
    "gang-runs": "/gangs/team-0/run-0",
    "queue": "/queues/queue-1",
    "what-if": "/what-if",
    "time": "/time",
    "time-node": "/time?by=node&window=6h",
    "cost": "/cost?window=1d",
    "cost-users": "/cost?window=1d&by=namespace,gang",
    "cost-empty": "/cost?window=1d&where=queue%3Dnone",
}
TROUBLES = {
    "no-window": ("/cost?window=x", 400),
    "no-by": ("/time?by=x", 400),
    "no-gang": ("/gangs/team-0/wait-0000", 404),
    "no-page": ("/nothing", 404),
    "wrong": ("/gangs?sort=x", 400),
}


async def opened(seen: browsers.Tab, path: str, status: int = 200) -> None:
    assert await seen.open(path) == status, path
    await seen.settled()


def expected(complaints: list[str], status: int) -> list[str]:
    """Chromium reports the status of a page that is not 200 as an error of the console: that one is meant."""
    return [each for each in complaints if status == 200 or f"status of {status}" not in each]


LOOKS = [*((width, False) for width in WIDTHS), (WIDTHS[0], True)]  # colours do not depend on the width


@pytest.mark.parametrize(
    ("width", "dark"),
    LOOKS,
    ids=lambda value: str(value) if type(value) is int else "dark" if value else "light",
)
async def test_every_page_is_shown_without_complaint_and_for_everybody(chromium, width, dark):
    lists = ui.a_cluster(6, waiting=12)
    async with (
        ui.reader(ui.source(ui.Apiserver(lists)), ledger()) as reader,
        tab(chromium, reader.address, width=width, dark=dark) as seen,
    ):
        for path, status in [*((path, 200) for path in PATHS.values()), *TROUBLES.values()]:
            await opened(seen, path, status)
            assert await seen.faults() == [], path
            assert await seen.overflow() == [], path
            assert expected(seen.seen.complaints, status) == [], path
            seen.seen.complaints.clear()
        assert seen.seen.hosts == {seen.address.removeprefix("http://")}
