"""Room for a gang that finds none: by reclaim from other queues, preemption in its own, or a reservation.

In: a `Preemptor`, the running gangs as `VictimCandidates`, the `PipelinedCluster` in which those that leave are gone. Out:
`VictimSearch.choose`, a legal and minimal set of victims and the gang's place, or why there is none (`blockers`); and
`Reserver.reserve`, a place to wait for. `policy` is the rule between queues, `evictions` has what goes for no other gang. What is cheap
says one cost function each: of victims (`search`), of ends that are waited for (`reservation`), of moves.
"""
