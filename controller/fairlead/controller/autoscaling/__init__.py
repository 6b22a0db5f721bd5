"""Demand for nodes, after the decision: what is remembered of it, and how it looks to each kind of autoscaler. Pure.

`engine.plan.node_demand` says which gangs are demand; `awaited` remembers since when, and how long earlier scale-ups took;
`visible`, `provisioning` and `shapes` say what is to be written. `commit.node_requests` writes it.
"""
