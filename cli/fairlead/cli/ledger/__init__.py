"""`fairlead ledger`: what an operator does with the ledger itself; what it says of costs is elsewhere."""
