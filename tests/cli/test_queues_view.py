"""What `fairlead queues` shows of a queue: its figures, and whether it uses more than its fair share."""

from __future__ import annotations

import pytest

from fairlead.cli.views.queues import rows
from fairlead.ui.model.queues import Line, Share


@pytest.mark.parametrize(
    ("used", "fair_share", "over"),
    [("10", "9", True), ("9", "10", False), ("9", "9", False), ("1500m", "1", True), ("2Gi", "1500Mi", True)],
)
def test_what_is_used_beyond_the_fair_share_is_marked_by_amount_and_not_by_text(
    used: str, fair_share: str, over: bool
) -> None:
    share = Share(flavor="h100", used=used, fair_share=fair_share)
    [row] = rows([Line(name="ml", depth=1, shares=(share,), running=2)])
    assert [cell.text for cell in row] == ["  ml", "h100", used, fair_share, "0", "-", "0", "-", "2", "0"]
    assert bool(row[2].colour) is over
