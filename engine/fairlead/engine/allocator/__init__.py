"""Devices for the claims of one node: Kubernetes' structured allocator, complete within a budget of steps.

In: compiled claims (`requests`), their candidate devices (`candidates`) and a ledger. Out: the devices of each claim, taken
from the ledger, or the request that fell short (`allocate.allocate`, the one entrance); `result` writes them as the API does.
Which node, and which devices first, is the caller's choice.
"""
