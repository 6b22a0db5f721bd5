"""`fairlead ui`: the pages on loopback, or as a program that others log in to."""
