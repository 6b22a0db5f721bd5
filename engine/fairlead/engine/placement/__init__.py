"""Nodes for the pods of a gang and devices for its claims: all of the gang, or nothing.

In: a gang's units (`shapes`), the nodes (`candidate_nodes`), a ledger and a budget of steps. Out: a node and devices for every
unit, taken from the ledger, or how far placement got. Entrances: `placer.Placer.place`, and `topology.Domains.place` for
gangs with a topology. Scores decide the order of nodes and devices only, never what is possible.
"""
