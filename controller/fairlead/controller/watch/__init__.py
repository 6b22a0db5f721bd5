"""The cluster as watched: informers, the engine's tables kept current from them, and the gangs.

In: list and watch of 15 resources. Out: `Caches`, the one entrance: `tables` for the engine, `gangs`, lookups, and
`triggers`, which say what changed since the loop last ran. Writes nothing to the cluster. What a commit writes is assumed
in `tables` from the decision on, until the informers show it.
"""
