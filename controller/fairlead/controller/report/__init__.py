"""What users and operators read: status of Gangs, Queues and Flavors, events, metrics.

In: a gang with its `SchedulingState`, and each plan (`Reporter.gang`, `Reporter.settings`). Out: writes by `StatusWriter`,
a moment later and limited in rate; events by `Events`; `Metrics` for Prometheus. Nothing is decided from what is
written here, except the eviction history on Gang objects and past usage in Queue status.
"""
