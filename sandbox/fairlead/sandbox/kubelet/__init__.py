"""A kubelet for one simulated node, so that the real driver meets what it meets on a real node.

Enters: pods bound to the node and their claims, from the API; plugin sockets and CDI files, from the node's directories.
Leaves: the Node and its Lease, pod status, NodePrepareResources and NodeUnprepareResources calls, containers in the
`Runtime` with the edits of their CDI devices. Entrance: `kubelet.Kubelet(client, options, runtime).run()`.
Does not do: volumes, probes, images, resource admission, mirror pods, the DRA health stream.
"""
