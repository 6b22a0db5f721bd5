"""Nodes for the pods of a gang and devices for its claims: all of the gang, or nothing.

In: a gang's units (`shapes`), the nodes, a ledger and a budget of steps. Out: a node and devices for every
unit, taken from the ledger, or how far placement got (`model`). Entrances: `search.placer.Placer.place`, and
`topology.domain_search.TopologyDomains.place` for gangs with a topology. Packages, each of which reads those below it only:
    topology   domains, models, subgroups and ranks: which nodes a gang's units are placed on together
    search     a node for every unit: greedy, jointly, with backtracking, on the fewest nodes
    capacity   which nodes may take a unit now, in which order (`scored_nodes.Score`), and how many at most
    value      what a placement costs future requests: of this scores consist
Scores decide the order of nodes and devices only, never what is possible.
"""
