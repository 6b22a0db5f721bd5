"""Claims made usable on this node, and undone: a state machine on disk that survives a kill at any point.

Enters: an allocated ResourceClaim to prepare, a UID to unprepare, the records and CDI files of the process before.
Leaves: MIG devices, time slices and MPS daemons on the hardware; a CDI spec and metadata files for the containers.
gRPC is `kubelet`'s. `preparer.Preparer` is the entrance; `upkeep` runs beside it.
"""
