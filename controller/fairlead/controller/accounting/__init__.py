"""What the ledger is told: allocated claims, devices, and what devices that no claim holds are good for.

`feed.LedgerFeed` runs beside the loop and never delays a decision; `history.ledger` makes intervals of what it says.
"""
