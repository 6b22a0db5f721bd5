"""Every reason and phase is documented, and every documented one exists."""

import re
from pathlib import Path
from typing import get_args

from fairlead.api.phases import Phase
from fairlead.controller.report.gang_phase import Progress
from fairlead.controller.report.status_writer import PROBLEM_REASONS
from fairlead.engine.types.reasons import Code

PAGE = Path(__file__).resolve().parents[3] / "docs" / "gangs.md"


def documented(section: str) -> set[str]:
    text = PAGE.read_text(encoding="utf-8").split(f"## {section}\n")[1].split("\n## ")[0]
    return set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))


def test_the_page_lists_every_reason_and_no_other():
    assert documented("Reasons") == {code.value for code in Code} | {progress.value for progress in Progress}


def test_the_page_lists_every_phase_and_no_other():
    assert documented("Phases") == set(get_args(Phase))


def test_reasons_that_warn_are_reasons():
    assert {code.value for code in Code} | {progress.value for progress in Progress} >= PROBLEM_REASONS
