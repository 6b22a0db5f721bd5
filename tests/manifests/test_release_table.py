"""docs/install.md's table of Kubernetes releases is that of lib/fairlead/kube/releases.py, which also says what the README may claim."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import doc_tables
import pytest

from fairlead.kube import releases

ROOT = Path(__file__).parents[2]
INSTALL = ROOT / "docs" / "install.md"


def test_the_table_of_releases_is_what_the_programs_go_by() -> None:
    for page, written in (("install.md", doc_tables.install), ("security.md", doc_tables.security)):
        text = (ROOT / "docs" / page).read_text()
        assert written(text) == text, "run: make manifests"


def test_each_line_says_of_every_release_whether_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    made = dataclasses.replace(
        releases.NEEDS[0], what="x", gate="G", stages=("none", "off", "on", "on"), found="f", without="w"
    )
    monkeypatch.setattr(doc_tables, "NEEDS", (made, dataclasses.replace(made, gate="")))
    table = doc_tables.releases_table()
    assert "| x | `G` | none | off by default | on | on | f | w |\n" in table
    assert "| x |  | none | dropped | on | on | f | w |\n" in table


def test_a_table_written_twice_is_the_same() -> None:
    page = f"above\n{doc_tables.BEGIN}\nwhat stood there\n{doc_tables.END}\nbelow\n"
    once = doc_tables.install(page)
    assert doc_tables.install(once) == once
    assert "what stood there" not in once
    assert once.startswith("above\n")
    assert once.endswith("\nbelow\n")


@pytest.mark.parametrize("lost", [doc_tables.BEGIN, doc_tables.END])
def test_a_page_without_its_place_for_the_table_is_refused(lost: str) -> None:
    with pytest.raises(ValueError, match="has no line <!--"):
        doc_tables.install(INSTALL.read_text().replace(lost, ""))


def test_what_readers_are_promised_are_the_releases_that_were_tried() -> None:
    promised = f"Kubernetes {releases.written(releases.OLDEST)} to {releases.written(releases.NEWEST_TRIED)}"
    for page in ("README.md", "docs/install.md"):
        text = (ROOT / page).read_text().replace("| Kubernetes | ", "Kubernetes ")
        assert promised in text, page
        assert not re.search(r"1\.3\d (and|or) later", text), page
