"""What is wrong with facts that were read."""

from __future__ import annotations


class FactsError(ValueError):
    """Names the field, what it holds, and what to do."""
