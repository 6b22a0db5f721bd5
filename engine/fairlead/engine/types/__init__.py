"""The values that enter and leave the engine: frozen, without policy.

In: `gangs` (pending and running), `settings` (queues, flavors, disruption budgets), `pods` (what they need, and the usual mix).
Out: `plan` (admissions, waiting gangs, evictions, use of queues), `allocation` (a claim's devices), `reasons` (why a gang waits).
Shared by both: `values` (exact quantities, names of devices and pods).
"""
