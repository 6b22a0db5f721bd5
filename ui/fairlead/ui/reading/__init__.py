"""How objects are read from a cluster, with the user's own rights, and what is said when they cannot be."""
