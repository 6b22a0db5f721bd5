"""The hardware of one node, behind one protocol with two implementations: NVML and simulated.

Enters: NVML and the kernel's /sys and /proc, or a node profile. Leaves: frozen facts (types.Inventory) and the
operations of interface.Backend: create and destroy MIG devices, set time slices and compute modes, read health. Knows
no claim, no slice and no apiserver. `factory.open_backend` is the entrance.
"""
