"""Repairs a GPU: taint, drain, reset, verify, untaint; the driver's part of `fairlead repair`.

Enters: requests from annotations of the node's slice, records of claims, readings of the hardware. Leaves: a reset, a taint
until the GPU is found well, the state as an annotation. Entrance: `repairer.Repairer`.
"""
