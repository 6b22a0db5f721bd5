"""The values that enter and leave the engine: frozen, without policy.

In: `gangs` (pending and running), `settings` (queues, flavors, disruption budgets), `workload` (the usual mix), `pod_needs`.
Out: `plan` (admissions, waiting gangs, evictions, use of queues), `allocation` (a claim's devices), `reasons` (why a gang waits).
Shared by both: `references` (names of devices and pods) and `amounts` (exact quantities).
"""
