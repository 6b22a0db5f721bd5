"""Kubernetes: the API server's client, caches and structs, and the values of its API (quantities, versions, selectors, times).

`Client.connect` is the way in: typed calls and watches on the resources in `resources`; an `Informer` keeps a local copy of one
of them current, `LeaderLease` elects one leader, `EventRecorder` writes Events, `WorkQueue` orders the keys to reconcile.
Structs (`core`, `batch`, `resource`) hold the fields that our programs read. Errors are one tree (`errors`). `logs` and
`probes` are what every program serves to operators. Gangs, queues and drivers play no part.
"""
