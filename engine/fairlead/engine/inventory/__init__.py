"""The cluster's tables: devices with the claims that hold them, and nodes with the pods that run there.

In: ResourceSlices, ResourceClaims, DeviceTaintRules, Nodes and Pods, one change at a time (`Inventory.set_*`,
`NodeTable.set_*`). Out: devices of a node, use of a device, requests and taints of a node, and logs of what changed.
`ledger` counts what a decision takes on top of the tables; `selectors` evaluates CEL over devices. Chooses nothing.
"""
