"""The decision: snapshot in, plan out. One entrance, `decide.Engine.decide(snapshot, now)`.

A `Session` is opened; `Scheduling` takes pending gangs in order, places and admits them; `PostFilter` nominates, evicts or
reserves for those that find no place; `Retry` looks at these again; what is left pending is explained. The plan has
admissions, evictions, reservations, queue use, and a reason for every gang that waits.
"""
