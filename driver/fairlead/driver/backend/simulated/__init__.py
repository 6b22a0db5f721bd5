"""The Backend of a node without GPUs: a node profile with MIG placements that fill up, and faults on demand.

Enters: a NodeProfile, a state file, the fault file that `fairlead fault` writes. Leaves: an Inventory and the
operations of Backend, with the refusals of real hardware. `backend.SimulatedBackend` is the entrance; `readings` is what
its instruments show; `mps_standin` is a program of its own.
"""
