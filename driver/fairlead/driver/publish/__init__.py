"""What the node publishes about its devices: ResourceSlices to the apiserver, health states to kubelet.

Enters: a Backend that is read again and again, and the slices that the apiserver has. Leaves: devices with attributes,
counters and taints, written so that the slices stay what they should be. Claims play no part.
`monitor` reads the hardware, `slices.build` makes the slices, `publisher` writes them.
"""
