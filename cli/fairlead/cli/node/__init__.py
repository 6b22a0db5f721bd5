"""`fairlead devices | record | fault`: a GPU node's devices, as a driver on it would publish them.

Enters: a backend (NVML or a profile). Leaves: a table, a profile, or an injected fault of simulated hardware.
Entrance: `commands.register`.
"""
