"""The decision, pure: a `Snapshot` of the cluster in, a `Plan` of admissions, evictions and reasons out.

`plan.decide.Engine.decide(snapshot, now)` is the one entrance. The packages depend on one another downwards only: plan -> reclaim,
explain -> queues -> placement -> allocator -> inventory -> types. No I/O, no clock, no randomness, no logs: time, share IDs
and the cluster are arguments. Every order is total, so the same snapshot gives the same plan, byte for byte.
"""
