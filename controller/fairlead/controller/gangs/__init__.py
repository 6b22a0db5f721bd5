"""Gangs as pods and claims show them, and the next step for each. Pure: no clock, no I/O, no logs.

In: pods, ResourceClaims, templates, PodGroups, budgets, and `now`. Out: `Gang` (`build.build_gang`), the engine's input
(`admission.requests.gang_request`, `held.running.running_gang`), the next step of an interrupted admission
(`admission.recovery.next_step`) or of an eviction (`evictions.eviction_marks.next_step`), and the release patch (`release`). A new leader
derives all of it from the cluster alone.
"""
