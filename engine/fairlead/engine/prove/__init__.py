"""Certificates that waiting gangs cannot start: written from the engine's own tables, once a decision is made.

In: a snapshot. Out: for each gang that waits, a `Certificate` (`prover.Prover`, the one entrance). `fairlead.verify` checks it
from the cluster's objects, and shares no code with this.
"""
