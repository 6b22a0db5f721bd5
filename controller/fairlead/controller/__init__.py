"""The controller: gangs admitted whole to devices and nodes, or evicted, as the engine decides.

`app.run` is the entrance: connect, wait for the lease, then `term.lead`. A term runs `loop.Controller`: reconcile changed
gangs, run a scheduling `cycle` (snapshot, decide, commit), report. Packages: `gangs` (pure), `watch` (caches), `report`
(status, events, metrics), `commit` (writes).
"""
