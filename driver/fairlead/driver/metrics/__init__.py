"""What a scrape says of the node's GPUs, MIG devices and slices, and of the claims and pods that have them.

Enters: what the last poll of the hardware read, the records of claims. Leaves: metric families of Prometheus. A scrape
never waits for hardware. `collector.GpuCollector` is the entrance; `devices` puts a poll's facts together by device,
`readings` are our names, `dcgm` is DCGM exporter's, `holders` says which claim has what. What the driver counts of its
own work is common/metrics.py's.
"""
