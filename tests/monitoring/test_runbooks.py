"""Every alert has a section in docs/runbooks.md that its runbook_url names, and every section is of an alert; what they tell to run exists."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.support import prometheus

PAGE = prometheus.ROOT / "docs" / "runbooks.md"
TEXT = PAGE.read_text(encoding="utf-8")
SECTIONS = {part.partition("\n")[0]: part for part in re.split(r"^### ", TEXT, flags=re.MULTILINE)[1:]}


def test_every_runbook_url_names_its_section_and_every_section_is_of_an_alert():
    urls = {name: rule["annotations"]["runbook_url"] for name, rule in prometheus.alerts().items()}
    assert urls == {name: f"docs/runbooks.md#{name.lower()}" for name in SECTIONS}
    assert len(SECTIONS) == TEXT.count("\n### ")


def test_every_section_says_what_it_means_how_to_confirm_what_to_do_and_when_it_is_false():
    for name, text in SECTIONS.items():
        assert re.findall(r"^- \*\*(\w+)\*\* ", text, re.MULTILINE) == ["Means", "Confirm", "Do", "False"], name


def test_every_anchor_within_the_page_exists():
    anchors = {name.lower() for name in SECTIONS}
    assert set(re.findall(r"\]\(#([\w-]+)\)", TEXT)) <= anchors


def test_every_panel_and_dashboard_that_it_names_exists():
    page = (prometheus.ROOT / "docs" / "dashboards.md").read_text(encoding="utf-8")
    panels = set(re.findall(r"^\| (.+?) \| ", page, re.MULTILINE))
    dashboards = set(re.findall(r"^## (.+)$", page, re.MULTILINE))
    named = set(re.findall(r"(?<!\*)\*([A-Z][^*]+?)\*(?!\*)", re.sub(r"\s+", " ", TEXT)))
    assert named
    shorter = {panel.partition(",")[0] for panel in panels}
    assert named <= panels | dashboards | shorter


def test_every_command_of_ours_that_it_names_exists():
    named = set(re.findall(r"`fairlead ([a-z-]+)", TEXT))
    said = subprocess.run(
        [sys.executable, "-m", "fairlead", "--help"], capture_output=True, text=True, check=True
    ).stdout
    commands = set(re.findall(r"^│ ([a-z-]+) ", said, re.MULTILINE))
    assert named
    assert named <= commands
