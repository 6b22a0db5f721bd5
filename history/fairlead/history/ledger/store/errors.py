"""What is wrong with a ledger. Every message names the place, without its password, and the next step."""

from __future__ import annotations


class LedgerError(Exception):
    """The ledger cannot be used as asked."""


class UnavailableError(LedgerError):
    """It cannot be used now: locked, no room, no connection, not there. Nothing was written; the same call may work later."""


class LedgerTakenError(LedgerError):
    """A later writer opened the ledger; this one may not commit any more."""


class NewerLedgerError(LedgerError):
    """A later version of Fairlead wrote the ledger."""


class CorruptLedgerError(LedgerError):
    """The file, or the table, is damaged or no ledger."""
