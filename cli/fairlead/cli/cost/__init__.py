"""`fairlead cost` and `fairlead report`: what use costs, from the ledger and the prices of Flavors."""
