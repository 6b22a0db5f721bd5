"""Carries out a plan: writes to claims, pods, Gangs and Queues, each guarded by the lease and by the version it was decided on.

In: admissions and their recovery (`Admitter`), evictions (`Evictor`), repairs (`ClaimReconciler`); each gang by one task at a
time (`GangTasks`). `part`: what all of them share. Out: the cluster as planned, or as before. What a task left half done when the lease
was lost, the next leader reads from claims and pods (`gangs.recovery`, `gangs.evictions.eviction_marks`).
"""
