"""A real browser for tests: the distribution's Chromium, driven by Playwright, and what it saw while a page was shown.

Playwright brings no browser of its own here: `chromium` comes from the distribution, and a test that needs it skips where it is
missing. Nothing waits for a time: Playwright waits for conditions.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, Request, async_playwright, expect

WIDE: Final = 1440
TABLET: Final = 1024
PHONE: Final = 390
WIDTHS: Final = (WIDE, TABLET, PHONE)
HEIGHT: Final = 900
TIMEOUT_MS: Final = 20_000.0  # of one condition; a loaded machine is slow
expect.set_options(timeout=TIMEOUT_MS)  # else five seconds, whatever the context's is
# What WCAG 2.2 asks at levels A and AA, and what axe calls good practice.
RULES: Final = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
# No test reaches another host, not even by mistake: no name is resolved but loopback's.
FLAGS: Final = ("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--font-render-hinting=none")


def chromium() -> str:
    """Where it is; skips the test where it is not."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    return found


@contextlib.asynccontextmanager
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        running = await playwright.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        try:
            yield running
        finally:
            await running.close()


@dataclass
class Seen:
    """What a browser had to complain about, and what it asked for."""

    complaints: list[str] = field(
        default_factory=list
    )  # errors and warnings of the console, uncaught errors, failed requests
    hosts: set[str] = field(default_factory=set)
    requests: list[str] = field(default_factory=list)

    def watch(self, page: Page) -> None:
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.complaints.append(f"uncaught: {error}"))
        page.on("request", self._request)
        page.on("requestfailed", self._failed)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.complaints.append(f"{message.type}: {message.text}")

    def _failed(self, request: Request) -> None:
        # The browser gives up what a page still loads when it is left: its icon, which no load event waits for. Pages that fail do so otherwise.
        left = request.failure == "net::ERR_ABORTED" and not request.is_navigation_request()
        if not left and urlsplit(request.url).path != "/live":  # a page's stream ends with the page, or with its server
            self.complaints.append(f"failed: {request.url} {request.failure}")

    def _request(self, request: Request) -> None:
        self.requests.append(request.url)
        self.hosts.add(urlsplit(request.url).netloc)


class Tab:
    """One page of one reader: where it is, and what was seen there."""

    def __init__(self, page: Page, address: str) -> None:
        self.page = page
        self.address = address.rstrip("/")
        self.seen = Seen()
        self.seen.watch(page)

    async def open(self, path: str) -> int:
        """The status of the page that is shown at this path."""
        answer = await self.page.goto(self.address + path, wait_until="load")
        assert answer is not None
        return answer.status

    async def faults(self) -> list[str]:
        """What axe finds wrong with the page as it is now, one line each; a rule's elements follow it."""
        found = await Axe().run(self.page, options={"runOnly": RULES, "resultTypes": ["violations"]})
        return [
            f"{rule['id']} ({rule['impact']}): {rule['help']}: {node['html'][:160]} {node.get('failureSummary', '')}"
            for rule in found.response["violations"]
            for node in rule["nodes"]
        ]

    async def overflow(self) -> list[str]:
        """What makes the page wider than its window, in the order of the document; nothing where it is not."""
        found: list[str] = await self.page.evaluate(_WIDER)
        return found

    async def settled(self) -> None:
        """Until what an address named is scrolled to, fonts are there, and no transition runs."""
        await self.page.evaluate("document.fonts.ready.then(() => true)")


_WIDER: Final = """() => {
  const wide = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= wide) return [];
  return [...document.body.querySelectorAll('*')]
    .filter(each => each.getBoundingClientRect().right > wide + 1 && getComputedStyle(each).position !== 'absolute')
    .map(each => each.tagName.toLowerCase() + '.' + each.getAttribute('class') + ' ends at ' + each.getBoundingClientRect().right);
}"""


@contextlib.asynccontextmanager
async def tab(
    running: Browser, address: str, *, width: int = WIDE, dark: bool = False, **options: Any
) -> AsyncIterator[Tab]:
    """A page in a profile of its own: no cookies, no cache. `options`: more of Playwright's for a context."""
    context: BrowserContext = await running.new_context(
        viewport={"width": width, "height": HEIGHT},
        color_scheme="dark" if dark else "light",
        locale="en-GB",
        timezone_id="UTC",
        **options,
    )
    context.set_default_timeout(TIMEOUT_MS)
    try:
        yield Tab(await context.new_page(), address)
    finally:
        await context.close()
