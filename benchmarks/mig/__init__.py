"""A made trace of requests for MIG profiles and whole GPUs, placed by us, by best fit and by first fit.

Enters: node profiles by name, a mix, seeds. Leaves: compute slices allocated and requests refused. Entrance: `run.measure`;
`benchmarks.placement.mig` prints the figures.
"""
