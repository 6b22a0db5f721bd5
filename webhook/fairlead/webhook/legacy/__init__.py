"""Legacy requests of the device plugin (`nvidia.com/gpu: 2`), translated into claims on templates.

In: a raw pod spec. Out: its legacy limits with their faults, and the patch that replaces them by claims; node selectors on GPU
labels become part of the claims. Pure. Entrances: `requests.legacy_limits` and `requests.translate`.
"""
