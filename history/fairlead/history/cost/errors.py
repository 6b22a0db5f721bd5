"""What cannot be billed or reported."""

from __future__ import annotations


class CostError(Exception):
    """The message names what was asked for, why it cannot be answered, and the next step."""


class ConservationError(CostError):
    """The ledger's sums are not the time that its devices were there: a defect of the ledger, never a user's mistake."""
