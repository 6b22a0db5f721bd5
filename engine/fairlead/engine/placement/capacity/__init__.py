"""Which nodes may take a unit of a shape now, best first, and how many units at most."""
