"""`fairlead repair | smoke`: what an operator does to the GPUs of a cluster's nodes, with the operator's own rights.

Enters: names of nodes and GPUs. Leaves: lines about what happens, as it happens, and an exit code.
"""
