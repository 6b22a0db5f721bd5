"""The Backend of a real node: NVML through nvidia-ml-py, nvidia-smi for time slices, /sys and /proc for the rest.

Enters: the answers of NVML. Leaves: an Inventory and the operations of Backend. A query that the library, the GPU or
the permissions do not support leaves its attribute out and never fails the node. `backend.NvmlBackend` is the entrance.
"""
