"""What is not written here is as published, its licence is shipped, and a page with all that it loads is small."""

import gzip
import hashlib
import re
import tomllib
from pathlib import Path

import pytest

from fairlead.ui.pages import render
from tests.support import ui

VENDOR = Path(render.__file__).parent / "vendor"
LOCK = "vendor.lock"
PAGE_MAX = 100_000  # bytes over the wire, with all that it loads
LOCKED = tomllib.loads((VENDOR / LOCK).read_text())["file"]


@pytest.mark.parametrize("entry", LOCKED, ids=lambda entry: entry["file"])
def test_a_vendored_file_is_as_its_lock_says(entry):
    assert hashlib.sha256((VENDOR / entry["file"]).read_bytes()).hexdigest() == entry["sha256"]
    assert entry["url"] == f"pkg:npm/{entry['name']}@{entry['version']}"
    assert "ANY PURPOSE" in (VENDOR / entry["licence-file"]).read_text().upper()


def test_nothing_is_vendored_that_the_lock_does_not_name_and_pages_load_nothing_else():
    named = {entry["file"] for entry in LOCKED}
    assert {path.name for path in VENDOR.iterdir()} == named | {LOCK}
    assert {name for name in named if name.endswith(".js")} == set(render.SCRIPTS)


@pytest.mark.slow
async def test_a_page_and_all_that_it_loads_is_less_than_100_kb():
    async with ui.pages(ui.a_cluster(500, waiting=200)) as reader:
        for path in ("/", "/map", "/map?node=node-004", "/queues", "/gangs", "/gangs/team-0/wait-00000"):
            _, _, page = await reader.get(path)
            loaded = re.findall(r'(?:src|href)="(/(?:style\.css|page\.js|icon\.svg|vendor/[^"?]+)[^"]*)"', page)
            assert len(loaded) == 5
            texts = [page]
            for each in loaded:
                status, headers, text = await reader.get(each)
                assert status == 200
                assert "immutable" in headers["Cache-Control"] or "icon" in each
                texts.append(text)
            assert sum(len(gzip.compress(text.encode(), 6)) for text in texts) < PAGE_MAX, path
