"""A campaign of faults against the whole of Fairlead: one process, one thread, virtual time, one seed.

`python -m tests.chaos --seed 1 --steps 300` starts a cluster (two apiservers on one store, control loops, three nodes with
kubelet and driver, the webhook, two controllers) on an event loop whose clock jumps from event to event, lets jobs and faults
loose on it, checks DESIGN's invariants at every change, and at the end repairs everything and waits until all has come to rest.
The same seed gives the same run, byte for byte. docs/reliability.md lists the faults and what is promised under each.

- `virtual`: time and chance; to be installed before Fairlead is imported. `loop`: the event loop and its processes.
- `network`, `rpc`, `disk`: what connects and stores, with what goes wrong there. `replacements`: where they take the real ones' place.
- `cluster`: the processes. `world`: the workload and the rest at the end. `invariants`: what must hold. `actions`: what is done.
- `campaign`: plan, run, shrink. `mutations`: defects that the campaign has to find.
"""
