"""Gangs as pods and claims show them, and the next step for each. Pure: no clock, no I/O, no logs.

In: pods, ResourceClaims, templates, PodGroups, budgets, and `now`. Out: `Gang` (`build.build_gang`), the engine's input
(`requests.gang_request`, `running.running_gang`), the next step of an interrupted admission (`recovery.next_step`) or of
an eviction (`eviction_steps.next_step`), and the release patch (`release`). A new leader derives all of it from the
cluster alone.
"""
