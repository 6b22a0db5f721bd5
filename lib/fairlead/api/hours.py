"""GPU-hours as text. Apart from our kinds, whose models take a third of a second to import."""

from __future__ import annotations

from fractions import Fraction


def hours_text(hours: Fraction) -> str:
    """Hours in messages and statuses: at most two digits after the point. What is below a limit is not rounded up to it."""
    cut = int(hours * 100)
    whole, part = divmod(cut, 100)
    return f"{whole}.{part:02d}".rstrip("0").rstrip(".")
