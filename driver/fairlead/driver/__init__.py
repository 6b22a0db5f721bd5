"""The kubelet plugin of a GPU node: publishes the node's GPUs and prepares the claims that are allocated to them.

Enters: the hardware, through a Backend; ResourceClaims from the apiserver; the calls of kubelet. Leaves:
ResourceSlices, CDI files, answers to kubelet, metrics. It allocates nothing. `app.run` is the one entrance; imports run
downwards: app, kubelet, prepare and publish (neither imports the other), backend, common.
"""
